"""Statistics: what must hold for any blocks, and the error rates on invented measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapegrad.bench import statistics
from tapegrad.bench.results import Block
from tapegrad.bench.statistics import Ratio, discoveries, estimate, ratio
from tapegrad.errors import OptionError

from .simulation import simulate

Grid = dict[tuple[int, int], float]

MOMENTS = st.tuples(st.integers(0, 4), st.integers(0, 4))
SECONDS = st.floats(0.5, 2.0).map(lambda value: round(value, 3))
GRIDS = st.dictionaries(MOMENTS, SECONDS, min_size=1, max_size=12)
close = partial(pytest.approx, rel=1e-6, abs=1e-9)


def cell(grid: Grid, framework: str = "ours", controls: float | None = None) -> list[Block]:
    return [
        Block(
            "case",
            framework,
            "forward",
            process,
            round_,
            [seconds * 0.9, seconds, seconds * 1.5],
            controls={} if controls is None else {"copy": controls},
        )
        for (process, round_), seconds in grid.items()
    ]


def full(value: Callable[[int, int], float], processes: int = 3, rounds: int = 3) -> Grid:
    return {(p, r): value(p, r) for p in range(processes) for r in range(rounds)}


def wobble(process: int, round_: int) -> float:
    """A deterministic disturbance of up to 2 %."""
    return 1 + 0.02 * math.sin(12.9898 * process + 78.233 * round_)


def numbers(found: Ratio) -> list[float]:
    """Return what is approximate; -1 for what there is none of."""
    fields = (found.value, found.low, found.high, found.p)
    return [-1.0 if field is None else field for field in fields]


# What holds for any blocks


@given(GRIDS, GRIDS, st.booleans(), st.sampled_from([1e-9, 1e-3, 7.0]))
def test_a_unit_of_time_changes_no_ratio(a: Grid, b: Grid, paired: bool, unit: float) -> None:
    scaled = [{moment: unit * s for moment, s in grid.items()} for grid in (a, b)]
    before = ratio(cell(a), cell(b), paired=paired)
    after = ratio(cell(scaled[0]), cell(scaled[1]), paired=paired)
    assert numbers(after) == close(numbers(before))


@given(GRIDS, GRIDS, st.booleans())
def test_exchanging_sides_inverts_the_ratio(a: Grid, b: Grid, paired: bool) -> None:
    one, other = ratio(cell(a), cell(b), paired=paired), ratio(cell(b), cell(a), paired=paired)
    assert one.value * other.value == pytest.approx(1)
    assert numbers(one)[3] == close(numbers(other)[3])
    opposite = {"faster": "slower", "slower": "faster"}
    assert opposite.get(one.verdict, one.verdict) == other.verdict
    if one.low is not None and other.high is not None:
        assert one.low * other.high == pytest.approx(1)


@given(GRIDS, GRIDS, st.booleans(), st.randoms())
def test_the_order_of_blocks_is_irrelevant(a: Grid, b: Grid, paired: bool, random: Random) -> None:
    theirs, ours = cell(a), cell(b)
    shuffled = theirs.copy()
    random.shuffle(shuffled)
    assert ratio(theirs, ours, paired=paired) == ratio(shuffled, ours[::-1], paired=paired)
    assert estimate(theirs) == estimate(shuffled)


@given(GRIDS, st.booleans())
def test_a_cell_equals_itself(grid: Grid, paired: bool) -> None:
    found = ratio(cell(grid), cell(grid), paired=paired)
    assert found.value == 1
    assert found.verdict in ("same", "undecided")
    assert found.p in (None, 1)


@given(GRIDS, GRIDS, st.booleans())
def test_interval_p_and_verdict_agree(a: Grid, b: Grid, paired: bool) -> None:
    found = ratio(cell(a), cell(b), paired=paired, margin=0.03)
    if found.low is None or found.high is None or found.p is None:
        assert found.verdict == "undecided"
        return
    assert found.low <= found.value <= found.high
    if not math.isclose(found.p, 0.05, rel_tol=1e-6):
        assert (found.p < 0.05) == (not found.low <= 1 <= found.high)
    if found.verdict == "slower":
        assert found.low > 1
        assert found.value > 1.03
    if found.verdict == "same":
        assert found.low >= 1 / 1.0301
        assert found.high <= 1.0301


@given(GRIDS, GRIDS)
def test_pairs_are_blocks_of_one_process_and_round(a: Grid, b: Grid) -> None:
    found, common = ratio(cell(a), cell(b)), a.keys() & b.keys()
    assert found.paired == bool(common)
    if common:
        alone = ratio(cell({m: a[m] for m in common}), cell({m: b[m] for m in common}))
        assert numbers(found) == close(numbers(alone))
        assert (found.blocks, found.processes) == (len(common), len({p for p, _ in common}))


@given(GRIDS)
def test_an_estimate_lies_among_its_blocks(grid: Grid) -> None:
    found = estimate(cell(grid))
    assert min(grid.values()) <= found.time * (1 + 1e-9)
    assert found.time <= max(grid.values()) * (1 + 1e-9)
    assert (found.blocks, found.samples) == (len(grid), 3 * len(grid))
    assert (found.low is None) == (len(grid) == 1)


# What the parts do


def test_the_variance_is_that_of_the_nested_bootstrap() -> None:
    rng = np.random.default_rng(0)
    p, r, draws = 4, 5, 40_000
    values = 0.02 * rng.standard_normal((p, 1)) + 0.02 * rng.uniform(-1, 1, (p, r))
    processes = rng.integers(p, size=(draws, p, 1))
    drawn = values[processes, rng.integers(r, size=(draws, p, r))].mean(axis=(1, 2))
    between, within = (v for v, _ in statistics._level(list(values)).parts)
    assert between * (p - 1) / p + within == pytest.approx(np.var(drawn), rel=0.03)


def test_a_disturbed_block_decides_nothing() -> None:
    calm = full(wobble, 3, 5)
    disturbed = calm | {(1, 2): 3.0}
    assert estimate(cell(disturbed)).time == pytest.approx(estimate(cell(calm)).time, rel=0.01)
    ours = cell(full(lambda p, r: wobble(r, p), 3, 5))
    assert ratio(cell(disturbed), ours).value == pytest.approx(1, abs=0.02)


def test_pairing_cancels_what_the_machine_does() -> None:
    ours = full(lambda p, r: 1.0 + 0.5 * r)
    theirs = full(lambda p, r: 1.1 * (1.0 + 0.5 * r) * wobble(p, r))
    assert ratio(cell(theirs), cell(ours)).verdict == "slower"
    assert ratio(cell(theirs), cell(ours), paired=False).verdict == "undecided"


def test_a_difference_within_the_margin_is_same_however_sure() -> None:
    ours, theirs = full(wobble), full(lambda p, r: 1.01 * wobble(p, r) + 1e-4 * p)
    found = ratio(cell(theirs), cell(ours))
    assert found.p is not None
    assert found.p < 0.05
    assert found.verdict == "same"
    assert ratio(cell(theirs), cell(ours), margin=0.001).verdict == "slower"


@pytest.mark.parametrize("ours", [{(0, 0): 1.0}, full(lambda p, r: 1.0)])
@pytest.mark.parametrize("paired", [True, False])
def test_one_block_has_no_interval(ours: Grid, paired: bool) -> None:
    found = ratio(cell({(0, 0): 9.0}), cell(ours), paired=paired)
    assert found.value == pytest.approx(9)
    assert found.blocks == 1
    assert (found.low, found.high, found.p, found.verdict) == (None, None, None, "undecided")


def test_one_process_shows_large_differences_only() -> None:
    ours = full(wobble, 1, 10)
    half, little = ({moment: f * s for moment, s in ours.items()} for f in (1.5, 1.04))
    assert ratio(cell(half), cell(ours)).verdict == "slower"
    assert ratio(cell(little), cell(ours)).verdict == "undecided"


def test_a_slow_machine_is_told_from_a_slow_operator() -> None:
    ours, theirs = full(wobble, 3, 5), full(lambda p, r: 1.2 * wobble(r, p), 3, 5)
    blame = {"paired": False, "controls": True}
    machine = ratio(cell(theirs, controls=1.2), cell(ours, controls=1.0), **blame)
    operator = ratio(cell(theirs, controls=1.0), cell(ours, controls=1.0), **blame)
    assert (machine.verdict, operator.verdict) == ("undecided", "slower")
    assert machine.machine == pytest.approx(1.2)
    assert operator.machine == pytest.approx(1.0)


def test_controls_that_explain_the_noise_are_divided_by() -> None:
    def blocks(factor: float, phase: int) -> list[Block]:
        states = full(lambda p, r: 1 + 0.3 * math.sin(p + 2 * r + phase))
        found = cell({m: factor * s * wobble(*m) for m, s in states.items()})
        kernels = [{"copy": 2 * states[b.process, b.round], "loop": 1.0} for b in found]
        return [msgspec.structs.replace(b, controls=k) for b, k in zip(found, kernels, strict=True)]

    found = ratio(blocks(1.5, 1), blocks(1.0, 0), paired=False, controls=True)
    assert found.normalised
    assert not ratio(blocks(1.5, 1), blocks(1.0, 0), paired=False).normalised


def test_blocks_without_controls_are_compared_as_measured() -> None:
    ours, theirs = cell(full(wobble)), cell(full(wobble), controls=1.0)
    assert ratio(theirs, ours, paired=False, controls=True).machine is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate([]), "at least one block"),
        (lambda: estimate(cell({(0, 0): math.nan})), "positive finite"),
        (lambda: estimate(cell({(0, 0): 0.0})), "positive finite"),
        (lambda: estimate([Block("c", "f", "forward", 0, 0, [])]), "positive finite"),
        (lambda: estimate(cell({(0, 0): 1.0}) * 2), "one block for each"),
        (lambda: estimate(cell({(0, 0): 1.0}, "a") + cell({(0, 1): 1.0}, "b")), "of one case"),
        (lambda: ratio(cell({(0, 0): 1.0}), []), "at least one block"),
        (lambda: ratio(cell({(0, 0): 1.0}), cell({(0, 0): 1.0}), controls=True), "paired=False"),
        (lambda: ratio(cell({(0, 0): 1.0}), cell({(0, 0): 1.0}), margin=-1), "margin"),
        (lambda: ratio(cell({(0, 0): 1.0}), cell({(0, 0): 1.0}), level=95), "level"),
        (lambda: discoveries([0.1, math.nan]), "from 0 to 1"),
        (lambda: discoveries([0.1], rate=5), "rate"),
    ],
)
def test_nonsense_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        call()


def test_few_of_many_discoveries_are_false() -> None:
    rng = np.random.default_rng(0)
    real, null = 1e-6 * rng.random(50), rng.random(950)
    found = discoveries([*real, *null, None])
    assert all(found[:50])
    assert sum(found[50:]) <= 8
    assert discoveries([]) == []


# How often it is wrong. 400 trials: a rate of 5 % has a standard deviation of 1.1 %.

DESIGNS = [(3, 3), (3, 5), (5, 5)]


@pytest.mark.parametrize(("processes", "rounds"), DESIGNS)
def test_equals_are_seldom_told_apart(processes: int, rounds: int) -> None:
    rates = simulate(processes, rounds, trials=400)
    assert rates.faster + rates.slower <= 0.05
    assert rates.coverage >= 0.92


@pytest.mark.parametrize(
    ("design", "slowdown", "power"),
    [((3, 3), 0.1, 0.75), ((3, 5), 0.1, 0.8), ((5, 5), 0.05, 0.7), ((5, 5), 0.1, 0.97)]
    + [(design, 0.5, 0.98) for design in DESIGNS],
)
def test_slowdowns_are_found(design: tuple[int, int], slowdown: float, power: float) -> None:
    rates = simulate(*design, slowdown, trials=200)
    assert rates.slower >= power
    assert rates.faster + rates.same <= 0.02


@pytest.mark.parametrize("feels", [0.0, 0.5, 1.0])
def test_a_slower_machine_raises_no_alarm(feels: float) -> None:
    rates = simulate(
        5, 5, machine=0.1, feels=feels, paired=False, controls=True, trials=300, seed=1
    )
    assert rates.faster + rates.slower <= 0.05
    assert rates.coverage >= 0.92
