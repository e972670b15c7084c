"""Formulas and the suite `scalars`: derivatives by hand and by contenders, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import rosen, rosen_der, rosen_hess

from tapegrad import bench
from tapegrad.bench import frameworks
from tapegrad.bench.bars import faster, time_of
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.results import Results
from tapegrad.bench.suites import scalars
from tapegrad.worker import formulas
from tapegrad.worker.adapter import Adapter, Unsupported, Work
from tapegrad.worker.case import Case
from tapegrad.worker.session import load_adapter

Arrays = dict[str, NDArray[Any]]

GRADIENT, HESSIAN = (
    scalars.formula("rosenbrock", derivative, variables=7, rows=13)
    for derivative in formulas.DERIVATIVES
)
CONTENDERS = ("numpy", "tapegrad", "tapegrad-batch", "tapegrad-batch-float32")
OTHERS = [name for name in ("jax", "casadi") if frameworks.find(name).interpreter() is not None]


def adapter(name: str) -> Adapter:
    found = frameworks.find(name)
    return load_adapter(found.file, found.adapter)("cpu", 1)


def points(case: Case, seed: int) -> NDArray[Any]:
    return np.random.default_rng(seed).random(case.inputs[0].shape)


def known(case: Case, x: NDArray[Any]) -> Arrays:
    """Ask SciPy; of a Hessian, for the entries of its three diagonals by rows."""
    if case.op == "hessian":
        places = np.arange(x.shape[1])
        rows, columns = np.nonzero(np.abs(places[:, None] - places) <= 1)
        return {"output0": np.array([rosen_hess(row)[rows, columns] for row in x])}
    return {
        "output0": np.array([rosen(row) for row in x]),
        "grad:x": np.array([rosen_der(row) for row in x]),
    }


def assert_right(case: Case, work: Work, phase: str, x: NDArray[Any], tolerance: float) -> None:
    todo = work.phases[phase]
    if todo.setup is not None:
        todo.setup()
    found = work.arrays(phase, todo.call())
    wanted = known(case, x)
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=tolerance, atol=tolerance * 1_000)


@pytest.mark.parametrize("case", [GRADIENT, HESSIAN], ids=lambda case: case.op)
@pytest.mark.parametrize("name", CONTENDERS)
def test_contenders_give_what_scipy_gives(name: str, case: Case) -> None:
    work = adapter(name).prepare(case, {"x": points(case, 9)})
    for seed in (1, 2):
        x = points(case, seed)
        work.feed({"x": x}, [])
        for phase in set(work.phases) - {"build"}:
            assert_right(case, work, phase, x, 1e-5 if "32" in name else 1e-12)


@pytest.mark.parametrize("case", [GRADIENT, HESSIAN], ids=lambda case: case.op)
@pytest.mark.parametrize("name", ["python-tape", "tapegrad-loop"])
def test_contenders_for_lists_of_operations_take_no_formulas(name: str, case: Case) -> None:
    with pytest.raises(Unsupported):
        adapter(name).prepare(case, {"x": points(case, 1)})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run the formulas in workers; what the clock says is not the subject."""
    kept = {name: GUARDS[name] for name in ("values", "meaning", "dependence")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tapegrad.bench.given.GUARDS", kept)
        return bench.run(
            bench.Suite("chosen", "", (GRADIENT, HESSIAN)),
            frameworks=[*OTHERS, "tapegrad", "tapegrad-batch"],
            store=tmp_path_factory.mktemp("store") / "results.sqlite",
            processes=1,
            rounds=1,
            block=0.001,
        )


def test_workers_are_checked_in_every_phase(results: Results) -> None:
    ops = {GRADIENT.key: "gradient", HESSIAN.key: "hessian"}
    for cell in results.cells:
        lacks = cell.framework == "jax" and ops[cell.case] == "hessian"
        assert cell.verdict == ("unsupported" if lacks else "checked"), cell
    assert len(results.cells) == 2 * 3 * (len(OTHERS) + 2)


def test_bars_compare_phases(results: Results) -> None:
    times = [time_of(results, HESSIAN, name, "compile") for name in ("tapegrad", "tapegrad-batch")]
    found = faster(HESSIAN, "tapegrad-batch", "tapegrad", "compile")(results)
    assert None not in times
    assert found == pytest.approx(times[0] / times[1])  # type: ignore[operator]
    assert faster(HESSIAN, "tapegrad", "c")(results) is None


def test_the_suite_asks_for_each_phase_of_each_case_against_casadi() -> None:
    for name in scalars.SUITE.frameworks:
        frameworks.find(name)
    titles = [bar.title for bar in scalars.SUITE.bars]
    assert len(set(titles)) == len(titles) == 6 * 4 + 1
    for case in scalars.GRAPHS.values():
        assert not scalars.SUITE.takes_part("jax", case)
    assert scalars.SUITE.takes_part("jax", scalars.COMPILED)
    for case in scalars.FORMULA_CASES.values():
        assert formulas.n_variables(case) == 1_000
