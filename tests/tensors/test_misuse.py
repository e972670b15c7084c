"""Whatever is given in the place of a tensor: an error of tapegrad's own, or the right result."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.tensors as tt
from tapegrad import nn
from tapegrad.errors import DTypeError, TapegradError
from tapegrad.tensors.arguments import wants_tensor
from tests.oracles.torch import assert_equal
from tests.tensors.cases import PUBLIC, Case, cases

#: What is no tensor and becomes none.
NO_TENSORS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "text",
    "object": object,
    "list": lambda: [1.0, 2.0],
    "complex": lambda: 1j,
    "array": lambda: np.ones(3, np.float32),
    "Var": lambda: tg.Graph().input("v"),
    "dict": dict,
    "function": lambda: len,
}
#: Other tensors than the operation expects; the reference device says what is right.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "bool": lambda x: x > 0,
    "int64": lambda x: x.long(),
    "float64": lambda x: x.double(),
    "a dimension more": lambda x: x.unsqueeze(0),
    "a dimension less": lambda x: x[0] if x.ndim and len(x) else x,
    "no dimension": lambda x: x.sum(),
    "no elements": lambda x: x.reshape(-1)[:0],
    "another size": lambda x: tg.cat([x, x], -1) if x.ndim else tg.stack([x] * 5),
}


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return results as arrays, or the error if it is one that users may see."""
    try:
        found = call(*arguments)
    except (TapegradError, IndexError) as error:  # a place that is not there is Python's own
        assert len(str(error)) > 10, error
        return error
    outs = found if isinstance(found, (tuple, list)) else (found,)
    return [out.detach().numpy() if isinstance(out, tg.Tensor) else out for out in outs]


def _replaced(case: Case, place: int, device: str) -> tuple[list[Any], Any]:
    tensors = case.tensors(device)
    return tensors, tensors[place].detach()


def _operands(name: str) -> Iterator[tuple[Case, int]]:
    for case in cases(PUBLIC[name], "float32"):
        for place in range(len(case.sample.operands)):
            yield case, place


def _parameter(case: Case, place: int) -> inspect.Parameter:
    """Return the parameter of the function that takes an operand."""
    marks = [object() for _ in case.sample.operands]
    placed, options = case.arguments(marks)
    bound = inspect.signature(case.function).bind(*placed, **options)
    for key, value in bound.arguments.items():
        listed = (
            [*value, *(value[0] if value and isinstance(value[0], list) else [])]
            if isinstance(value, (tuple, list))
            else [value]
        )
        if any(each is marks[place] for each in listed):
            return bound.signature.parameters[key]
    raise AssertionError(f"{case.op.name}: no parameter takes operand {place}")


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_no_tensor_is_named(name: str) -> None:
    for case, place in _operands(name):
        parameter = _parameter(case, place)
        for kind, make in NO_TENSORS.items():
            tensors, _ = _replaced(case, place, "cpu")
            tensors[place] = make()
            found = _outcome(case, tensors)
            if kind == "None" and (
                parameter.default is None or "None" in str(parameter.annotation)
            ):
                continue
            assert isinstance(found, TapegradError), f"{name}: {kind} as operand {place}: {found}"
            if wants_tensor(parameter):
                assert isinstance(found, DTypeError), f"{name}: {kind}: {found!r}"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_number_is_a_tensor_without_dimensions_or_refused(name: str) -> None:
    for case, place in _operands(name):
        tensors, _ = _replaced(case, place, "cpu")
        tensors[place] = 3.0
        found = _outcome(case, tensors)
        if not isinstance(found, TapegradError):
            tensors[place] = tg.tensor(3.0)
            assert_equal(found, _outcome(case, tensors), 1e-6, f"{name} {place}")


@pytest.mark.parametrize("name", PUBLIC)
def test_tensors_of_two_devices_do_not_meet(name: str) -> None:
    for case, place in _operands(name):
        tensors, one = _replaced(case, place, "cpu")
        tensors[place] = one.to("reference")
        found = _outcome(case, tensors)
        assert isinstance(found, TapegradError) or len(tensors) == 1, name


@pytest.mark.filterwarnings("ignore:.*which broadcasts")
@pytest.mark.parametrize("name", PUBLIC)
def test_other_types_and_shapes_give_what_the_reference_gives(name: str) -> None:
    for case, place in _operands(name):
        for kind, make in OTHERS.items():
            found = []
            for device in ("cpu", "reference"):
                tensors, one = _replaced(case, place, device)
                tensors[place] = make(one)
                found.append(_outcome(case, tensors))
            ours, theirs = found
            text = f"{name}: {kind} as operand {place}"
            if isinstance(ours, Exception) or isinstance(theirs, Exception):
                assert isinstance(theirs, Exception) and isinstance(ours, Exception), (
                    f"{text}: {found}"
                )
            else:
                assert_equal(ours, theirs, 1e-5, text)


