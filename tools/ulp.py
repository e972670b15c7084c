"""Measures the maximal error of core/scalar/maths.h on every instruction set of this machine.

Builds tools/ulp.cpp once per instruction set, runs it, prints a table and compares it with the
bounds. Fails if an error is beyond its bound, if vectors of different widths differ in any bit, or
if AVX2 and AVX-512 do. With `--neon` it runs the AArch64 variant under qemu-aarch64.

    python3 tools/ulp.py [--samples N] [--neon] [FUNCTION ...]
"""

import argparse
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).with_name("ulp.cpp")
FLAGS = ["-O3", "-std=gnu++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"]
VARIANTS = {"baseline": [], "avx2": AVX2, "avx512": AVX512}
NEEDED = {"baseline": "sse2", "avx2": "fma", "avx512": "avx512bw"}

# The largest errors allowed, in ulp.
DEFAULT_BOUND = 4
BOUNDED = {
    0: ["sqrt", "floor", "ceil", "round_even", "maximum", "minimum"],
    2: ["exp", "expm1", "log", "log1p", "sin", "cos", "sincos.0", "sincos.1"],
    3: ["tanh", "sigmoid", "softplus", "softplus_sigmoid.0", "softplus_sigmoid.1"],
    8: ["gelu"],
}
BOUNDS = {function: bound for bound, functions in BOUNDED.items() for function in functions}
TWO_ARGUMENTS = ("atan2", "pow", "hypot", "maximum", "minimum")
PAIRED = {
    "sincos.0": "sin",
    "sincos.1": "cos",
    "softplus_sigmoid.0": "softplus",
    "softplus_sigmoid.1": "sigmoid",
}


@dataclasses.dataclass
class Variant:
    """How to build and run the program for one instruction set."""

    isa: str
    compiler: list[str]
    libraries: list[str]
    runner: list[str]


def variants(neon):
    """Yield what this machine can run."""
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    for isa, flags in VARIANTS.items():
        if NEEDED[isa] in cpu:
            yield Variant(isa, ["g++", *FLAGS, *flags], ["-lquadmath"], [])
    if neon and shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64"):
        compiler = ["aarch64-linux-gnu-g++", *FLAGS, "-static"]
        yield Variant("neon", compiler, [], ["qemu-aarch64"])


def measure(variant, samples, functions):
    """Return rows [function, dtype, error, argument, argument, checksum, widths]."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/ulp"
        isa = f"-DTG_ISA={variant.isa}"
        build = [*variant.compiler, isa, str(SOURCE), "-o", program, *variant.libraries]
        subprocess.run(build, check=True)
        run = [*variant.runner, program, str(samples), *functions]
        output = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    return [line.split() for line in output.splitlines()]


def main():
    """Print the table; return whether anything is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--neon", action="store_true")
    parser.add_argument("functions", nargs="*")
    arguments = parser.parse_args()

    problems = []
    checksums = {}
    print(f"{'function':20} {'dtype':8} {'isa':9} {'max ulp':>8} {'bound':>6}  at")
    for variant in variants(arguments.neon):
        isa = variant.isa
        for row in measure(variant, arguments.samples, arguments.functions):
            function, dtype, error, a, b, checksum, widths = row
            bound = BOUNDS.get(function, DEFAULT_BOUND)
            at = f"{a}, {b}" if function in TWO_ARGUMENTS else a
            print(f"{function:20} {dtype:8} {isa:9} {error:>8} {bound:>6}  {at}")
            checksums[isa, function, dtype] = checksum
            if not float(error) <= bound:
                problems.append(f"{function} {dtype} {isa}: {error} ulp at {at}")
            if widths != "same":
                problems.append(f"{function} {dtype} {isa}: widths differ")
            if isa == "avx512" and checksums["avx2", function, dtype] != checksum:
                problems.append(f"{function} {dtype}: avx2 and avx512 differ")
            if checksums.get((isa, PAIRED.get(function), dtype), checksum) != checksum:
                problems.append(f"{function} {dtype} {isa}: paired and single differ")
    print("\n".join(problems) or "all within bounds, the same bits in all widths")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
