"""Operations on tensors, one file per kind; each record stands once, in its file."""

from tapegrad.tensors.ops import (
    attention,
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
    shifts,
    softmax,
)

#: All files with operations.
FILES = (
    elementwise,
    reduce,
    shape,
    index,
    padding,
    search,
    shifts,
    matmul,
    conv,
    pool,
    norm,
    softmax,
    attention,
    loss,
)
