"""Products of matrices."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad._core import rules
from tapegrad.errors import DTypeError, ShapeError
from tapegrad.tensors.arguments import asks
from tapegrad.tensors.autograd import Node
from tapegrad.tensors.ops import dims as _dims
from tapegrad.tensors.ops.composite import composite
from tapegrad.tensors.ops.shape import in_shape, widened
from tapegrad.tensors.registry import Cost, Draw, Sample, common_device, define

if TYPE_CHECKING:
    from tapegrad.tensors.methods import Tensor


def check_types(op: str, *tensors: Tensor | None, kinds: str = "f") -> None:
    """Raise unless all are of one type: floating point, or of the kinds named."""
    types = {x._array.dtype for x in tensors if x is not None}
    if len(types) > 1 or next(iter(types)).kind not in kinds:
        names = ", ".join(sorted(str(each) for each in types))
        wanted = "one floating point type" if kinds == "f" else "one type of numbers"
        way = "convert one, as by x.to(y.dtype)" if len(types) > 1 else "use x.float()"
        raise DTypeError(f"{op}: expected tensors of {wanted}, got {names}; {way}")


def as_rows(x: Tensor) -> Tensor:
    """Return x as one matrix: all of its last dimensions below each other."""
    have = x._array.shape
    return in_shape(x, (math.prod(have[:-1]), have[-1]))


def _is_plain(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Tell whether operands are matrices, stacks of equal size, or a stack and one matrix."""
    return len(y) == 2 <= len(x) or (len(x) == len(y) > 2 and x[:-2] == y[:-2])


def _matmul_vjp(node: Node, g: Tensor) -> tuple[Any, Any]:
    a, b = node.inputs
    by_a = by_b = None
    if node.needs[0]:
        by_a = matmul(g, b.transpose(-1, -2))
    if node.needs[1]:
        left, right = (a, g) if len(node.shapes[1]) > 2 else (as_rows(a), as_rows(g))
        by_b = matmul(left.transpose(-1, -2), right)
    return by_a, by_b


def _matmul_cost(a: Tensor, b: Tensor) -> Cost:
    shape = rules.matmul(a, b)
    count = math.prod(shape)
    return Cost(2 * count * a.shape[-1], a.nbytes + b.nbytes + count * a.itemsize)


_MATMUL = define(
    name="matmul",
    doc="the product of matrices, or of stacks of them",
    rule=rules.matmul,
    vjp=_matmul_vjp,
    saves={0: (1,), 1: (0,)},
    cost=_matmul_cost,
    samples=[
        Sample((3, 4), (4, 5)),
        Sample((2, 3, 4), (2, 4, 5)),
        Sample((4,), (4,)),
        Sample((3, 4), (4,)),
        Sample((4,), (2, 4, 3)),
        Sample((5, 1, 3, 4), (2, 4, 2)),
        Sample(Draw((3, 4), -9, 9, "int64"), Draw((4, 5), -9, 9, "int64")),
        Sample(Draw((2, 1, 3, 4), -9, 9, "int32"), Draw((3, 4, 2), -9, 9, "int32")),
    ],
    benchmark="matmul",
)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Return the product of vectors, matrices or stacks of matrices, which broadcast."""
    x, y = input._array.shape, other._array.shape
    if len(x) == len(y) == 2 or _is_plain(x, y):
        plain: Tensor = _MATMUL(input, other)
        return plain
    if not x or not y:
        raise ShapeError("matmul: expected at least one dimension; use * for numbers")
    if x[-1] != y[-2 if len(y) > 1 else 0]:
        raise ShapeError(
            f"matmul: shapes {x} and {y} do not fit: expected {x[-1]} rows on the right, as many "
            f"as columns on the left, got {y[-2 if len(y) > 1 else 0]}"
        )
    if len(y) <= 2:
        flat = _MATMUL(as_rows(input), other if len(y) == 2 else in_shape(other, (y[0], 1)))
        return in_shape(flat, x[:-1] + y[1:])
    rows = x if len(x) > 1 else (1, x[0])
    batch = _dims.broadcast("matmul", rows[:-2], y[:-2])
    stack = widened(in_shape(input, rows), (*batch, *rows[-2:]))
    found: Tensor = _MATMUL(stack, widened(other, (*batch, *y[-2:])))
    return found if len(x) > 1 else found.squeeze(-2)


@composite(Sample((3, 4), (4, 5)))
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices."""
    if not input._array.ndim == mat2._array.ndim == 2:
        raise ShapeError(f"mm: expected two matrices, got {input.shape} and {mat2.shape}")
    return matmul(input, mat2)