# ---- methods, operators, nn.functional, and what makes tensors --------------------------------

OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, operator.pow, operator.matmul, divmod, operator.lt, operator.le, operator.gt),
    *(operator.ge, operator.and_, operator.or_, operator.xor),
)


@pytest.mark.parametrize("kind", NO_TENSORS)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators_refuse_what_is_no_number(op: Any, kind: str) -> None:
    x = tg.ones(3) if op not in (operator.and_, operator.or_, operator.xor) else tg.ones(3) > 0
    with pytest.raises(TapegradError):
        op(x, NO_TENSORS[kind]())
    if (op, kind) != (operator.mod, "text"):  # which fills in a text
        with pytest.raises(TapegradError):
            op(NO_TENSORS[kind](), x)


def _methods() -> Iterator[str]:
    for name, member in inspect.getmembers(tg.Tensor, inspect.isroutine):
        if not name.startswith(("_", "requires")) and len(inspect.signature(member).parameters) > 1:
            yield name


@pytest.mark.parametrize("name", list(_methods()))
def test_methods_refuse_what_they_cannot_use(name: str) -> None:
    x = tg.ones(3, 3)
    method = getattr(x, name)
    needed = [
        each
        for each in inspect.signature(method).parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    for kind, make in NO_TENSORS.items():
        count = max(len(needed), 1)
        try:
            found = method(*[make() for _ in range(count)])
        except (TapegradError, IndexError):
            continue
        except TypeError as error:  # the call itself, as Python says it
            assert f"{name}()" in str(error) and "argument" in str(error), (
                f"{name}: {kind}: {error}"
            )
            continue
        assert kind in ("None", "list", "array", "function", "object", "text"), f"{name}: {found}"


#: Arguments that methods can use, by name, where others are on test.
USEFUL: dict[str, Any] = {
    **dict.fromkeys(("other", "src", "mat2", "exponent"), tg.ones(3, 3)),
    **dict.fromkeys(("vec", "vec2"), tg.ones(3)),
    **dict.fromkeys(("mask", "condition"), tg.ones(3, 3) > 0),
    **dict.fromkeys(("dim", "dim0", "start", "source"), 0),
    **dict.fromkeys(("dim1", "split_size", "chunks", "length", "repeats", "k", "shifts"), 1),
    **dict.fromkeys(("destination", "value", "fill_value", "min", "max"), 1),
    **dict.fromkeys(("size", "sizes", "data"), (3,)),
    "dtype": "float64",
    "hook": len,
    "index": tg.zeros(3, 3, dtype="int64"),
}
OPTIONS: tuple[Any, ...] = ("text", None, [1, 2], {}, 10**30, 1.5, len, object())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(_methods()))
def test_methods_take_an_option_or_refuse_it_with_an_error_of_ours(name: str) -> None:
    parameters = [
        each
        for each in list(inspect.signature(getattr(tg.Tensor, name)).parameters.values())[1:]
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    needed = [each.name for each in parameters if each.default is each.empty]
    for each in parameters:
        for value in OPTIONS:
            given = {key: USEFUL.get(key) for key in needed} | {each.name: value}
            with suppress(TapegradError, IndexError):
                getattr(tg.ones(3, 3), name)(**given)


@pytest.mark.parametrize("kind", NO_TENSORS)
@pytest.mark.parametrize("name", nn.functional.__all__)
def test_functional_refuses_what_is_no_tensor(name: str, kind: str) -> None:
    function = getattr(nn.functional, name)
    parameters = inspect.signature(function).parameters.values()
    wanted = [each for each in parameters if wants_tensor(each) and each.default is each.empty]
    good = {"embedding": tg.arange(3), "one_hot": tg.arange(3)}.get(name, tg.ones(3, 3))
    others = {"normalized_shape": (3,), "pad": (1, 1), "kernel_size": 1, "output_size": 1}
    for bad in wanted:
        if kind == "None" and "None" in str(bad.annotation):
            continue
        given = {each.name: good for each in wanted} | {bad.name: NO_TENSORS[kind]()}
        given |= {
            each.name: others.get(each.name)
            for each in parameters
            if each.default is each.empty and each.name not in given
        }
        with pytest.raises(DTypeError):
            function(**given)


MADE = (
    *(
        "tensor('text')",
        "tensor(None)",
        "tensor(object())",
        "tensor([1, 'a'])",
        "tensor([[1], [1, 2]])",
    ),
    *("tensor(1j)", "as_tensor('text')", "as_tensor({})", "from_numpy([1.0])", "from_numpy(None)"),
    *(
        "from_dlpack(3)",
        "zeros('a')",
        "zeros(2, -1)",
        "zeros(1.5)",
        "ones(None)",
        "empty([1, 'a'])",
    ),
    *(
        "full('a', 1)",
        "full(2, 'a')",
        "full(None, 1)",
        "full((2,), None)",
        "zeros(2, dtype='text')",
    ),
    *("zeros(2, device='gpu')", "zeros_like(3)", "ones_like(None)", "full_like('a', 1)"),
    *(
        "empty_like([1])",
        "arange('a')",
        "arange(None)",
        "arange(0, 3, 0)",
        "arange(1j)",
        "eye('a')",
    ),
    *("eye(-1)", "eye(2.5)", "linspace('a', 1, 2)", "linspace(0, 1, -1)", "linspace(0, 1, 'a')"),
    *(
        "linspace(0, 1, 2.5)",
        "rand('a')",
        "randn(-1)",
        "randint(3, 3, (2,))",
        "randint('a', 3, (2,))",
    ),
    *("randint(0, 3, 'a')", "randint(0, 3, 2.5)", "randperm('a')", "randperm(-1)", "rand_like(3)"),
    *(
        "randn_like(None)",
        "bernoulli('a')",
        "dropout(3)",
        "dropout(ones(2), 'a')",
        "dropout(ones(2), 2)",
    ),
    *("manual_seed('a')", "equal(ones(2), 3)", "equal(None, ones(2))", "allclose(ones(2), [1, 1])"),
    *("allclose(ones(2), ones(3))", "allclose(ones(2), ones(2), 'a')", "ones(2).to('nowhere')"),
    *("ones(2).to(3.5)", "ones(2).type('text')", "ones(2).size(5)", "ones(2).size('a')"),
    *("ones(2, 2, 2).t()", "ones(2).stride('a')", "ones(2).stride(5)", "ones(2, 3).view(4)"),
    *("ones(2).sum('a')", "ones(2).sum(3)", "ones(2).softmax('a')", "ones(2).reshape('a')"),
    *(
        "ones(2).expand('a')",
        "ones(2, 2).transpose('a', 0)",
        "ones(2).topk('a')",
        "ones(2).topk(3)",
    ),
    *("ones(2).sort('a')", "ones(2).norm('a')", "ones(2).norm(None)", "ones(2).split('a')"),
    *("ones(2).split(None)", "ones(2).chunk('a')", "ones(2).chunk(0)", "ones(2).repeat('a')"),
    *("ones(2).repeat(-1)", "ones(2, 2).repeat(2)", "ones(2).roll('a')", "ones(2).roll(1, 3)"),
    *("ones(2).unflatten(0, 'a')", "ones(2).unflatten(0, (3,))", "ones(2).movedim('a', 0)"),
    *(
        "ones(2).narrow(0, 'a', 1)",
        "ones(2).clamp('a')",
        "ones(2).clamp()",
        "ones(2).round(decimals='a')",
    ),
    *("ones(2).pow('a')", "ones(2).flip('a')", "ones(2).tril()", "ones(2, 2).tril('a')"),
    *("arange(2) // 0", "arange(2) % arange(2)", "arange(2) ** -1", "einsum(3, ones(2))"),
    *(
        "einsum('i,j', ones(2))",
        "einsum('i', 3)",
        "cat([])",
        "cat(3)",
        "stack([1, 2])",
        "cat('text')",
    ),
    *("ones(2).fill_('a')", "ones(2).copy_([3])", "ones(2).add_('a')", "ones(2).mul_(None)"),
    *("ones(2).masked_fill_(3, 1)", "ones(2).new_zeros('a')", "ones(2).new_tensor('a')"),
    *("ones(2).repeat_interleave('a')", "set_num_threads('a')", "ones(2)['a']", "ones(2)[1.5]"),
    *("ones(2).backward()", "ones(2).requires_grad_('a').backward()", "grad(ones(2), ones(2))"),
    *("backward('text')", "backward(ones(2), 3)", "grad('text', ones(2))", "grad(3, 4)"),
)


@pytest.mark.parametrize("expression", MADE)
def test_what_makes_no_sense_raises_an_error_of_ours(expression: str) -> None:
    with pytest.raises(TapegradError) as caught:
        eval(expression, vars(tt))
    assert len(str(caught.value)) > 10


def test_what_is_not_there_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match="no GPU"):
        tg.ones(2).cuda()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="leave memory_format and layout out"):
        _ = tg.channels_last  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"tg\.remainder"):
        _ = tg.fmod  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = tg.ones(2).nonsense  # type: ignore[attr-defined]
    assert not hasattr(tg.ones(2), "nonsense")
    from tapegrad.tensors.absent import INSTEAD

    assert not [name for name in INSTEAD if name in tt.__all__ or hasattr(tg.Tensor, name)]


def test_a_wrong_call_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="missing"):
        tt.matmul(tg.ones(2))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        tt.matmul(tg.ones(2), tg.ones(2), axis=1)  # type: ignore[call-arg]
