"""Networks as data: what they are, how they are run, and that their stand-ins decide."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapegrad import bench
from tapegrad.bench import comparison, inputs
from tapegrad.bench.faults import FOLDER, PRODUCT
from tapegrad.bench.results import Results
from tapegrad.bench.suites import cnn_models
from tapegrad.worker.networks import Network, Node, cnn, compose
from tapegrad.worker.networks.layout import channels_last
from tapegrad.worker.operators.numpy import OPERATORS

from .test_worker import adapter

#: What torchvision says about its models.
PARAMETERS = {
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}
GIGAFLOPS = {
    "vgg16": 15.47, "vgg16_bn": 15.47, "vgg19": 19.63, "vgg19_bn": 19.63, "resnet18": 1.81,
    "resnet34": 3.66, "resnet50": 4.09, "resnet101": 7.80, "resnet152": 11.51,
}  # fmt: skip
IMAGE_OPERATORS = (
    "conv2d", "max_pool2d", "global_avg_pool2d", "batch_norm_training", "batch_norm_inference",
)  # fmt: skip
QUICK: dict[str, Any] = {"processes": 1, "rounds": 1, "block": 0.001, "threads": 1}


@pytest.mark.parametrize("name", cnn.MODELS)
def test_models_are_those_of_torchvision(name: str) -> None:
    """Published counts of parameters, and of multiplications with an image of 224 pixels."""
    network = cnn.network(name, batch=1, image=224, training=True)
    count = sum(math.prod(array.shape) for array in network.inputs if array.grad)
    assert count == PARAMETERS[name]
    assert cnn.flops(name, batch=1, image=224) / 2e9 == pytest.approx(GIGAFLOPS[name], abs=0.005)


def test_parameters_have_the_names_of_torchvision() -> None:
    names = [a.name for a in cnn.network("resnet50", batch=1, image=64, training=True).inputs]
    assert {"layer3_5_bn3_running_var", "layer4_0_downsample_0_weight", "fc_bias"} <= set(names)
    names = [a.name for a in cnn.network("vgg16_bn", batch=1, image=32, training=True).inputs]
    assert {"features_41_running_mean", "features_40_bias", "classifier_6_weight"} <= set(names)


@pytest.mark.parametrize("case", cnn_models.SUITE.cases, ids=lambda case: case.label)
def test_every_value_is_made_before_it_is_taken(case: bench.Case) -> None:
    network = cnn.network(case.op, **case.attrs)
    known = {array.name for array in network.inputs}
    for node in network.nodes:
        assert known.issuperset(node.takes), node
        assert known.isdisjoint(node.gives), node
        known.update(node.gives)
    assert known.issuperset(network.results)
    taken = {name for node in network.nodes for name in node.takes}
    assert known - taken == set(network.results)


def test_the_suite_has_what_the_seed_has() -> None:
    for case in cnn_models.SUITE.cases:
        few = case.op in ("resnet101", "resnet152")
        assert (case.attrs["batch"], case.attrs["image"]) == (4 if few else 8, 224)
        assert case.phases == (
            ("forward", "backward", "step") if case.attrs["training"] else ("inference",)
        )
        assert case.stand_in is not None and case.stand_in.dtype == "float64"
        assert case.stand_in.attrs["training"] == case.attrs["training"]
    assert len(cnn_models.SUITE.cases) == 2 * len(PARAMETERS)


def test_a_value_is_let_go_after_its_last_use() -> None:
    class Value:
        pass

    alive: list[weakref.ref[Value]] = []
    most = 0

    def made(*_: Value) -> Value:
        nonlocal most
        most = max(most, sum(each() is not None for each in alive))
        value = Value()
        alive.append(weakref.ref(value))
        return value

    nodes = [Node("made", (f"v{index}",), (f"v{index + 1}",)) for index in range(9)]
    skip = Node("made", ("v9", "v1"), ("end",))
    network = Network((bench.Array("v0", ()),), (*nodes, skip), ("end",))
    compose(network, lambda _: made)(Value())
    assert most == 2  # the one that is kept for the end, and the one before


def last(op: str) -> Callable[..., Any]:
    """Make a call on images with channels last of NumPy's own."""

    def call(x: Any, *parameters: Any, **attrs: Any) -> Any:
        if op == "conv2d":
            parameters = (parameters[0].transpose(3, 2, 0, 1), *parameters[1:])
        given = OPERATORS[op](np.moveaxis(x, -1, 1), *parameters, **attrs)
        first, *more = given if isinstance(given, tuple) else (given,)
        turned = first if op == "global_avg_pool2d" else np.moveaxis(first, 1, -1)
        return (turned, *more) if more else turned

    return call


