"""Suite `scalars`: tapegrad beside CasADi and JAX, with the bars it has to reach.

All of them record scalars, differentiate what they recorded and compile it. The chained Rosenbrock
function is what their users try first: value and gradient, and the Hessian, of whose million
entries 2,998 are not always zero. JAX has no sparse Hessian.
"""

from __future__ import annotations

from collections.abc import Iterable

from tapegrad.bench.bars import faster
from tapegrad.bench.suite import Bar, Suite
from tapegrad.bench.suites.graphs import graph
from tapegrad.worker.case import Array, Case
from tapegrad.worker.formulas import FORMULAS
from tapegrad.worker.graphs import FAMILIES

CASADI, JAX = "casadi", "jax"
SINGLE, BATCH = "tapegrad", "tapegrad-batch"
VARIABLES, ROWS = 1_000, 1_000
OPS, FEWER_OPS = 10_000, 1_000
#: Seconds for one answer: JAX takes 84 s to compile 1,000 operations; larger graphs do without it.
TIMEOUT = 300.0
#: Times faster than CasADi, by contender and phase.
AGAINST_CASADI = (
    (SINGLE, "build", 5.0),
    (SINGLE, "compile", 5.0),
    (SINGLE, "step", 5.0),
    (BATCH, "step", 30.0),
)


def formula(name: str, derivative: str, variables: int = VARIABLES, rows: int = ROWS) -> Case:
    """Describe value and gradient (`gradient`) or the sparse Hessian of a formula at many points.

    Entries of a Hessian are results themselves: no gradient is asked for beside them.
    """
    gradient = derivative == "gradient"
    return Case(
        level="graph",
        op=derivative,
        inputs=(Array("x", (rows, variables), grad=gradient, kind="uniform"),),
        attrs={"formula": name},
        size="medium",
        dtype="float64",
        phases=("build", "compile", "step"),
        reduction=FORMULAS[name].ops * (variables if gradient else 1),
    )


FORMULA_CASES = {
    f"Rosenbrock, {derivative}": formula("rosenbrock", derivative)
    for derivative in ("gradient", "hessian")
}
GRAPHS = {f"graph {name}": graph(name, OPS) for name in FAMILIES if name != "product"}
COMPILED = graph("chain", FEWER_OPS)


def _bars() -> Iterable[Bar]:
    for title, case in (FORMULA_CASES | GRAPHS).items():
        for ours, phase, bound in AGAINST_CASADI:
            found = faster(case, ours, CASADI, phase)
            yield Bar(f"{ours} / {CASADI}, {phase}, {title}", bound, found)
    title = f"{SINGLE} / {JAX}, compile, {FEWER_OPS:,} operations"
    yield Bar(title, 100.0, faster(COMPILED, SINGLE, JAX, "compile"))


SUITE = Suite(
    name="scalars",
    summary="tapegrad beside CasADi and JAX: Rosenbrock of 1,000 variables, graphs of 10,000 ops",
    cases=(*FORMULA_CASES.values(), COMPILED, *GRAPHS.values()),
    frameworks=(CASADI, JAX, SINGLE, BATCH),
    at_size={"large": (CASADI, SINGLE, BATCH)},
    defaults={"timeout": TIMEOUT},
    bars=tuple(_bars()),
)
