"""Operations on tensors, one file per kind; each record stands once, in its file."""

from tapegrad.tensors.ops import (
    attention,
    bits,
    conv,
    elementwise,
    index,
    loss,
    matmul,
    norm,
    padding,
    pool,
    reduce,
    search,
    shape,
    softmax,
    transfer,
)

#: All files with operations.
FILES = (
    elementwise,
    reduce,
    shape,
    index,
    padding,
    search,
    bits,
    matmul,
    conv,
    pool,
    norm,
    softmax,
    attention,
    loss,
    transfer,
)
