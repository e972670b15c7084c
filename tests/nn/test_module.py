"""Modules as containers of state: walks, hooks, copies, state_dicts, texts; and misuse."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapegrad import nn
from tapegrad.errors import DTypeError, OptionError, ShapeError, StateError, TapegradError
from tapegrad.tensors import arange, bool_, float32, int64, no_grad, ones, tensor, zeros
from tests.nn import behaviour
from tests.nn.test_training import CASES
from tests.oracles.torch import Torch, assert_equal, tapegrad

LAYERS = sorted({case.build for case in CASES if "Multihead" not in case.build})
COUNT = re.compile(r" +[\d,]+( parameters)?$", re.MULTILINE)


def test_texts_are_pytorchs_with_counts_beside(torch: Torch) -> None:
    ours = [COUNT.sub("", text) for text in behaviour.texts(tapegrad(), LAYERS)]
    assert ours == torch(behaviour.texts, LAYERS)


def test_table_counts_parameters() -> None:
    model = nn.Sequential(nn.Linear(100, 20), nn.Sequential(nn.Linear(20, 2), nn.ReLU()))
    model[0].requires_grad_(False)
    assert repr(model).splitlines() == [
        "Sequential(                                                 "
        "2,062 parameters (2,020 of them frozen)",
        "  (0): Linear(in_features=100, out_features=20, bias=True)  2,020",
        "  (1): Sequential(                                             42",
        "    (0): Linear(in_features=20, out_features=2, bias=True)     42",
        "    (1): ReLU()",
        "  )",
        ")",
    ]


@pytest.mark.parametrize(
    "function",
    [
        *(behaviour.walks, behaviour.conversions, behaviour.copies, behaviour.hooks),
        behaviour.hooks_at_borders,
    ],
)
def test_behaves_as_pytorch(torch: Torch, function: Callable[..., Any]) -> None:
    assert_equal(function(tapegrad()), torch(function), 1e-6)


@pytest.mark.parametrize(
    "kind",
    [
        "utils.clip_grad_norm_(parameters, 1.0)",
        "utils.clip_grad_norm_(parameters, 100.0)",
        "utils.clip_grad_norm_(parameters, 0.5, norm_type=float('inf'))",
        "utils.clip_grad_norm_(parameters, 0.5, norm_type=3)",
        "utils.clip_grad_norm_(parameters[0], 0.5)",
        "utils.clip_grad_norm_(parameters[2], 0.5)",
        "utils.clip_grad_value_(parameters, 0.3)",
    ],
)
def test_clips_as_pytorch(torch: Torch, kind: str) -> None:
    assert_equal(behaviour.clips(tapegrad(), kind), torch(behaviour.clips, kind), 1e-5)


def test_clipping_refuses_what_is_not_finite() -> None:
    weight = ones(2, requires_grad=True)
    weight.grad = tensor([1.0, float("nan")])
    with pytest.raises(TapegradError, match="finite norm"):
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize(
    "fill",
    [
        "init.uniform_(t, -2, 3)",
        "init.normal_(t, 1, 2)",
        "init.constant_(t, 0.5)",
        "init.ones_(t)",
        "init.zeros_(t)",
        "init.xavier_uniform_(t, gain=2.0)",
        "init.xavier_normal_(t)",
        "init.kaiming_uniform_(t, a=5**0.5)",
        "init.kaiming_normal_(t, mode='fan_out', nonlinearity='relu')",
    ],
)
def test_initialisers_draw_as_pytorch(torch: Torch, fill: str) -> None:
    mean, deviation, low, high = behaviour.draws(tapegrad(), fill, (200, 20, 3, 3))
    theirs = torch(behaviour.draws, fill, (200, 20, 3, 3))
    bound = 6 * theirs[1] / np.sqrt(200 * 20 * 9) + 1e-6
    assert abs(mean - theirs[0]) < bound and abs(deviation - theirs[1]) < bound
    if "normal" not in fill:
        np.testing.assert_allclose([low, high], theirs[2:], atol=2e-3 * max(abs(low), abs(high)))


def test_layers_begin_within_pytorchs_bounds() -> None:
    for layer, fan in ((nn.Linear(64, 64), 64), (nn.Conv2d(8, 64, 3), 72)):
        for values in (layer.weight, layer.bias):
            largest = values.detach().abs().max().item()
            assert 0.9 / fan**0.5 < largest <= 1 / fan**0.5


def test_loading_says_what_does_not_fit_and_loads_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    given = {
        "0.weight": zeros(3, 2),
        "0.bias": zeros(4),
        "1.weights": zeros(1, 3),
        "2.bias": zeros(1),
    }
    with pytest.raises(StateError) as caught:
        model.load_state_dict(given)
    assert str(caught.value).splitlines() == [
        "load_state_dict of Sequential: nothing was loaded",
        "  missing (2 of 4):",
        "    1.weight  (there is 1.weights of the same shape)",
        "    1.bias  (there is 2.bias of the same shape)",
        "  unexpected (2 of 4):",
        "    1.weights",
        "    2.bias",
        "  strict=False loads what has the same name and leaves the rest",
        "  0.bias: expected shape (3,), got (4,)",
    ]
    for name, each in model.state_dict().items():
        assert (each == before[name]).all()


def test_loading_part_of_a_state() -> None:
    model = nn.Linear(2, 3)
    found = model.load_state_dict({"bias": ones(3), "more": ones(1)}, strict=False)
    assert found.missing_keys == ["weight"] and found.unexpected_keys == ["more"]
    assert model.bias.tolist() == [1, 1, 1]
    with pytest.raises(StateError, match="expected shape"):
        model.load_state_dict({"bias": ones(2)}, strict=False)
    with pytest.raises(StateError, match=r"starts with 'module\.': take it off"):
        model.load_state_dict({f"module.{name}": each for name, each in model.state_dict().items()})
    with pytest.raises(DTypeError, match="dict of tensors"):
        model.load_state_dict([1])  # type: ignore[arg-type]
    with pytest.raises(StateError, match="expected a Tensor or an array, got list"):
        model.load_state_dict({"bias": [1], "weight": zeros(3, 2)})


def test_states_from_before_batches_were_counted_are_whole() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Linear(2, 1))
    old = {name: each for name, each in model.state_dict().items() if "tracked" not in name}
    model[0].num_batches_tracked.fill_(3)
    assert not model.load_state_dict(old).missing_keys
    assert model[0].num_batches_tracked.item() == 3
    del old["0.running_var"]
    with pytest.raises(StateError, match=r"missing \(1 of 7\):\n    0\.running_var\n"):
        model.load_state_dict(old)


def test_state_shares_memory_with_the_module() -> None:
    model = nn.Linear(2, 3)
    state = model.state_dict()
    assert not state["weight"].requires_grad
    state["weight"].fill_(7.0)
    assert (model.weight == 7).all()


def test_sequences_of_modules_are_lists() -> None:
    row = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    assert list(row[1:].state_dict()) == ["2.weight", "2.bias"]
    assert isinstance(row[-1], nn.Linear) and len(row) == 3
    assert list(nn.ModuleList(row)[1:].state_dict()) == ["1.weight", "1.bias"]
    del row[1]
    assert list(dict(row.named_children())) == ["0", "1"]
    row.append(nn.Tanh()).extend([nn.Sigmoid()])
    row.insert(0, nn.Identity())
    assert [type(each).__name__ for each in row] == [
        "Identity",
        "Linear",
        "Linear",
        "Tanh",
        "Sigmoid",
    ]
    row[0] = nn.GELU()
    assert isinstance(row[0], nn.GELU)
    named = nn.Sequential({"linear": nn.Linear(1, 1), "end": nn.ReLU()})
    assert isinstance(named.end, nn.ReLU) and next(iter(named.state_dict())) == "linear.weight"
    part = row[3:].append(nn.ReLU())
    assert [type(each).__name__ for each in part] == ["Tanh", "Sigmoid", "ReLU"]
    with pytest.raises(IndexError, match="no module 9"):
        row[9]


def test_a_module_is_put_among_others_that_have_names() -> None:
    row = nn.Sequential({"relu": nn.ReLU(), "end": nn.Tanh()})
    assert row.insert(1, nn.Sigmoid()) is row
    assert [type(each).__name__ for each in row] == ["ReLU", "Sigmoid", "Tanh"]
    assert [name for name, _ in row.named_children()] == ["relu", "2", "end"]
    with pytest.raises(TypeError):
        row.insert("0", nn.ReLU())  # type: ignore[arg-type]
    assert len(row) == 3


def test_dropout_drops_while_training_only() -> None:
    layer, x = nn.Dropout(0.25), ones(100, 100, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    kept = (y != 0).to(float32).mean().item()
    assert abs(kept - 0.75) < 0.03
    assert abs(y.max().item() - 4 / 3) < 1e-6
    assert (x.grad == y).all()
    assert (layer.eval()(x) == x).all()
    assert (nn.Dropout(1.0)(x) == 0).all()


def test_attention_without_weights_is_attention_with_them() -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), (arange(80) * 0.1).reshape(2, 5, 8)
    mask = ones(5, 5, dtype=bool_).triu(1)
    expected, weights = layer(x, x, x, attn_mask=mask)
    for options in ({"attn_mask": mask}, {"is_causal": True}):
        output, none = layer(x, x, x, need_weights=False, **options)
        assert none is None
        np.testing.assert_allclose(output.detach().numpy(), expected.detach().numpy(), atol=1e-5)
    assert weights[0, 0, 1:].sum().item() == 0


def test_embedding_of_a_given_table() -> None:
    table = arange(6).to(float32).reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert layer(tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    assert not layer.weight.requires_grad and layer.num_embeddings == 3
    assert (nn.Embedding(3, 2, padding_idx=1).weight[1] == 0).all()


def test_zero_grad_forgets_or_fills() -> None:
    layer = nn.Linear(2, 1)
    layer(ones(1, 2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    gradient = layer.weight.grad
    assert gradient is not None and gradient.tolist() == [[0, 0]]
    layer.zero_grad()
    assert layer.weight.grad is None


def test_hooks_that_always_run_see_failures() -> None:
    layer, seen = nn.Linear(2, 2), []
    layer.register_forward_hook(lambda *_: seen.append("always"), always_call=True)
    layer.register_forward_hook(lambda *_: seen.append("success"))
    with pytest.raises(TapegradError):
        layer(ones(3, 3))
    assert seen == ["always"]


class Foreign:
    """A tensor of another library, which NumPy can read."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._array, dtype)


