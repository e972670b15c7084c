"""Which round of a loop spoils its results: the rounds of its body, run one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tapegrad import _core
from tapegrad._core import Var
from tapegrad.scalar.program import compile


class Spoilt(NamedTuple):
    """The round in which a result of a loop is no longer finite."""

    outputs: list[Var]
    """Results of the round that are not, as Vars of a graph of the body."""
    inputs: list[Var]
    """What the body takes."""
    point: list[float]
    """The values it takes in that round."""
    step: int
    """The step of the scan; the first one of several, where a round has several."""
    is_block: bool
    """Whether a round has several steps."""


def spoilt_round(var: Var, values: Mapping[int, float], dtype: str) -> Spoilt | None:
    """Find the round that spoils a result of a loop: its own, or the first that spoils a carry."""
    parts = _core.loop_parts(var)
    outputs, _, inputs = parts["body"]
    program = compile(outputs, inputs=inputs, dtype=dtype)
    count, width = len(parts["carried"]), len(outputs) - len(parts["carried"])
    carried, shared, stepped = (
        [values[each.index] for each in parts[kind]] for kind in ("carried", "shared", "stepped")
    )
    result = var.index - var.operands[0].index - 1
    last, own = divmod(result - count, width) if result >= count else (parts["count"] - 1, result)
    row = 0 if parts["start"] is None else int(values[parts["start"].index])
    for place in range(last + 1):
        point = carried + shared + _piece(stepped, place, parts["count"]) + _row(parts, row)
        found = program(point).tolist()
        spoilt = [
            k for k in range(count) if math.isfinite(carried[k]) and not math.isfinite(found[k])
        ]
        if not spoilt and place == last and result >= count:
            spoilt = [count + own]
        if spoilt:
            step = parts["first_step"] + place * parts["steps"]
            guilty = [outputs[k] for k in spoilt]
            return Spoilt(guilty, inputs, point, step, parts["steps"] > 1)
        carried = found[:count]
        row += parts["direction"]
    return None


def _piece(stepped: list[float], place: int, count: int) -> list[float]:
    """Return the operands of one round."""
    width = len(stepped) // count
    return stepped[place * width : (place + 1) * width]


def _row(parts: Mapping[str, Any], row: int) -> list[float]:
    """Return the numbers of one round."""
    columns = parts["columns"]
    numbers: list[float] = parts["table"][row * columns : (row + 1) * columns]
    return numbers
