"""The machine: what it is, what else changes its speed, and how fast it was found to be."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from msgspec.structs import replace
from threadpoolctl import threadpool_limits

from tapegrad.bench.results import Machine
from tapegrad.worker.controls import copying

#: Copied by the bandwidth probe: more than caches hold.
COPY_BYTES = 1 << 26
MATMUL_SIDE = 512
PROBE_RUNS = 5
CPU_FOLDER = Path("/sys/devices/system/cpu/cpu0")
#: What NVIDIA's tool is asked, and how long it may take.
GPU_QUESTION = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version",
    "--format=csv,noheader",
)
GPU_SECONDS = 20


def describe() -> Machine:
    """Describe this machine without measuring anything."""
    fixed = {
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "threads": os.cpu_count(),
        "memory": round(psutil.virtual_memory().total / 2**30),
        "caches": _caches(),
        "architecture": platform.machine(),
        "system": platform.system(),
    }
    cards, driver = gpus()
    if cards:
        fixed["GPU"] = cards
    digest = hashlib.sha256(repr(sorted(fixed.items())).encode()).hexdigest()[:12]
    details = fixed | {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "governor": _first_line(CPU_FOLDER / "cpufreq/scaling_governor") or "unknown",
        "quota": _first_line(Path("/sys/fs/cgroup/cpu.max")) or "none",
        "usable": len(usable()),
        "load": os.getloadavg()[0],
    }
    if cards:
        details["GPU driver"] = driver
    name = f"{fixed['processor']}, {fixed['threads']} threads, {fixed['memory']} GiB"
    return Machine(digest, f"{name}, {cards}" if cards else name, details)


def measured() -> Machine:
    """Describe this machine with its measured rates among the details."""
    found = describe()
    return replace(found, details=found.details | probe())


def probe() -> dict[str, float]:
    """Measure what one core copies (bytes read and written a second) and multiplies (flop/s)."""
    copied = fastest(copying(COPY_BYTES))
    rates = {f"matmul {dtype}": multiplying(dtype) for dtype in ("float32", "float64")}
    return {"copy bandwidth": 2 * COPY_BYTES / copied, **rates}


def multiplying(dtype: str) -> float:
    """Measure how many operations a second a matrix product does on one core."""
    matrix = np.ones((MATMUL_SIDE, MATMUL_SIDE), dtype=dtype)
    with threadpool_limits(1):
        return 2 * MATMUL_SIDE**3 / fastest(lambda: matrix @ matrix)


def processor() -> str:
    """Return the processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


@cache
def gpus() -> tuple[str, str]:
    """Return the GPUs with their memory, and their driver; nothing where there are none."""
    try:
        done = subprocess.run(
            GPU_QUESTION, capture_output=True, text=True, check=True, timeout=GPU_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return "", ""
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return " + ".join(f"{name} {memory}" for name, memory, _ in rows), rows[0][2] if rows else ""


def fastest(call: Callable[[], Any]) -> float:
    """Return the seconds of the shortest of several calls."""
    times = []
    for _ in range(PROBE_RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _caches() -> str:
    folders = sorted((CPU_FOLDER / "cache").glob("index*"))
    found = [
        (_first_line(f / "level"), _first_line(f / "type"), _first_line(f / "size"))
        for f in folders
    ]
    return ", ".join(f"L{level} {kind.lower()} {size}" for level, kind, size in found) or "unknown"


def _first_line(file: Path) -> str:
    try:
        return file.read_text().strip().splitlines()[0]
    except (OSError, IndexError):
        return ""


def waited() -> float:
    """Return the seconds so far in which this thread was ready but others had the processor."""
    fields = _first_line(Path("/proc/thread-self/schedstat")).split()
    return int(fields[1]) * 1e-9 if len(fields) > 1 else 0.0


def usable() -> set[int]:
    """Return the processors that this process may use."""
    return (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(os.cpu_count() or 1))
    )