@composite(
    Sample((2, 3, 4), (2, 4, 5)),
    Sample(Draw((2, 3, 4), -9, 9, "int32"), Draw((2, 4, 5), -9, 9, "int32")),
    benchmark="bmm",
)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the products of two stacks of matrices."""
    if not input._array.ndim == mat2._array.ndim == 3:
        raise ShapeError(
            f"bmm: expected two stacks of matrices, got {input.shape} and {mat2.shape}"
        )
    found: Tensor = _MATMUL(input, mat2)
    return found


def _check_vectors(op: str, *tensors: Tensor) -> None:
    for each in tensors:
        if each.ndim != 1:
            raise ShapeError(f"{op}: expected tensors of one dimension, got {each.shape}")


@composite(Sample((4,), (4,)), Sample(Draw((4,), -9, 9, "int64"), Draw((4,), -9, 9, "int64")))
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Return the sum of the products of two vectors."""
    _check_vectors("dot", input, tensor)
    return matmul(input, tensor)


@composite(Sample((3, 4), (4,)))
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Return the product of a matrix and a vector."""
    _check_vectors("mv", vec)
    if input.ndim != 2:
        raise ShapeError(f"mv: expected a matrix and a vector, got {input.shape}")
    return matmul(input, vec)


@composite(Sample((3,), (4,)), benchmark="outer")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Return the products of each element of one vector with each of another."""
    _check_vectors("outer", input, vec2)
    return input.reshape((-1, 1)) * vec2


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
    rule=rules.linear,
    vjp=_linear_vjp,
    saves={0: (1,), 1: (0,)},
    cost=lambda x, weight, bias=None: Cost(
        2 * x.numel() * weight.shape[0], x.nbytes + weight.nbytes
    ),
    samples=[
        Sample((3, 4), (5, 4), (5,)),
        Sample((2, 3, 4), (5, 4)),
        Sample((4,), (5, 4), (5,)),
        Sample(*[Draw(each, -9, 9, "int64") for each in ((3, 4), (5, 4), (5,))]),
    ],
    benchmark="linear",
)


@asks
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias; one row of weights gives one number for each of x."""
    if input is None or weight is None:  # the operation takes None for a bias
        raise DTypeError("linear: expected input and weight to be tensors, got None")
    try:
        found: Tensor = _LINEAR(input, weight, bias)
    except ShapeError:
        if (other := _broadcast_linear(input, weight, bias)) is None:
            raise
        return other
    return found


def _broadcast_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return what PyTorch gives, too: one row of weights, biases that broadcast; else None."""
    rows = weight._array.ndim
    if rows not in (1, 2) or (rows == 2 and bias is None) or not x._array.ndim:
        return None
    found: Tensor = matmul(x, weight) if rows == 1 else _LINEAR(x, weight, None)
    if bias is None:
        return found
    fits = not bias._array.ndim if rows == 1 else _expands(bias._array.shape, found._array.shape)
    return found + bias if fits else None


