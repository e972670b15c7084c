"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.registry import Cost, Sample, define

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def _check_types(op: str, *tensors: Tensor | None) -> None:
    types = {x._array.dtype for x in tensors if x is not None}
    if len(types) > 1 or next(iter(types)).kind != "f":
        names = ", ".join(sorted(str(each) for each in types))
        raise DTypeError(f"{op}: expected tensors of one floating point type, got {names}")


def as_rows(x: Tensor) -> Tensor:
    """Return x as one matrix: all of its last dimensions below each other."""
    return x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul_rule(a: Tensor, b: Tensor) -> tuple[int, ...]:
    x, y = a._array.shape, b._array.shape
    if len(x) != len(y) or x[-1] != y[-2] or x[:-2] != y[:-2]:
        raise ShapeError(f"matmul: shapes {x} and {y} do not fit")
    if a._array.dtype != b._array.dtype or a._array.dtype.kind != "f":
        _check_types("matmul", a, b)
    return (*x[:-1], y[-1])


def _matmul_vjp(node: Node, g: Tensor) -> tuple[Any, Any]:
    a, b = node.inputs
    needs = node.needs
    return (
        matmul(g, b.transpose(-1, -2)) if needs[0] else None,
        matmul(a.transpose(-1, -2), g) if needs[1] else None,
    )


def _matmul_cost(a: Tensor, b: Tensor) -> Cost:
    shape = _matmul_rule(a, b)
    count = math.prod(shape)
    return Cost(2 * count * a.shape[-1], a.nbytes + b.nbytes + count * a.itemsize)


_MATMUL = define(
    name="matmul",
    doc="the product of matrices, or of stacks of them",
    rule=_matmul_rule,
    vjp=_matmul_vjp,
    saves=(0, 1),
    cost=_matmul_cost,
    samples=[
        Sample((3, 4), (4, 5)),
        Sample((2, 3, 4), (2, 4, 5)),
        Sample((4,), (4,)),
        Sample((3, 4), (4,)),
        Sample((4,), (2, 4, 3)),
        Sample((5, 1, 3, 4), (2, 4, 2)),
    ],
    benchmark="matmul",
)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Return the product of vectors, matrices or stacks of matrices, which broadcast."""
    if input._array.ndim == other._array.ndim == 2:
        plain: Tensor = _MATMUL(input, other)
        return plain
    if not input.ndim or not other.ndim:
        raise ShapeError("matmul: expected at least one dimension; use * for numbers")
    first = input.reshape((1, -1)) if input.ndim == 1 else input
    second = other.reshape((-1, 1)) if other.ndim == 1 else other
    if first.shape[-1] != second.shape[-2]:
        raise ShapeError(f"matmul: shapes {input.shape} and {other.shape} do not fit")
    found = _stacked(first, second)
    if input.ndim == 1:
        found = found.squeeze(-2)
    return found.squeeze(-1) if other.ndim == 1 else found


def _stacked(a: Tensor, b: Tensor) -> Tensor:
    if b.ndim == 2 and a.ndim > 2:  # one matrix for all: a single product
        flat: Tensor = _MATMUL(as_rows(a), b)
        return flat.reshape((*a.shape[:-1], b.shape[-1]))
    batch = _dims.broadcast("matmul", a.shape[:-2], b.shape[:-2])
    found: Tensor = _MATMUL(a.expand((*batch, *a.shape[-2:])), b.expand((*batch, *b.shape[-2:])))
    return found


@composite(Sample((3, 4), (4, 5)))
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices."""
    if input.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"mm: expected two matrices, got {input.shape} and {mat2.shape}")
    return matmul(input, mat2)


@composite(Sample((2, 3, 4), (2, 4, 5)), benchmark="bmm")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the products of two stacks of matrices."""
    if input.ndim != 3 or mat2.ndim != 3:
        raise ShapeError(
            f"bmm: expected two stacks of matrices, got {input.shape} and {mat2.shape}"
        )
    return matmul(input, mat2)


def _linear_rule(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[int, ...]:
    shape = weight._array.shape
    if len(shape) != 2 or not x._array.shape or x._array.shape[-1] != shape[1]:
        raise ShapeError(
            f"linear: expected weight (out, in) and x (..., in), got {shape} and {x.shape}"
        )
    if bias is not None and bias._array.shape != shape[:1]:
        raise ShapeError(f"linear: expected bias of shape {shape[:1]}, got {bias.shape}")
    _check_types("linear", x, weight, bias)
    return (*x._array.shape[:-1], shape[0])


def _linear_vjp(node: Node, g: Tensor) -> tuple[Any, ...]:
    x, weight, _ = node.inputs
    needs = node.needs
    rows = as_rows(g)
    return (
        matmul(rows, weight).reshape(node.shapes[0]) if needs[0] else None,
        matmul(rows.transpose(0, 1), as_rows(x)) if needs[1] else None,
        rows.sum(0) if needs[2] else None,
    )


_LINEAR = define(
    name="linear",
    doc="x @ weight.T + bias",
    rule=_linear_rule,
    vjp=_linear_vjp,
    saves=(0, 1),
    cost=lambda x, weight, bias=None: Cost(
        2 * x.numel() * weight.shape[0], x.nbytes + weight.nbytes
    ),
    samples=[
        Sample((3, 4), (5, 4), (5,)),
        Sample((2, 3, 4), (5, 4)),
        Sample((4,), (5, 4), (5,)),
    ],
    benchmark="linear",
)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias."""
    found: Tensor = _LINEAR(input, weight, bias)
    return found


