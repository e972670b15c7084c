"""Measures what descent loops spend outside evaluations, on graphs of 10,000 operations.

Samples the loops with `perf`: what lies in the kernels of an instruction set or in machine code,
which has no name, is evaluation, and so is bringing inputs to their slots; the rest of the loop is
not. Compiling is neither. To subtract
times of evaluations from times of loops would not do: they differ by what the points do to the
kernels and by the machine's noise more than by what is looked for. The module needs its symbols:
install it with `pip install -Cinstall.strip=false .`, or copy that of build/*/stage over it.

    python tools/descent_overhead.py [--ops N] [--seconds S]
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

FAMILIES = ["chain", "random", "wide", "cheap"]
METHODS = ["sgd", "momentum", "adam", "lbfgs"]
#: Parts of names. Kernels of an instruction set are evaluation, but for those that move points.
KERNELS = re.compile(r"tapegrad::(avx\w+|baseline|neon)::")
MOVING, BRINGING = "::moving::", "Objective<double>::run"
ANONYMOUS = "[JIT]"  # what perf calls executable memory that is no file
LOOP = ("Descent<", "Objective<", "Search::", "Lbfgs::")


def descend(family, ops, lanes, method, seconds):
    """Run loops for so long; print steps taken and time per step and start."""
    import tapegrad as tg
    from tapegrad.worker import graphs
    from tapegrad.worker.adapters.tapegrad import record

    described = graphs.build(family, ops, 0)
    value, inputs = record(described)
    program = tg.compile(value, wrt=inputs)
    starts = np.random.default_rng(0).uniform(0.1, 0.9, (lanes, described.n_inputs))
    starts = starts[0] if lanes == 1 else starts
    options = {} if method == "lbfgs" else {"lr": 1e-5}
    steps, taken = 0, 0.0
    while taken < seconds:  # of this thread: others may have the processor, too
        begin = time.thread_time()
        found = program.minimize(starts, method, steps=50, threads=1, **options)
        taken += time.thread_time() - begin
        steps += (found.steps + 1) * lanes
    print(taken / steps * 1e6, described.n_inputs)


def shares(arguments):
    """Run `descend` in a process of its own; return its answer and the samples by symbol."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = str(pathlib.Path(folder) / "perf.data")
        command = [sys.executable, __file__, "--worker", *map(str, arguments)]
        answer = subprocess.run(
            ["perf", "record", "-q", "-F", "2000", "-o", recorded, *command],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        listed = subprocess.run(
            ["perf", "report", "-i", recorded, "--stdio", "-F", "sample,dso,symbol", "-t", "\t"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    counts = collections.Counter()
    for line in listed.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) == 3 and fields[1].startswith(("_core", ANONYMOUS)):
            counts[fields[2] if fields[1].startswith("_core") else ANONYMOUS] += int(fields[0])
    return answer.split(), counts


def inside_and_outside(counts):
    """Count the samples in evaluations, and those in the rest of the loop."""
    inside = outside = 0
    for symbol, samples in counts.items():
        if MOVING in symbol:
            outside += samples
        elif KERNELS.search(symbol) or BRINGING in symbol or symbol == ANONYMOUS:
            inside += samples
        elif any(name in symbol for name in LOOP):
            outside += samples
    if not inside:
        sys.exit(
            f"no kernel has a name in {sum(counts.values())} samples; see the notes on symbols"
        )
    return inside, outside


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--worker", nargs=5)
    chosen = parser.parse_args()
    if chosen.worker:
        family, ops, lanes, method, seconds = chosen.worker
        return descend(family, int(ops), int(lanes), method, float(seconds))
    print("graph    variables  starts  method     us a step    outside evaluations")
    for family in chosen.families:
        for lanes in (1, 64):
            for method in chosen.methods:
                (step, variables), counts = shares(
                    [family, chosen.ops, lanes, method, chosen.seconds]
                )
                inside, outside = inside_and_outside(counts)
                print(
                    f"{family:8} {variables:>9} {lanes:7}  {method:9} {float(step):10.2f} "
                    f"{outside / (inside + outside):12.1%} of {inside + outside:,} samples"
                )
    return None


if __name__ == "__main__":
    main()