def test_arrays_and_tensors_of_other_libraries_are_loaded() -> None:
    layer, weight = nn.Linear(2, 1), np.array([[1.5, 2.5]])
    layer.load_state_dict({"weight": Foreign(weight), "bias": weight[0, :1].astype(np.float16)})
    assert layer.weight.tolist() == [[1.5, 2.5]] and layer.bias.tolist() == [1.5]
    assert layer.weight.dtype is float32
    with pytest.raises(StateError, match=r"weight: expected an array of real numbers") as failure:
        layer.load_state_dict({"weight": Foreign(weight + 1j), "bias": Foreign(weight)})
    assert "bias: expected shape (1,), got (1, 2)" in str(failure.value)
    with pytest.raises(StateError, match="weight: expected a Tensor or an array, got list"):
        layer.load_state_dict({"weight": [[1.0, 2.0]], "bias": ones(1)})
    assert layer.weight.tolist() == [[1.5, 2.5]]


def test_weights_of_pytorch_are_loaded(torch: Torch) -> None:
    build = "nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))"
    theirs = torch(behaviour.weights, build)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.load_state_dict(theirs)
    assert_equal({key: each.numpy() for key, each in model.state_dict().items()}, theirs, 0.0)


#: Arguments of `to`: names of types, of the device, and =type for a tensor of it.
WAYS: list[tuple[list[str], dict[str, str]]] = [
    *[(args, {}) for args in ([], ["float64"], ["cpu"], ["cpu", "float64"], ["=float64"])],
    *[(args, {}) for args in (["int64"], ["=int64"])],
    *[([], {"dtype": kind}) for kind in ("float64", "int64")],
    (["cpu"], {"dtype": "float64"}),
    ([], {"device": "cpu", "dtype": "float64"}),
]


