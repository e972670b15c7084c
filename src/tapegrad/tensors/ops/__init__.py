"""Operations on tensors, one file per kind; each record stands once, in its file."""

from tapegrad.tensors.ops import (
    attention,
    conv,
    elementwise,
    index,
    loss,
    matmul,
    norm,
    pool,
    reduce,
    search,
    shape,
    softmax,
)

#: All files with operations.
FILES = (
    elementwise,
    reduce,
    shape,
    index,
    search,
    matmul,
    conv,
    pool,
    norm,
    softmax,
    attention,
    loss,
)
