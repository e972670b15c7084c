"""Control kernels keep to themselves."""

from __future__ import annotations

import os
import subprocess
import sys

SHARE = """
import time
from tapegrad.worker.controls import Controls

def others(work):  # processor time of other threads meanwhile, by that of this one
    process, own = time.process_time(), time.thread_time()
    work()
    used = time.thread_time() - own
    return (time.process_time() - process - used) / used

def count():
    sum(range(1_000_000))

controls = Controls()
while others(count) > 0.1:  # NumPy's threads wait busily at first
    pass
print(others(lambda: [controls.run() for _ in range(20)]))
"""


def test_control_kernels_leave_no_thread_that_waits_busily() -> None:
    threads = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", SHARE],
        env=os.environ | threads,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert float(ran.stdout) < 0.1
