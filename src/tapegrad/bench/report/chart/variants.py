"""Forms of one operator that are drawn apart: `topk` of one number is not `topk` of ten.

Attributes tell them apart where cases of each size class differ in them alike; those that follow
from the shapes, as the groups of a depthwise convolution, do not. Where attributes do not, as in
broadcasting, it is the order of the cases in their size class, which is the same in all classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tapegrad.bench.report.figures import Row
from tapegrad.worker.case import Case, plain


def variants(
    rows: Iterable[Row], cases: Mapping[str, Case], *, own_shapes: bool
) -> dict[str, list[Row]]:
    """Return the rows of each form of each operator, by what tells it from the others.

    A user's own shapes of one form belong together, whatever their number.
    """
    by_operator: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_operator[row.op].append(row)
    found: dict[str, list[Row]] = {}
    for op, members in by_operator.items():
        keys = dict.fromkeys(row.case for row in members)
        titles = _titles(op, {key: cases[key] for key in keys}, own_shapes)
        for row in members:
            found.setdefault(titles[row.case], []).append(row)
    return found


def _titles(op: str, cases: Mapping[str, Case], own_shapes: bool) -> dict[str, str]:
    """Name the form of each case: the first by its operator and attributes alone."""
    telling = _telling(list(cases.values()))
    seen: defaultdict[tuple[str, str], list[Case]] = defaultdict(list)
    first: dict[tuple[str, int], str] = {}
    titles = {}
    for key, case in cases.items():
        shown = (f"{name}={plain(case.attrs[name])}" for name in telling if name in case.attrs)
        title = " ".join((op, *shown))
        alike = seen[title, case.size]
        number = 0 if own_shapes else len(alike)
        alike.append(case)
        titles[key] = first.setdefault((title, number), case.label if number else title)
    return titles


def _telling(cases: list[Case]) -> list[str]:
    """Return the attributes in which cases of each size class differ alike."""
    values: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in cases:
        for name, value in case.attrs.items():
            values[name][case.size].add(plain(value))
    varied = []
    for name, by_size in values.items():
        first, *others = by_size.values()
        follows = all(_is_a_side(case, name) for case in cases)
        if len(first) > 1 and not follows and all(other == first for other in others):
            varied.append(name)
    return varied


def _is_a_side(case: Case, name: str) -> bool:
    return any(case.attrs.get(name) in array.shape for array in case.inputs)
