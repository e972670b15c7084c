"""Suite `overview`: in minutes, what the bench shows: a scalar graph, operators and modules."""

from __future__ import annotations

from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import graphs, modules, operators

OPERATORS = (
    "add",
    "exp",
    "tanh",
    "gelu",
    "sum",
    "softmax",
    "layer_norm",
    "cross_entropy",
    "matmul",
    "linear",
    "conv2d",
    "max_pool2d",
    "embedding",
)
SCALAR = (
    "c",
    "c-lanes",
    "python-tape",
    "torch",
    "tapegrad",
    "tapegrad-batch",
    "tapegrad-batch-float32",
)
TENSOR = ("torch", "tapegrad", "jax", "numpy")
#: The large ones would take as long as all the rest.
MODULE_SIZES = ("small", "medium")

SUITE = Suite(
    name="overview",
    summary="a scalar graph of 10,000 operations, a dozen operators, four modules, in minutes",
    cases=(
        graphs.graph("chain", 10_000),
        *(case for case in operators.SUITE.cases if case.op in OPERATORS and case.size == "medium"),
        *(case for case in modules.SUITE.cases if case.size in MODULE_SIZES),
    ),
    frameworks=tuple(dict.fromkeys((*SCALAR, *TENSOR))),
    at_level={"graph": SCALAR, "operator": TENSOR, "layer": TENSOR},
    memory_at=("operator",),
)
