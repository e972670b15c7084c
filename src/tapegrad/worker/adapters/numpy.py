"""NumPy: forward only, and in float64 the first witness of what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.worker import formulas, sweep
from tapegrad.worker.adapter import Adapter, AnyArray, Phase, Work, input_dtype, named_outputs
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Run, churn, descent, evaluations
from tapegrad.worker.operators import outputs_of
from tapegrad.worker.operators.numpy import OPERATORS

ADAPTERS = {"numpy": "Numpy"}
REQUIRES = ["numpy"]
IMPORTS = "numpy"


class Numpy(Adapter):
    """Plain NumPy calls."""

    operators = OPERATORS

    def version(self) -> str:
        """Return NumPy's version."""
        return np.__version__

    def operation(
        self, case: Case, function: Callable[..., Any], arrays: Mapping[str, AnyArray]
    ) -> Work:
        """Make an operator ready."""
        inputs: list[AnyArray] = []

        def feed(arrays: Mapping[str, AnyArray], cotangents: Sequence[AnyArray]) -> None:
            del cotangents
            inputs[:] = [
                np.array(arrays[array.name], dtype=input_dtype(array.kind, case.dtype))
                for array in case.inputs
            ]

        def forward() -> Any:
            return function(*inputs)

        feed(arrays, [])
        return Work(
            phases={"forward": Phase(forward), "inference": Phase(forward)},
            feed=feed,
            arrays=lambda _, result: named_outputs([np.array(each) for each in outputs_of(result)]),
        )

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a scalar graph ready: all points at once, one operation after the other."""
        match case.op:
            case "descend":
                return descent(lambda graph: partial(sweep.descend, graph), case, arrays)
            case "churn":
                return churn(lambda graph: graph, sweep.evaluate, case, arrays)
        contender = Evaluator[Run](
            build=lambda graph: partial(sweep.evaluate, graph),
            write=lambda *_: partial(formulas.evaluate, case),
            compile=lambda evaluate, _: evaluate,
            phases=("step",),
        )
        return evaluations(contender, case, arrays)