def _expands(have: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    ends = zip(reversed(have), reversed(wanted), strict=False)
    return len(have) <= len(wanted) and all(size in (1, whole) for size, whole in ends)


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
    Sample(Draw((2, 3), -9, 9, "int64"), Draw((3, 4), -9, 9, "int64"), equation="ij,jk->ki"),
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
    if not isinstance(equation, str):
        raise DTypeError(
            f"einsum: expected an equation as text, got {type(equation).__name__}; "
            'write tg.einsum("ij,jk->ik", a, b)'
        )
    common_device("einsum", tensors)
    terms, result = _parse(equation, tuple([x._array.ndim for x in tensors]))
    for place, term in enumerate(terms):
        if len(set(term)) != len(term):
            tensors[place], terms = _diagonal(tensors[place], place, terms)
    plan = _planned(terms, result, tuple([x._array.shape for x in tensors]))
    x: Tensor = tensors[0]
    for y, step in zip(tensors[1:], plan.steps, strict=True):
        product = _MATMUL(_seen(x, step.left), _seen(y, step.right))
        x = in_shape(product, step.shape)
    x = x.sum(plan.gone) if plan.gone else x
    return x if plan.order is None else x.permute(plan.order)


@lru_cache(maxsize=256)
def _parse(equation: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Return the letters of operands with so many dimensions, and of the result."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ShapeError(f"einsum: {equation!r} names {len(terms)} operands, got {len(ndims)}")
    hidden = max(
        (n - len(t.replace("...", "")) for n, t in zip(ndims, terms, strict=True) if "..." in t),
        default=0,
    )
    names = [chr(0x100 + i) for i in range(hidden)]  # letters for what ... stands for
    spelled = []
    for place, (ndim, term) in enumerate(zip(ndims, terms, strict=True)):
        count = ndim - len(term.replace("...", ""))
        filled = term.replace("...", "".join(names[hidden - count :] if count > 0 else []))
        if len(filled) != ndim or (count and "..." not in term):
            raise ShapeError(
                f"einsum: {term!r} does not name the {ndim} dimensions of operand {place}"
            )
        spelled.append(filled)
    every = [letter for term in spelled for letter in term]
    if arrow:
        result = list(right.replace("...", "".join(names)))
    else:
        result = names + sorted({c for c in every if every.count(c) == 1 and c not in names})
    if unknown := set(result) - set(every):
        raise ShapeError(f"einsum: {equation!r} has {sorted(unknown)} only in the result")
    if len(set(result)) != len(result):
        raise ShapeError(f"einsum: {equation!r} names a dimension of the result twice")
    return tuple(spelled), "".join(result)


def _diagonal(x: Tensor, place: int, terms: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    """Take the diagonal where a letter stands twice in one term; return the terms that are left."""
    from tapegrad.tensors.creation import arange

    letters = terms[place]
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
            letters = letter + "".join(letters[d] for d in rest)
    return x, (*terms[:place], letters, *terms[place + 1 :])


class _Look(NamedTuple):
    """How an operand is seen as a stack of matrices; None where it is so already."""

    order: tuple[int, ...] | None
    whole: tuple[int, ...] | None
    shape: tuple[int, ...]


class _Step(NamedTuple):
    """A product of two operands, and the shape of what it stands for."""

    left: _Look
    right: _Look
    shape: tuple[int, ...]


class _Plan(NamedTuple):
    """Products one after the other, dimensions to sum over at last, and their order."""

    steps: list[_Step]
    gone: list[int]
    order: list[int] | None


def _seen(x: Tensor, look: _Look) -> Tensor:
    x = x if look.order is None else x.permute(look.order)
    x = x if look.whole is None else widened(x, look.whole)
    return in_shape(x, look.shape)


@lru_cache(maxsize=256)
def _planned(terms: tuple[str, ...], result: str, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
    """Plan the products of operands of these letters and shapes."""
    letters, shape = terms[0], shapes[0]
    steps = []
    for k in range(1, len(terms)):
        later = set(result).union(*terms[k + 1 :])
        step, letters = _contracted(letters, shape, terms[k], shapes[k], later)
        steps.append(step)
        shape = step.shape
    gone = [d for d, letter in enumerate(letters) if letter not in result]
    left = "".join(letter for letter in letters if letter in result)
    return _Plan(steps, gone, None if left == result else [left.index(each) for each in result])


def _contracted(
    first: str, a: tuple[int, ...], second: str, b: tuple[int, ...], later: set[str]
) -> tuple[_Step, str]:
    """Plan the product of two operands, summed over what nobody needs later."""
    sizes: dict[str, int] = {}
    for letter, size in (*zip(first, a, strict=True), *zip(second, b, strict=True)):
        known = sizes.get(letter, 1)
        if 1 not in (known, size) and known != size:
            raise ShapeError(f"einsum: {letter!r} stands for {known} and {size}")
        sizes[letter] = size if known == 1 else known
    both = [letter for letter in first if letter in second]
    batch = "".join(letter for letter in both if letter in later)
    summed = "".join(letter for letter in both if letter not in later)
    rows = "".join(letter for letter in first if letter not in second)
    columns = "".join(letter for letter in second if letter not in first)

    def look(letters: str, shape: tuple[int, ...], *groups: str) -> _Look:
        wanted = "".join(groups)
        whole = tuple(sizes[letter] for letter in wanted)
        order = tuple(letters.index(letter) for letter in wanted)
        return _Look(
            None if wanted == letters else order,
            None if whole == tuple(shape[d] for d in order) else whole,
            tuple(math.prod(sizes[letter] for letter in group) for group in groups),
        )

    stacked = [batch] if batch else []
    left = look(first, a, *stacked, rows, summed)
    right = look(second, b, *stacked, summed, columns)
    letters = batch + rows + columns
    return _Step(left, right, tuple(sizes[letter] for letter in letters)), letters


__all__ = ["bmm", "dot", "einsum", "linear", "matmul", "mm", "mv", "outer"]
