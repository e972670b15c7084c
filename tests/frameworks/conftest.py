"""TensorFlow and MXNet, which only `make test-frameworks` installs, in real workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tapegrad import bench
from tapegrad.bench.frameworks import find
from tapegrad.bench.guards import GUARDS
from tapegrad.bench.results import Results
from tapegrad.worker.case import Case

Check = Callable[..., Results]
#: Guards that look at results only; what the clock says is the subject of other tests.
RESULTS = ("values", "meaning", "dependence")


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Run cases in frameworks, looked at by the guards that are asked for."""

    def run(
        cases: Sequence[Case],
        frameworks: Sequence[str],
        dtype: str = "float32",
        guards: Sequence[str] = RESULTS,
    ) -> Results:
        for name in (*frameworks, "torch"):
            assert find(name).interpreter(), f"{name} is missing: `make test-frameworks` has it"
        kept = {name: GUARDS[name] for name in guards}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tapegrad.bench.given.GUARDS", kept)
            return bench.run(
                bench.Suite("chosen", "", tuple(cases)),
                frameworks=list(frameworks),
                dtype=dtype,
                store=tmp_path_factory.mktemp("store") / "results.sqlite",
                processes=1,
                rounds=1,
                block=0.001,
            )

    return run
