"""Fits two decays over a constant, five parameters, to a million noisy rows.

The program is the error of one row. Levenberg-Marquardt wants the errors themselves; L-BFGS wants
their squares, and goes on from any value and gradient.

    python examples/fit_rows.py [ROWS]
"""

import sys
import time

import numpy as np

import tapegrad as tg

TRUTH = np.array([1.5, 2.0, 0.8, 0.2, 0.4])
START = [2.0, 3.0, 1.0, 0.1, 0.0]


def curve(p, t, exp):
    """Return the model at a time: the same text for numbers and for Vars."""
    return p[0] * exp(-p[1] * t) + p[2] * exp(-p[3] * t) + p[4]


def measured(rows):
    """Return rows of a time and a value, column by column in memory."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 5, rows)
    return np.array([t, curve(TRUTH, t, np.exp) + 0.05 * rng.standard_normal(rows)]).T


def fits(rows):
    """Yield the fit of each method with the seconds it took."""
    g = tg.Graph()
    p, t, y = g.inputs(5), g.input("t"), g.input("y")
    error = curve(p, t, tg.exp) - y
    for method, output in (("lm", error), ("lbfgs", error**2)):
        program = tg.compile(output, wrt=p)
        begin = time.perf_counter()
        found = program.minimize(START, method, rows=rows, bounds=(0, np.inf), steps=500)
        yield method, found, time.perf_counter() - begin


def main():
    """Print what was found."""
    rows = measured(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    print(f"{len(rows):,} rows; truth {TRUTH}")
    for method, found, seconds in fits(rows):
        print(
            f"{method:6} {found.x.round(3)} after {found.steps} evaluations, {seconds:.2f} s; "
            f"ended by {found.reason}"
        )


if __name__ == "__main__":
    main()