def test_weights_of_dense_layers_are_turned_outside_the_network() -> None:
    shapes = {"x": (4, 6), "weight": (3, 6), "bias": (3,)}
    network = Network(
        tuple(bench.Array(name, shape) for name, shape in shapes.items()),
        (Node("linear", tuple(shapes), ("y",)), Node("relu", ("y",), ("z",))),
        ("z",),
    )
    arrays = inputs.make_inputs(bench.Case("operator", "own", network.inputs, dtype="float64"), 0)
    other = channels_last(network, {"linear"})
    assert [array.shape for array in other.network.inputs] == [(4, 6), (6, 3), (3,)]
    turned = other.turned(arrays)
    found = np.maximum(turned["x"] @ turned["weight"] + turned["bias"], 0)
    (wanted,) = compose(network, OPERATORS.__getitem__)(*arrays.values())
    np.testing.assert_allclose(other.restored({"output0": found})["output0"], wanted)
    gradient = other.restored({"grad:weight": np.ones((6, 3))})["grad:weight"]
    assert gradient.shape == (3, 6)


def test_channels_last_is_the_same_network() -> None:
    """Images are turned where another operator wants them; results are when they are read."""
    vector = [
        bench.Array(name, (6,), kind="positive") for name in ("weight", "bias", "mean", "var")
    ]
    shapes = {"x": (2, 4, 8, 8), "filters": (6, 4, 3, 3), "more": (6, 6, 1, 1)}
    network = Network(
        (*(bench.Array(name, shape) for name, shape in shapes.items()), *vector),
        (
            Node("conv2d", ("x", "filters"), ("c",), {"stride": 1, "padding": 1}),
            Node("batch_norm_training", ("c", "weight", "bias", "mean", "var"), ("b", "m", "v"),
                 {"eps": 0.1}),
            Node("conv2d", ("b", "more", "bias"), ("d",), {"stride": 1, "padding": 0}),
            Node("add", ("b", "d"), ("a",)),
            Node("max_pool2d", ("a",), ("p",), {"kernel": 2, "stride": 2, "padding": 0}),
            Node("reshape", ("p",), ("flat",), {"shape": (2, 96)}),
            Node("global_avg_pool2d", ("p",), ("g",)),
        ),
        ("flat", "g", "p"),
        ("m", "v"),
    )  # fmt: skip
    case = bench.Case("operator", "own", network.inputs, dtype="float64")
    arrays = inputs.make_inputs(case, 0)
    other = channels_last(network, IMAGE_OPERATORS)
    assert sum(node.op == "permute" for node in other.network.nodes) == 1
    turned = other.turned(arrays)
    assert turned["x"].shape == (2, 8, 8, 4) and turned["filters"].shape == (3, 3, 4, 6)
    assert [array.shape for array in other.network.inputs] == [a.shape for a in turned.values()]
    mixed = compose(other.network, lambda op: last(op) if op in IMAGE_OPERATORS else OPERATORS[op])
    wanted = compose(network, OPERATORS.__getitem__)(*arrays.values())
    found = mixed(*turned.values())
    named = other.restored({f"output{place}": each for place, each in enumerate(found)})
    for left, right in zip(named.values(), wanted, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)
    for left, right in zip(found, other.turned_results(wanted), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)
    back = other.restored({f"grad:{name}": array for name, array in turned.items()})
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[f"grad:{name}"], array)


def test_gradients_behind_kinks_are_compared_by_their_norms() -> None:
    """One flipped ReLU may change an element a lot; a wrong factor changes them all."""
    case = cnn_models.model("resnet18", batch=2, image=64, training=True)
    kinks = comparison.kinks_of(case)
    assert kinks == 18 and comparison.kinks_of(replace(case, dtype="float64")) == 0
    rng = np.random.default_rng(0)
    truth = {"output0": rng.standard_normal(8), "grad:w": rng.standard_normal((64, 64))}

    def compared(**changed: Any) -> comparison.Difference | float:
        found = truth | {name.replace("_", ":"): array for name, array in changed.items()}
        return comparison.compare(found, truth, dtype="float32", terms=1, kinks=kinks)

    flipped = truth["grad:w"].copy()
    flipped[3, 5] += 0.5
    assert isinstance(compared(grad_w=flipped), float)
    assert isinstance(compared(grad_w=1.03 * truth["grad:w"]), comparison.Difference)
    moved = truth["output0"].copy()
    moved[0] += 1e-3
    assert isinstance(compared(output0=moved), comparison.Difference)


