"""Which operator takes the time of a user's network: `tapegrad bench profile`.

Steps of the model run in worker processes, with PyTorch's profiler and without, in turns; then each
operator runs alone. `visits` are the raw times, `results` what follows from them, `page` and
`chart` show that. What happens within a worker is told in `tapegrad.worker.profiling`.
"""

from tapegrad.bench.profile.measure import profile
from tapegrad.bench.profile.results import Profile

__all__ = ["Profile", "profile"]