# ---- einsum -------------------------------------------------------------------------------------


@composite(
    Sample((2, 3, 4), (2, 4, 5), equation="bij,bjk->bik"),
    Sample((3, 4), equation="ij->ji"),
    Sample((3, 3), equation="ii"),
    Sample((2, 3, 3), equation="...ii->...i"),
    Sample((3,), (4,), equation="i,j"),
    Sample((2, 3), (3, 4), (4,), equation="ij,jk,k->i"),
    Sample((5, 1, 3, 4), (2, 4, 2), equation="...ij,...jk->...ik"),
    Sample((2, 3), (2, 3), equation="ij,ij->"),
    benchmark="einsum",
)
def einsum(equation: str, *operands: Any) -> Tensor:
    """Return sums of products by Einstein's convention, as "bij,bjk->bik".

    Operands are combined two at a time from the left, each pair as one product of matrices.
    """
    tensors = (
        list(operands[0])
        if len(operands) == 1 and isinstance(operands[0], (list, tuple))
        else list(operands)
    )
    terms, result = _parse(equation, tensors)
    pairs = [_diagonal(x, term) for x, term in zip(tensors, terms, strict=True)]
    x, letters = pairs[0]
    for k, (y, others) in enumerate(pairs[1:], 1):
        later = set(result).union(*[set(each[1]) for each in pairs[k + 1 :]])
        x, letters = _contract(x, letters, y, others, later)
    gone = [d for d, letter in enumerate(letters) if letter not in result]
    x = x.sum(gone) if gone else x
    left = [letter for letter in letters if letter in result]
    return x.permute([left.index(letter) for letter in result]) if result else x


def _parse(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ShapeError(f"einsum: {equation!r} names {len(terms)} operands, got {len(tensors)}")
    hidden = max(
        (
            x.ndim - len(t.replace("...", ""))
            for x, t in zip(tensors, terms, strict=True)
            if "..." in t
        ),
        default=0,
    )
    names = [chr(0x100 + i) for i in range(hidden)]  # letters for what ... stands for
    spelled = []
    for x, term in zip(tensors, terms, strict=True):
        count = x.ndim - len(term.replace("...", ""))
        filled = term.replace("...", "".join(names[hidden - count :] if count > 0 else []))
        if len(filled) != x.ndim or (count and "..." not in term):
            raise ShapeError(f"einsum: {term!r} does not name the dimensions of shape {x.shape}")
        spelled.append(list(filled))
    every = [letter for term in spelled for letter in term]
    if arrow:
        result = list(right.replace("...", "".join(names)))
    else:
        result = names + sorted({c for c in every if every.count(c) == 1 and c not in names})
    if unknown := set(result) - set(every):
        raise ShapeError(f"einsum: {equation!r} has {sorted(unknown)} only in the result")
    if len(set(result)) != len(result):
        raise ShapeError(f"einsum: {equation!r} names a dimension of the result twice")
    return spelled, result


def _diagonal(x: Tensor, letters: list[str]) -> tuple[Tensor, list[str]]:
    """Take the diagonal where a letter stands twice in one term."""
    from tapegrad.tensors.creation import arange

    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            size = x.shape[first]
            if x.shape[second] != size:
                raise ShapeError(f"einsum: {letter!r} stands for {size} and {x.shape[second]}")
            rest = [d for d in range(x.ndim) if d not in (first, second)]
            moved = x.permute([first, second, *rest])
            places = arange(size, device=x.device)
            x = moved[places, places]
            letters = [letter, *[letters[d] for d in rest]]
    return x, letters


def _contract(
    a: Tensor, first: list[str], b: Tensor, second: list[str], later: set[str]
) -> tuple[Tensor, list[str]]:
    """Multiply two operands and sum over what nobody needs later."""
    sizes: dict[str, int] = {}
    for x, letters in ((a, first), (b, second)):
        for letter, size in zip(letters, x.shape, strict=True):
            known = sizes.get(letter, 1)
            if 1 not in (known, size) and known != size:
                raise ShapeError(f"einsum: {letter!r} stands for {known} and {size}")
            sizes[letter] = max(known, size) if size else size
    both = [letter for letter in first if letter in second]
    batch = [letter for letter in both if letter in later]
    summed = [letter for letter in both if letter not in later]
    rows = [letter for letter in first if letter not in second]
    columns = [letter for letter in second if letter not in first]

    def shaped(x: Tensor, letters: list[str], *groups: list[str]) -> Tensor:
        order = [letters.index(letter) for group in groups for letter in group]
        moved = x.permute(order).expand([sizes[letters[d]] for d in order])
        return moved.reshape([math.prod(sizes[letter] for letter in group) for group in groups])

    product: Tensor = _MATMUL(
        shaped(a, first, batch, rows, summed), shaped(b, second, batch, summed, columns)
    )
    letters = [*batch, *rows, *columns]
    return product.reshape([sizes[letter] for letter in letters]), letters


__all__ = ["bmm", "einsum", "linear", "matmul", "mm"]
