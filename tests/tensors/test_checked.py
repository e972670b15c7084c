"""Functions that ask for tensors are functions in all else; numbers are read as they were meant."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad import nn
from tapegrad.errors import DTypeError, OptionError, ShapeError
from tapegrad.nn import functional as F
from tapegrad.tensors import Tensor
from tapegrad.tensors.arguments import checked
from tapegrad.tensors.fused import elementwise
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.torch_calls import made


def _scaled(input: Tensor, factor: float = 2.0) -> Tensor:
    """Return a product."""
    return input * factor


_scaled.__name__ = _scaled.__qualname__ = "scaled"
scaled: Any = checked(_scaled)


def test_a_checked_function_looks_like_the_function() -> None:
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "Return a product."
    assert list(inspect.signature(tt.cat).parameters) == ["tensors", "dim"]
    assert inspect.isroutine(scaled) and "scaled" in repr(scaled)
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    assert copy.deepcopy({"act": F.softplus})["act"] is F.softplus


@elementwise
def doubled(x: Any) -> Any:
    """Return 2 x."""
    return x * 2


class Activated(nn.Module):
    """Holds a function, as modules do."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act


def test_functions_are_copied_and_pickled_by_name() -> None:
    for home in (tg, tt, F):
        for name in getattr(home, "__all__", None) or dir(home):
            found = getattr(home, name)
            if callable(found):
                assert copy.copy(found) is copy.deepcopy(found) is found, name
                assert pickle.loads(pickle.dumps(found)) is found, name
    for act in (tg.exp, doubled):
        model = Activated(act)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert other is not model and other.act is act


def test_it_takes_arguments_by_place_and_by_name_and_as_a_method() -> None:
    x = tg.ones(2)

    class Holder(Tensor):
        twice = scaled

    assert scaled(x).tolist() == scaled(input=x, factor=2.0).tolist() == [2.0, 2.0]
    assert scaled(*[x], factor=3.0).tolist() == [3.0, 3.0]
    assert Holder([1.0]).twice(factor=4.0).tolist() == [4.0]
    assert Holder.twice is scaled


@pytest.mark.parametrize("call", [lambda: scaled(3.0), lambda: scaled(factor=1.0, input=[1.0])])
def test_what_is_no_tensor_is_named(call: Any) -> None:
    with pytest.raises(DTypeError, match="scaled: expected input to be a tensor, got"):
        call()


def test_a_wrong_call_is_pythons_error_and_others_are_explained() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        scaled()
    with pytest.raises(TypeError, match="unexpected keyword"):
        scaled(tg.ones(2), wrong=1)
    with pytest.raises(DTypeError):
        scaled(tg.ones(2), "text")

    @checked
    def interrupted(input: Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(tg.ones(1))

    @checked
    def divided(input: Tensor, by: int) -> float:
        return 1 / by

    with pytest.raises(OptionError, match="divided: division by zero") as caught:
        divided(tg.ones(1), 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_fused_function_is_called_alike_in_every_way() -> None:
    @elementwise
    def both(x: Any, a: Any = 2.0) -> Any:
        return x * a, x + a

    x, out = tg.ones(2), (tg.zeros(2), tg.zeros(2))
    ways = [both(x, 2.0), both(x), both(a=2.0, x=x), both(x, 2.0, out=out)]
    assert all([each.tolist() for each in way] == [[2.0, 2.0], [3.0, 3.0]] for way in ways)
    with pytest.raises(ShapeError):
        both()


LISTS = [
    *("[1.0, 2.5]", "[1, 2]", "[True, False]", "[[1.0], [2.0]]", "((1, 2), (3, 4))", "[(1,), [2]]"),
    *("[1, 2.5]", "[True, 2]", "[True, 2.0]", "[[1, 2.0], [3, 4]]", "[]", "[[], []]", "[[[]]]"),
    *("[1e300, -1e-300, nan, inf]", "[0.1, 1 / 3]", "[2**62, -(2**63)]", "3", "2.5", "True"),
    *("[[[1.0, 2.0], [3.0, 4.0]]]", "[tt.tensor(1.0), 2.0]", "[[True], [False]]", "range(3)"),
]


def test_lists_are_read_as_by_pytorch(torch: Torch) -> None:
    texts = [f"tt.tensor({each})" for each in LISTS]
    ours, theirs = made(tapegrad(), texts), torch(made, texts)
    for text, our, their in zip(texts, ours, theirs, strict=True):
        assert our[:2] == their[:2], text
        np.testing.assert_array_equal(our[2], their[2], err_msg=text)


@pytest.mark.parametrize("data", ["[[1.0], [2.0, 3.0]]", "[1.0, [2.0]]", "[[1.0], 2.0]", "[2**63]"])
def test_lists_that_are_no_arrays_are_refused(data: str) -> None:
    with pytest.raises((ShapeError, DTypeError, OptionError)):
        tg.tensor(eval(data))


def test_a_list_within_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises((ShapeError, DTypeError, RecursionError)):
        tg.tensor(endless)


@pytest.mark.parametrize("index", [[-1, 0, 2], [[1, -3], [0, 0]], []])
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_by_index_count_from_the_end(index: Any, dim: int) -> None:
    values = np.arange(12.0).reshape(3, 4)
    places = np.array(index, np.int64)
    given = tg.tensor(places, dtype="int64")
    found = tg.tensor(values)[given] if dim == 0 else tg.tensor(values)[:, given]
    np.testing.assert_array_equal(found.numpy(), values[places] if dim == 0 else values[:, places])
    assert given.tolist() == places.tolist()
    with pytest.raises(IndexError, match=r"x\[...\].*shape \(3, 4\)"):
        _ = tg.tensor(values)[tg.tensor([-5])]


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (5, 2, 3), (2, 0, 3), (33000,), (300, 200)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_variances_are_those_of_numpy(shape: tuple[int, ...], order: Any) -> None:
    values = np.asarray(np.random.default_rng(0).normal(1e3, 1.0, shape), order=order)
    for dims in ([], [0], [len(shape) - 1], list(range(0, len(shape), 2))):
        axes = tuple(d for d in dims if 0 <= d < len(shape)) or tuple(range(len(shape)))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of nothing
            want = np.var(values, axis=axes, ddof=0)
        found = tg.from_numpy(values).var(axes or None, unbiased=False)
        np.testing.assert_allclose(found.numpy(), want, 1e-10)
