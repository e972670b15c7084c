"""Programs over tensors: any layout, any size, results in the memory of operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad import scalar
from tapegrad.tensors.base import wrap
from tests.scalar.reference import RECORDS

Function = Callable[..., Any]

BINARY = [record.name for record in RECORDS if record.arity == 2]

#: Few elements, which are copied; around where that ends, around vectors, and several blocks.
SIZES = [0, 1, 7, 16, 17, 500, 1023, 1024, 1025, 1039, 1040, 1041, 1151, 1537, 5000, 70_001]


def tensor_of(array: Any) -> tg.Tensor:
    """Return a tensor in the memory of an array."""
    return wrap(array, tg.device("cpu"))


def numbers(seed: int, *shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(dtype)


def mixed(lib: Any, a: Any, b: Any, c: Any) -> Any:
    """Return results that read operands early and late, and some that are one instruction."""
    early = a * b + c
    late = lib.exp(-early) * a - c / b
    return early, late, lib.sqrt(b), early * late + a


FUSED = tg.elementwise(lambda a, b, c: mixed(tg, a, b, c))


# ---- layouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_elements_gives_numpys_values(size: int, dtype: str) -> None:
    arrays = [numbers(k, size, dtype=dtype) for k in range(3)]
    found = FUSED(*map(tensor_of, arrays))
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for ours, theirs in zip(found, mixed(np, *arrays), strict=True):
        assert ours.shape == (size,)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(3, 5), (40, 50), (7, 303), (2, 3, 400)])
def test_any_layout_gives_the_bits_of_the_dense_one(shape: tuple[int, ...]) -> None:
    dense = [numbers(k, *shape, dtype="float32") for k in range(3)]
    wide = [np.repeat(each, 2, axis=-1) for each in dense]
    expected = [each.numpy() for each in FUSED(*map(tensor_of, dense))]
    layouts: list[Callable[[int], Any]] = [
        lambda k: dense[k],
        lambda k: wide[k][..., ::2],
        lambda k: np.asfortranarray(dense[k]),
        lambda k: np.ascontiguousarray(dense[k][..., ::-1])[..., ::-1],
        lambda k: np.frombuffer(b"x" + dense[k].tobytes(), "float32", offset=1).reshape(shape),
    ]
    for ways in itertools.product(layouts, repeat=3):
        operands = [tensor_of(way(k)) for k, way in enumerate(ways)]
        for ours, theirs in zip(FUSED(*operands), expected, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)


def test_operands_are_broadcast_and_converted() -> None:
    a, b = numbers(0, 60, 50, dtype="float32"), np.arange(1, 51, dtype="int64")
    c = numbers(1, 60, 1, dtype="float32")
    for operands in [(a, b, c), (b, c, a), (c, a, b)]:
        found = FUSED(*map(tensor_of, operands))
        for ours, theirs in zip(found, mixed(np, *operands), strict=True):
            expected = np.broadcast_to(theirs, (60, 50))
            np.testing.assert_allclose(ours.numpy(), expected, rtol=2e-5, atol=1e-5)
    found = FUSED(tensor_of(a), 2.0, tensor_of(np.full((), 0.5, "float32")))
    for ours, theirs in zip(found, mixed(np, a, np.full_like(a, 2), 0.5), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


def test_threads_do_not_change_the_bits() -> None:
    operands = [tensor_of(numbers(k, 200_003, dtype="float32")) for k in range(3)]
    before = tg.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            tg.set_num_threads(threads)
            found.append([each.numpy() for each in FUSED(*operands)])
    finally:
        tg.set_num_threads(before)
    for other in found[1:]:
        for first, second in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(first, second)


# ---- numbers ------------------------------------------------------------------------------------


def check_numbers(fused: Any, operands: int) -> None:
    """Compare numbers in place of any operands with arrays full of them, bit by bit."""
    arrays = [numbers(k, 1100, dtype="float32") for k in range(operands)]
    for chosen in itertools.product([False, True], repeat=operands):
        if all(chosen):
            continue
        full = [np.full_like(x, x[0]) if one else x for x, one in zip(arrays, chosen, strict=True)]
        mixed = [
            float(x[0]) if one else tensor_of(x) for x, one in zip(arrays, chosen, strict=True)
        ]
        expected = fused(*map(tensor_of, full)).numpy()
        np.testing.assert_array_equal(fused(*mixed).numpy(), expected, str(chosen))


@pytest.mark.parametrize(("plain", "pairs"), [(p, q) for p in range(4) for q in range(4) if p + q])
def test_a_number_in_a_sum_is_an_array_full_of_it(plain: int, pairs: int) -> None:
    names = [f"x{k}" for k in range(plain + 2 * pairs)]
    terms = names[:plain] + [f"{a} * {b}" for a, b in zip(*[iter(names[plain:])] * 2, strict=True)]
    text = f"lambda {', '.join(names)}: tg.sum([{', '.join(terms)}])"
    check_numbers(tg.elementwise(eval(text, {"tg": tg})), len(names))


@pytest.mark.parametrize("name", BINARY)
def test_a_number_in_an_operation_is_an_array_full_of_it(name: str) -> None:
    @tg.elementwise
    def operation(a: Any, b: Any) -> Any:
        return getattr(scalar, name)(a, b)

    check_numbers(operation, 2)


# ---- in place -----------------------------------------------------------------------------------


def check_in_place(function: Function, arrays: Sequence[Any], places: Sequence[int]) -> None:
    """Compare results that lie in operands (by their number, -1 for new memory) with others."""
    fused = tg.elementwise(function)
    operands = [array.copy() for array in arrays]
    expected = fused(*map(tensor_of, operands))
    expected = expected if isinstance(expected, tuple) else (expected,)
    outs = [np.empty_like(arrays[0]) if place < 0 else operands[place] for place in places]
    fused(*map(tensor_of, operands), out=[tensor_of(out) for out in outs])
    for ours, theirs in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


#: Functions of three operands.
IN_PLACE: dict[str, Function] = {
    "early and late": lambda a, b, c: mixed(tg, a, b, c)[:3],
    "exchange": lambda a, b, c: (b, c, a),
    "one of them twice": lambda a, b, c: (a + b, a + b, c),
    "a number": lambda a, b, c: (c - a, 0 * a + 2.5, b),
    "needed later": lambda a, b, c: (a + 1, a * b, (a + b) * tg.exp(c)),
    "rows of results": lambda a, b, c: tuple(tg.softmax([a, b, c])),
    "long rows of results": lambda a, b, c: tuple(tg.softmax([a, b, c, a * b])[:3]),
    "pairs of results": lambda a, b, c: (tg.sin(a), tg.cos(a), tg.sin(b) + tg.cos(b) * c),
}


@pytest.mark.parametrize("size", [5, 2003])
@pytest.mark.parametrize("function", IN_PLACE.values(), ids=IN_PLACE)
def test_results_may_lie_in_the_memory_of_operands(function: Function, size: int) -> None:
    arrays = [numbers(k, size) for k in range(3)]
    for places in itertools.product([-1, 0, 1, 2], repeat=3):
        used = [place for place in places if place >= 0]
        if len(set(used)) == len(used):
            check_in_place(function, arrays, places)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Function, list[int]]:
    """Draw a function of four operands and where its results go."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from("+-*sx"), st.integers(0, 30), st.integers(0, 30)),
            max_size=12,
        )
    )
    results = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    places = draw(st.permutations([0, 1, 2, 3]))[: len(results)]
    kept = draw(st.lists(st.booleans(), min_size=4, max_size=4))

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        values = [a, b, c, d]
        for op, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if op == "s":
                values.append(tg.sin(x))
            elif op == "x":
                values += tg.softmax([x, y])
            else:
                values.append({"+": x + y, "-": x - y, "*": x * y}[op])
        return tuple(values[i % len(values)] for i in results)

    return function, [place if keep else -1 for place, keep in zip(places, kept, strict=False)]