def test_modules_are_converted_as_in_pytorch(torch: Torch) -> None:
    assert behaviour.types_after(tapegrad(), WAYS) == torch(behaviour.types_after, WAYS)


@pytest.mark.parametrize("way", ["positional", "named"])
def test_number_types_as_texts_are_those_types(way: str) -> None:
    net = (
        nn.BatchNorm2d(2).to("float64")
        if way == "positional"
        else (nn.BatchNorm2d(2).to(dtype="float64"))
    )
    kinds = {name: each.dtype.name for name, each in net.state_dict().items()}
    assert kinds.pop("num_batches_tracked") == "int64" and set(kinds.values()) == {"float64"}
    with pytest.raises(DTypeError, match="float32 or float64"):
        nn.Linear(2, 2).to("int64") if way == "positional" else nn.Linear(2, 2).to(dtype="int64")


def test_softmax_chooses_a_dimension_as_pytorch_does(torch: Torch) -> None:
    with pytest.warns(UserWarning, match="write (Log)?Softmax"):
        ours = behaviour.without_dim(tapegrad())
    assert_equal(ours, torch(behaviour.without_dim), 1e-12)


@pytest.mark.parametrize("value", [None, [1.0], 2.0, np.ones((2, 3, 1, 1))])
@pytest.mark.parametrize(
    "build",
    ["BatchNorm1d(3)", "BatchNorm2d(3)", "Flatten()", "Softmax()", "MultiheadAttention(4, 2)"],
)
def test_inputs_that_are_no_tensors_are_named(build: str, value: Any) -> None:
    layer = eval(build, {**vars(nn)})
    places = 3 if "Multihead" in build else 1
    with pytest.raises(DTypeError, match=r"expected (input|query) to be a tensor"):
        layer(*[value] * places)