def test_a_gradient_that_is_zero_but_for_rounding_is_measured_by_the_others() -> None:
    """A batch norm takes the bias in front of it away again."""
    rng = np.random.default_rng(0)
    truth = {"grad:w": rng.standard_normal(64), "grad:v": rng.standard_normal(64)}
    noise = [1e-15 * rng.standard_normal(8) for _ in range(2)]

    def compared(bias: Any, network: bool = True) -> comparison.Difference | float:
        wanted = truth | {"grad:b": noise[0]}
        found = truth | {"grad:b": bias}
        return comparison.compare(found, wanted, dtype="float64", terms=1000, network=network)

    assert isinstance(compared(noise[1]), float)
    assert isinstance(compared(noise[1], network=False), comparison.Difference)
    assert isinstance(compared(np.full(8, 1e-9)), comparison.Difference)


def verdicts(results: Results) -> dict[tuple[int, str, str], str]:
    """Return what was decided, by images at a time, framework and phase."""
    batch = {key: case.attrs["batch"] for key, case in results.case_by_key().items()}
    return {(batch[each.case], each.framework, each.phase): each.verdict for each in results.cells}


def test_a_case_with_a_stand_in_is_timed_from_outside_too(tmp_path: Path) -> None:
    full = PRODUCT
    small = replace(
        full, inputs=tuple(replace(each, shape=(8, 8)) for each in full.inputs), dtype="float64"
    )
    results = bench.run(
        bench.Suite("own", "", (replace(full, stand_in=small, phases=("forward",)),)),
        frameworks=["numpy", f"{FOLDER / 'clocks.py'}:third in blocks"],
        store=tmp_path / "results.sqlite", processes=1, rounds=3,
    )  # fmt: skip
    found = {cell.framework: (cell.verdict, cell.reason) for cell in results.cells}
    assert found["numpy"] == ("checked", "")
    assert found["third in blocks"][0] == "mistrusted"
    assert "by the driver's clock as they tell" in found["third in blocks"][1]


def test_a_stand_in_finds_what_float32_hides(tmp_path: Path) -> None:
    """An epsilon that is off by 5 % changes results by less than float32 tells apart."""
    file = adapter(
        tmp_path,
        """
        wrong = {**Numpy.operators}
        wrong["batch_norm_inference"] = lambda *inputs, eps: Numpy.operators[
            "batch_norm_inference"](*inputs, eps=1.05 * eps)
        class Own(Numpy):
            operators = wrong
        """,
    )
    small, full, alone = (
        cnn_models.model("resnet18", batch=batch, image=32, training=False, dtype=dtype)
        for batch, dtype in ((1, "float64"), (2, "float32"), (3, "float32"))
    )
    results = bench.run(
        bench.Suite("own", "", (replace(full, stand_in=small), alone)),
        frameworks=["torch", file], store=tmp_path / "results.sqlite", **QUICK,
    )  # fmt: skip
    assert verdicts(results) == {
        (2, "torch", "inference"): "checked",
        (2, "own", "inference"): "wrong",
        (3, "torch", "inference"): "checked",
        (3, "own", "inference"): "checked",
    }
    reasons = [cell.reason for cell in results.cells if cell.verdict == "wrong"]
    assert "resnet18 batch=1 image=32 training=False: output0 is off" in reasons[0]
    notes = [cell.notes for cell in results.cells if cell.case == full.key and cell.timed]
    assert notes == [["checked in float64 as resnet18 batch=1 image=32 training=False"]]
    assert {block.framework for block in results.blocks if block.case == full.key} == {"torch"}


@pytest.mark.slow
def test_a_model_trains_alike_in_every_framework(tmp_path: Path) -> None:
    """Outputs, all gradients and statistics; NumPy goes as far as it can."""
    names = ["torch", "jax", "numpy"]
    case = cnn_models.model("resnet18", batch=2, image=64, training=True)
    results = bench.run(
        bench.Suite("own", "", (case,)),
        frameworks=names, phases=["forward", "backward"], store=tmp_path / "r.sqlite", **QUICK,
    )  # fmt: skip
    found = {(name, phase): verdict for (_, name, phase), verdict in verdicts(results).items()}
    assert found.pop(("numpy", "backward")) == "unsupported"
    assert len(found) == 5 and set(found.values()) == {"checked"}
