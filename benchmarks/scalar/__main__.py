"""Run the benchmark: `python -m benchmarks.scalar` from the root of the repository."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scalar import c_process, chart, report, studies
from benchmarks.scalar.contenders import progress
from benchmarks.scalar.graphs import FAMILIES
from benchmarks.scalar.results import Results


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scalar", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: one to two minutes")
    parser.add_argument("--only", help=f"families, from {','.join(FAMILIES)}")
    parser.add_argument("--rounds", type=int, help="rounds of the main tables")
    parser.add_argument("--graphs", type=int, help="different graphs in the last study")
    parser.add_argument(
        "--all-graphs", action="store_true", help=f"all {studies.CHURN_GRAPHS:,} of them"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench"), metavar="DIR")
    options = parser.parse_args(arguments)
    options.families = options.only.split(",") if options.only else list(FAMILIES)
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"--only knows {', '.join(FAMILIES)}, not {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (8 if options.quick else 40)
    options.graphs = options.graphs or (10 if options.quick else 40)
    if options.all_graphs:
        options.graphs = studies.CHURN_GRAPHS
    return options


def machine() -> dict[str, str]:
    """Describe what the numbers depend on."""
    return {
        "machine": f"{_cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "python": f"{platform.python_version()} on {platform.system()}",
        "C flags": " ".join(c_process.flags()),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")


def plan(bench: studies.Bench, options: argparse.Namespace) -> list[partial[None]]:
    """List the studies to run, in order."""
    growing = [family for family in options.families if family in studies.SCALING_FAMILIES]
    parts = [partial(studies.call, bench)]
    parts += [partial(studies.evaluation, bench, family) for family in options.families]
    parts += [partial(studies.scaling, bench, family) for family in growing]
    if "random" in options.families:
        parts.append(partial(studies.churn, bench, options.graphs))
    return parts


def main() -> int:
    """Measure, print, save. An interrupted run reports what it has."""
    options = parse()
    results = Results(machine())
    interrupted = False
    with TemporaryDirectory(prefix="scalar-bench-") as scratch:
        try:
            binary = c_process.build(Path(scratch))
            bench = studies.Bench(binary, Path(scratch), results, options.rounds)
            for study in plan(bench, options):
                study()
        except KeyboardInterrupt:
            interrupted = True
            progress("interrupted: reporting what has been measured\n")
    if not studies.HAS_ENGINE:
        print("tapegrad is not installed: only the C contenders were measured\n")
    print(report.render(results))
    options.output.mkdir(parents=True, exist_ok=True)
    samples, picture = options.output / "scalar.json", options.output / "scalar.png"
    samples.write_text(json.dumps(results.as_json(), indent=1))
    chart.draw(results, picture)
    print(f"samples: {samples}\npicture: {picture}")
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