#: Without types, for what types would not let pass.
loose: Any = nn


class _Early(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(1, 1)


def _results_as_parameters() -> None:
    loose.Module().register_parameter("w", nn.Parameter(ones(2)) * 2)


def _wrong_hook() -> None:
    layer = nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda *_: (None, None))
    layer(ones(1, 1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (_Early, AttributeError, r"call super\(\).__init__\(\)"),
        (lambda: loose.Module()(1), NotImplementedError, "no method `forward`"),
        (lambda: loose.Linear(1, 1).nothing, AttributeError, "Linear has no attribute 'nothing'"),
        (
            lambda: setattr(loose.Linear(1, 1), "weight", ones(1)),
            DTypeError,
            "expected a Parameter",
        ),
        (lambda: loose.Module().register_buffer("a.b", ones(1)), OptionError, "no dot"),
        (lambda: loose.Module().register_buffer("train", ones(1)), OptionError, "already"),
        (lambda: loose.Module().register_buffer("a", 3), DTypeError, "expected a Tensor"),
        (lambda: loose.Module().add_module("a", 3), DTypeError, "expected a Module"),
        (_results_as_parameters, DTypeError, "expected a"),
        (_wrong_hook, TapegradError, "expected None or 1 gradients, got 2"),
        (lambda: loose.Parameter([1.0]), DTypeError, "expected a Tensor"),
        (lambda: loose.Linear(1, 1).to(int64), DTypeError, "expected float32 or float64"),
        (lambda: loose.Linear(1, 1).get_submodule("a"), AttributeError, "has no module 'a'"),
        (lambda: loose.Linear(1, 1).get_parameter("a"), AttributeError, "weight, bias"),
        (lambda: loose.Conv2d(3, 4, 3, groups=2), OptionError, "multiples of groups"),
        (lambda: loose.Conv2d(3, 4, 0), OptionError, "kernel_size: expected 1 or more"),
        (lambda: loose.Conv2d(3, 4, (1, 2, 3)), OptionError, "an integer or two"),
        (lambda: loose.Conv2d(3, 4, 3, padding="full"), OptionError, "'same' or 'valid'"),
        (lambda: loose.Conv2d(3, 4, 3, 2, padding="same"), OptionError, "needs stride 1"),
        (lambda: loose.Conv2d(3, 4, 3, padding_mode="mirror"), OptionError, "padding_mode"),
        (lambda: loose.BatchNorm2d(3)(ones(2, 3)), ShapeError, "expected 4 dimensions, 3 channels"),
        (lambda: loose.BatchNorm1d(3)(ones(2, 4)), ShapeError, "2 or 3 dimensions, 3 channels"),
        (lambda: loose.LayerNorm("a"), OptionError, "normalized_shape"),
        (lambda: loose.Dropout(1.5), OptionError, "probability"),
        (lambda: loose.GELU("erf"), OptionError, "approximate"),
        (lambda: loose.MSELoss(reduction="max"), OptionError, "reduction"),
        (lambda: loose.Embedding(3, 2, padding_idx=3), OptionError, "within 3 rows"),
        (lambda: loose.Embedding.from_pretrained(ones(3)), ShapeError, "a matrix"),
        (lambda: loose.MultiheadAttention(5, 2), OptionError, "multiple of num_heads"),
        (lambda: loose.MultiheadAttention(4, 2)(*[ones(3, 5)] * 3), ShapeError, "end with"),
        (
            lambda: loose.MultiheadAttention(4, 2)(*[ones(3, 4)] * 3, attn_mask=ones(2, 2)),
            ShapeError,
            "attn_mask: expected shape",
        ),
        (
            lambda: loose.MultiheadAttention(4, 2)(*[ones(3, 4)] * 3, attn_mask=arange(9)),
            DTypeError,
            "bool or floats",
        ),
        (
            lambda: loose.MultiheadAttention(4, 2)(ones(3, 2, 4), *[ones(3, 1, 4)] * 2),
            ShapeError,
            "one batch size in dimension 1, got 2 and 1",
        ),
        (
            lambda: loose.MultiheadAttention(4, 2)(*[ones(3, 4)] * 3, attn_mask=[[1.0]]),
            DTypeError,
            "attn_mask to be a tensor, got list",
        ),
        (lambda: loose.init.kaiming_normal_(ones(3)), ShapeError, "two or more dimensions"),
        (lambda: loose.init.kaiming_normal_(ones(3, 3), mode="fan"), OptionError, "fan_out"),
        (lambda: loose.init.calculate_gain("sin"), OptionError, "leaky_relu"),
        (lambda: loose.Linear(1, 1).train("yes"), DTypeError, "True or False"),
        (lambda: loose.ModuleList(3), DTypeError, "expected modules"),
    ],
)
def test_misuse_is_explained(
    misuse: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        misuse()


def test_parameters_are_made_of_tensors() -> None:
    values = ones(2)
    weight = nn.Parameter(values)
    with no_grad():
        weight.fill_(3.0)
    assert values.tolist() == [3, 3]
    assert weight.requires_grad and weight.is_leaf and repr(weight).startswith("Parameter")
    assert not isinstance(weight * 2, nn.Parameter)
    assert nn.Parameter().numel() == 0


def test_a_state_can_be_taken_without_a_copy() -> None:
    layer, state = nn.Linear(2, 1), {"weight": ones(1, 2), "bias": zeros(1)}
    weight = layer.weight
    layer.load_state_dict(state, assign=True)
    with no_grad():
        state["weight"].fill_(3.0)
    assert layer.weight is weight and weight.tolist() == [[3.0, 3.0]] and weight.requires_grad


def test_modules_in_a_row_are_added_in_place() -> None:
    row = before = nn.Sequential(nn.ReLU())
    row += nn.Sequential(nn.Tanh())
    assert row is before and [type(each) for each in row] == [nn.ReLU, nn.Tanh]
    assert len(row + row) == 4 and len(row) == 2


def test_what_is_assigned_anew_keeps_its_place() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    net[0] = nn.Linear(2, 2)
    net[2].weight = nn.Parameter(ones(1, 2))
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [name for name, _ in net.named_parameters()] == names == list(net.state_dict())
    owner = nn.Module()
    owner.a, owner.b = nn.Linear(1, 1), nn.Linear(1, 1)
    owner.a = nn.Linear(1, 1, bias=False)
    assert [name for name, _ in owner.named_children()] == ["a", "b"]
    owner.a = nn.Parameter(ones(1))  # of another kind: among the parameters
    assert [name for name, _ in owner.named_parameters()] == ["a", "b.weight", "b.bias"]


def test_a_module_that_is_there_already_stays_as_it_is() -> None:
    layer = nn.Linear(2, 2)
    loss = layer(ones(1, 2, requires_grad=True)).sum()
    layer.float().cpu().to("cpu", dtype=float32)
    loss.backward()
    gradient = layer.weight.grad
    assert gradient is not None and gradient.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert layer.float().weight.grad is gradient


def test_copies_of_parameters_have_no_gradients() -> None:
    model = nn.Linear(2, 2)
    model(ones(1, 2)).sum().backward()
    made = copy.deepcopy(model)
    assert made.weight.grad is None
    assert model.weight.grad is not None
    assert isinstance(made.weight, nn.Parameter)
    assert made.weight.requires_grad