@settings(deadline=None, max_examples=100)
@given(programs())
def test_random_programs_may_work_in_place(program: tuple[Function, list[int]]) -> None:
    function, places = program
    check_in_place(function, [numbers(k, 1101) for k in range(4)], places)


@pytest.mark.parametrize("shift", [1, -1, 16, 100])
def test_results_may_lie_beside_operands(shift: int) -> None:
    memory = numbers(0, 3000)
    a, out = memory[200:2200], memory[200 + shift : 2200 + shift]
    b, c = numbers(1, 2000), numbers(2, 2000)
    expected = [each.numpy() for each in FUSED(*map(tensor_of, (a, b, c)))]
    others = [np.empty(2000) for _ in range(3)]
    FUSED(*map(tensor_of, (a, b, c)), out=[tensor_of(each) for each in (out, *others)])
    for ours, theirs in zip((out, *others), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_results_in_the_same_memory_leave_the_last_one() -> None:
    arrays = [numbers(k, 2003) for k in range(3)]
    expected = FUSED(*map(tensor_of, arrays))[3].numpy()
    out = tensor_of(np.empty(2003))
    FUSED(*map(tensor_of, arrays), out=[out] * 4)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_a_program_with_a_loop_runs_in_slots() -> None:
    @tg.elementwise
    def root(a: Any) -> Any:
        return tg.scan(lambda x, _: (0.5 * (x + a / x), None), a, length=8)[0]

    array = numbers(0, 3000)
    out = array.copy()
    root(tensor_of(out), out=tensor_of(out))
    np.testing.assert_allclose(out, np.sqrt(array), rtol=1e-12)
