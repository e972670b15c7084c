"""Prints docs/ops.md, the page of all scalar operations: `python -m tapegrad.opsdoc`."""

from __future__ import annotations

from typing import Any

from tapegrad import _core

HEADER = """# Scalar operations

Written by `python -m tapegrad.opsdoc` from the op table, `core/scalar/ops.def`.

All of them take Vars, numbers and arrays of either. The error bound is in units in the last place
(ULP), for float64 and float32, over the whole range; 0 means correctly rounded. `y` is the result.

Where a derivative does not exist: `abs` and `relu` have slope 0 at 0; `maximum` and `minimum` give
each side half at a tie, `max` and `min` share it equally among all that tie; `sign`, `floor`,
`ceil`, `trunc`, `round`, `floor_divide` and the comparisons have slope 0; `hypot` and `atan2` have
slope 0 at the origin. The branch that `where` does not take gets the adjoint 0, even where its own
derivative is infinite or NaN; products below a `where` are `masked_mul`, in derivatives of higher
order also `masked_both`. The same holds for a `where` in a step of `scan`. Where `max`, `min`,
`maximum` or `minimum` meet NaN the value is NaN and the slope 0; the slope of `relu` is 1 there.

Far out, where `tanh`, `sigmoid`, `softplus`, `atan`, `erf`, `erfc` and `gelu` are flat or straight,
their derivatives of any order are finite, in forward and reverse mode. First derivatives of `tanh`
and `sigmoid` keep their relative accuracy however small they are. In derivatives of `pow` a factor
of 0 wins against the logarithm of 0: at `p = 0` those of `p**q` that have a finite limit are 0 or
that limit.

| function | value | derivatives | error bound |
|---|---|---|---|
"""

NARY = """
| of a sequence | value | derivatives |
|---|---|---|
| `sum(xs)` | sum, in a fixed order: partial sums of 16 | 1 |
| `dot(xs, ys)` | sum of products | `ys`, `xs` |
| `prod(xs)` | product | product of the others, right also at zeros |
| `max(xs)`, `min(xs)` | largest, smallest | 1 for the one that is taken, shared equally at ties |
| `logsumexp(xs)` | log of the sum of exponentials, without overflow | `softmax(xs)` |
| `softmax(xs)` | list of exp(x) divided by their sum, without overflow | `y * (g - dot(y, g))` |
| `where(c, a, b)` | `a` where `c` is not 0, else `b` | to the branch that is taken |
"""


def row(op: dict[str, Any]) -> str:
    """Return one line of the table."""
    arguments = ", ".join("ab"[: op["arity"]])
    derivatives = ", ".join(f"`{text}`" for text in op["derivatives"])
    bound = f"{op['ulp']} ULP" if op["ulp"] else "0"
    return f"| `{op['name']}({arguments})` | {op['doc']} | {derivatives} | {bound} |"


def page() -> str:
    """Return the whole page as Markdown."""
    return HEADER + "\n".join(row(op) for op in _core.op_table()) + "\n" + NARY


if __name__ == "__main__":
    print(page(), end="")
