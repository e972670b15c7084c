"""Benchmarks that show that both sides did the same work before they print a ratio.

    from tapegrad import bench
    result = bench.measure({"mine": f, "theirs": g}, inputs, backward=True)
    print(result)

`bench.run` runs a suite over frameworks, each in worker processes of its own; `tapegrad bench` is
its command line.
"""

try:
    from tapegrad.bench.driver import Listener, Options, run
    from tapegrad.bench.errors import BenchError
    from tapegrad.bench.functions import Function, Result, measure
    from tapegrad.bench.results import Results
    from tapegrad.bench.statistics import Ratio
    from tapegrad.bench.suite import Bar, Suite
except ModuleNotFoundError as error:
    advice = "pip install 'tapegrad[bench]'"
    raise ImportError(
        f"tapegrad.bench needs {error.name}, which its extra has: {advice}"
    ) from error
from tapegrad.worker.case import Array, Case

__all__ = [
    "Array",
    "Bar",
    "BenchError",
    "Case",
    "Function",
    "Listener",
    "Options",
    "Ratio",
    "Result",
    "Results",
    "Suite",
    "measure",
    "run",
]
