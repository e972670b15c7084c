"""The op table is complete: every record has all that a record must have."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import tapegrad.tensors as tt
from tapegrad.backends import device
from tapegrad.bench.suites.operators import SUITE
from tapegrad.tensors import creation, random
from tapegrad.tensors.ops import FILES
from tapegrad.tensors.ops.composite import COMPOSITES, Composite
from tapegrad.tensors.registry import REGISTRY, Cost, Op, Sample
from tests.tensors.cases import DEVICES, RECORDS, cases


def missing(record: Any) -> list[str]:
    """Return the fields in which a record says nothing."""
    found = [name for name in ("name", "doc", "samples") if not getattr(record, name, None)]
    found += [name for name in ("benchmark", "orders", "function") if not hasattr(record, name)]
    if not isinstance(record, Composite):
        found += [name for name in ("rule", "cost") if not callable(getattr(record, name, None))]
        if not hasattr(record, "vjp"):
            found.append("vjp")
    if not all(isinstance(each, Sample) for each in record.samples):
        found.append("samples")
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_no_field_of_a_record_is_missing(name: str) -> None:
    assert not missing(RECORDS[name])


@pytest.mark.parametrize("field", ["doc", "rule", "cost", "samples"])
def test_a_missing_field_is_found(field: str) -> None:
    record = dataclasses.replace(REGISTRY["matmul"], **{field: [] if field == "samples" else None})
    assert field in missing(record)


def test_every_function_of_tensors_is_in_the_table() -> None:
    exported = {name for part in FILES for name in part.__all__}
    recorded = {op.function or op.name for op in RECORDS.values() if op.function is not None}
    assert exported - recorded == set()
    assert recorded - set(tt.__all__) == set()


@pytest.mark.parametrize("where", DEVICES)
def test_every_operation_has_a_kernel_on_every_device(where: str) -> None:
    needed = {name for name, op in REGISTRY.items() if isinstance(op, Op)}
    assert needed - set(device(where).kernels) == set()


def test_devices_have_the_same_kernels() -> None:
    first, second = (set(device(name).kernels) for name in DEVICES)
    assert first == second


def test_names_of_benchmarks_are_those_of_the_bench() -> None:
    known = {case.op for case in SUITE.cases}
    named = {op.benchmark for op in RECORDS.values()} - {""}
    assert named - known == set()
    ours = {op.function or op.name for op in RECORDS.values() if op.function is not None}
    assert ours & known <= named


def test_creating_and_random_functions_are_exported() -> None:
    assert {*creation.__all__, *random.__all__} <= set(tt.__all__)


@pytest.mark.parametrize("name", [name for name, op in REGISTRY.items() if op.function is None])
def test_costs_are_of_samples(name: str) -> None:
    for case in cases(REGISTRY[name], "float32"):
        cost = REGISTRY[name].cost(*case.tensors("cpu"), **case.sample.options)
        assert isinstance(cost, Cost) and cost.flops >= 0 and cost.bytes >= 0


def test_no_operation_and_no_layer_knows_a_device() -> None:
    package = Path(tt.__file__).parent.parent
    files = [*package.glob("tensors/ops/*.py"), *package.glob("nn/**/*.py")]
    assert len(files) > 20
    for file in files:
        text = file.read_text(encoding="utf-8")
        for name in ('"cpu"', "'cpu'", '"reference"', "'reference'", "backends.cpu", "_onednn"):
            assert name not in text, f"{file.name} mentions {name}"


def test_composites_are_functions() -> None:
    for name in COMPOSITES:
        assert callable(getattr(tt, name))
