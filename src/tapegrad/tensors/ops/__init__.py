"""Operations on tensors, one file per kind; each record stands once, in its file."""

from tapegrad.tensors.ops import (
    arithmetic,
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
    arithmetic,
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
