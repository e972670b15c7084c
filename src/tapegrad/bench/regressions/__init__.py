"""Which operators got slower: `compare` two runs, or run a suite `nightly`."""

from tapegrad.bench.regressions.changes import Comparison, Difference, Series, compare
from tapegrad.bench.regressions.nights import Alarm, Nightly, Step, nightly

__all__ = ["Alarm", "Comparison", "Difference", "Nightly", "Series", "Step", "compare", "nightly"]
