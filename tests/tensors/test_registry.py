"""The op table is complete: every record has all that a record must have."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

import tapegrad.tensors as tt
from tapegrad.backends import device
from tapegrad.bench.suites.operators import SUITE
from tapegrad.tensors import creation, random
from tapegrad.tensors.ops import FILES
from tapegrad.tensors.ops.composite import COMPOSITES, Composite
from tapegrad.tensors.ops.elementwise import TableOp
from tapegrad.tensors.registry import REGISTRY, Cost, Op, Sample
from tests.tensors.cases import DEVICES, RECORDS, cases

#: Lines of the scalar op table, which are kernels by their numbers.
TABLE = {name for name, op in REGISTRY.items() if isinstance(op, TableOp)}
#: Operations whose results have no gradient.
CONSTANT = {"all", "any", "argmax", "argmin", "nonzero"}
CONSTANT |= {"bitwise_and", "bitwise_or", "bitwise_xor"}


def missing(record: Any) -> list[str]:
    """Return the fields in which a record says nothing."""
    found = [name for name in ("name", "doc", "samples") if not getattr(record, name, None)]
    if not isinstance(record.benchmark, str):
        found.append("benchmark")
    if record.orders not in range(3):
        found.append("orders")
    if not isinstance(record.function, str | None):
        found.append("function")
    if not isinstance(record, Composite):
        found += [name for name in ("rule", "cost") if not callable(getattr(record, name, None))]
        # An operation says how its results are differentiated, or that they are not.
        if not callable(record.vjp) and not (record.vjp is None and record.name in CONSTANT):
            found.append("vjp")
    if not all(isinstance(each, Sample) for each in record.samples):
        found.append("samples")
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_no_field_of_a_record_is_missing(name: str) -> None:
    assert not missing(RECORDS[name])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, None) for field in ("doc", "rule", "cost", "benchmark", "orders", "vjp")],
        *[("samples", []), ("samples", [(2, 3)]), ("name", ""), ("function", 1), ("orders", 3)],
    ],
)
def test_a_missing_field_is_found(field: str, value: Any) -> None:
    record = _changed(REGISTRY["matmul"], field, value)
    assert missing(record) == [field]
    composite = COMPOSITES["einsum"]
    if hasattr(composite, field):
        assert missing(dataclasses.replace(composite, **{field: value})) == [field]


def _changed(record: Op, field: str, value: Any) -> Op:
    """Return a record with another value, which need not be one that could be applied."""
    changed = dataclasses.replace(record)
    object.__setattr__(changed, field, value)
    return changed


def test_every_record_is_in_the_table() -> None:
    modules = [each for name, each in sys.modules.items() if name.startswith("tapegrad.tensors")]
    values = [value for each in modules for value in vars(each).values()]
    made = {each for each in values if isinstance(each, Op | TableOp | Composite)}
    assert len(made) > 40 and made <= {*REGISTRY.values(), *COMPOSITES.values()}


def test_every_function_of_tensors_is_in_the_table() -> None:
    exported = {name for part in FILES for name in part.__all__}
    recorded = {op.function or op.name for op in RECORDS.values() if op.function is not None}
    assert exported - recorded == set()
    assert recorded - set(tt.__all__) == set()


@pytest.mark.parametrize("where", DEVICES)
def test_every_operation_has_a_kernel_on_every_device(where: str) -> None:
    needed = {name for name, op in REGISTRY.items() if isinstance(op, Op) and op.has_kernel}
    assert set(REGISTRY) - needed == {*TABLE, "to_device"}
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
