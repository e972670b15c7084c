"""Times value and gradient of a 5-parameter fit to many rows: tapegrad against JAX's jit.

Each contender is a process of its own, in its own environment; all have the same data, must agree
on value and gradient before anything is timed, and take turns, so that a busy machine is busy for
all of them. Ratios are medians of those of each turn.

    python tools/fit_rows.py [--rows N] [--rounds N] [--dtype float64]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np

PARAMETERS = [2.0, 0.7, 1.0, 0.1, 0.5]
CONTENDERS = ["jax", "tapegrad", "tapegrad, rows in C order", "tapegrad, 1 thread"]


def data(rows, dtype):
    """Return times and noisy values of two decays and a constant."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 5, rows)
    y = 1.5 * np.exp(-0.9 * t) + 0.8 * np.exp(-0.2 * t) + 0.4 + 0.05 * rng.normal(size=rows)
    return t.astype(dtype), y.astype(dtype)


def with_jax(t, y):
    """Return a function of parameters to value and gradient, by JAX."""
    import jax

    jax.config.update("jax_enable_x64", t.dtype == np.float64)
    jnp = jax.numpy
    t, y = jnp.asarray(t), jnp.asarray(y)

    def loss(p, t, y):
        return jnp.mean((p[0] * jnp.exp(-p[1] * t) + p[2] * jnp.exp(-p[3] * t) + p[4] - y) ** 2)

    jitted = jax.jit(jax.value_and_grad(loss))
    return lambda p: jax.block_until_ready(jitted(p, t, y))


def with_tapegrad(t, y, order, threads):
    """Return the same by tapegrad."""
    import tapegrad as tg

    g = tg.Graph()
    p, time_, value = g.inputs(5), g.input("t"), g.input("y")
    error = p[0] * tg.exp(-p[1] * time_) + p[2] * tg.exp(-p[3] * time_) + p[4] - value
    program = tg.compile(error**2, wrt=p, dtype=t.dtype)
    rows = np.array([t, y]).T.copy(order)
    return lambda p: program.batch(rows, threads, shared=p, reduce="mean")


def work(name, rows, dtype):
    """Answer on standard output: first the results, then a time for each line that comes."""
    t, y = data(rows, dtype)
    if name == "jax":
        f = with_jax(t, y)
    else:
        f = with_tapegrad(
            t, y, "C" if "C order" in name else "F", 1 if "1 thread" in name else None
        )
    p = np.array(PARAMETERS, dtype)
    value, gradient = f(p)
    print(json.dumps([float(value), np.asarray(gradient, float).tolist()]), flush=True)
    for line in sys.stdin:
        calls = int(line)
        start = time.perf_counter(), time.process_time()
        for _ in range(calls):
            f(p)
        end = time.perf_counter(), time.process_time()
        print(*((b - a) / calls for a, b in zip(start, end, strict=True)), flush=True)


class Worker:
    """A contender in a process of its own."""

    def __init__(self, name, options):
        python = sys.executable
        if name == "jax":
            from tapegrad.bench import frameworks

            python = frameworks.find("jax").interpreter()
            if python is None:
                sys.exit("jax is not there; `tapegrad bench frameworks install jax` installs it")
        self.process = subprocess.Popen(
            [python, __file__, "--worker", name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.value, self.gradient = json.loads(self.process.stdout.readline())

    def time(self, calls):
        """Return seconds per call, by the clock and of processors."""
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return tuple(map(float, self.process.stdout.readline().split()))

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    parser.add_argument("--worker")
    chosen = parser.parse_args()
    if chosen.worker:
        return work(chosen.worker, chosen.rows, chosen.dtype)
    options = [f"--rows={chosen.rows}", f"--dtype={chosen.dtype}"]
    workers = {name: Worker(name, options) for name in CONTENDERS}
    tolerance = 1e-9 if chosen.dtype == "float64" else 1e-3
    first = workers[CONTENDERS[0]]
    for worker in workers.values():
        np.testing.assert_allclose(worker.value, first.value, rtol=tolerance)
        np.testing.assert_allclose(worker.gradient, first.gradient, rtol=tolerance, atol=tolerance)
    times = {name: [] for name in workers}
    for _ in range(chosen.rounds):
        for name, worker in workers.items():
            times[name].append(worker.time(chosen.calls))
    for worker in workers.values():
        worker.close()
    print(f"{chosen.rows:,} rows, {chosen.dtype}: ms per value and gradient, medians")
    print(f"{'':28}     clock  jax/this   processors  jax/this")
    for name, seconds in times.items():
        columns = []
        for kind in (0, 1):
            own = [both[kind] for both in seconds]
            theirs = [both[kind] for both in times["jax"]]
            ratio = statistics.median(a / b for a, b in zip(theirs, own, strict=True))
            columns.append(f"{statistics.median(own) * 1e3:10.2f} {ratio:9.2f}")
        print(f"{name:28} {'   '.join(columns)}")
    return None


if __name__ == "__main__":
    main()
