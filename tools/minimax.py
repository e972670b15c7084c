"""Prints the polynomial coefficients and split constants of core/scalar/maths*.h.

Each polynomial is the minimax one (Remez exchange) of a target function on an interval, under the
weight that turns its error into the relative error of the elementary function it serves. The
coefficients are then rounded one by one to double or float; the error printed is that of the
rounded polynomial, in units of the last place of a result of 1 (2^-52 or 2^-23).

    python3 tools/minimax.py [NAME ...]
"""

import struct
import sys

from mpmath import (
    atan,
    atanh,
    cos,
    erf,
    erfc,
    exp,
    expm1,
    floor,
    log,
    log1p,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    sin,
    sqrt,
)

mp.dps = 60


def polynomial(coefficients, x):
    """Evaluate the polynomial whose constant coefficient comes first."""
    value = mpf(0)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def nodes(low, high, count):
    """Return the Chebyshev points of the second kind, which crowd at both ends."""
    return [(low + high) / 2 - (high - low) / 2 * cos(pi * i / (count - 1)) for i in range(count)]


def remez(f, weight, low, high, count):
    """Find the `count` coefficients that minimise the maximum of |weight * (polynomial - f)|."""
    grid = nodes(low, high, 40 * (count + 1))
    values = [f(x) for x in grid]
    weights = [weight(x) for x in grid]
    reference = [round(i * (len(grid) - 1) / count) for i in range(count + 1)]
    for _ in range(40):
        a = matrix(count + 1, count + 1)
        b = matrix(count + 1, 1)
        for row, i in enumerate(reference):
            for k in range(count):
                a[row, k] = grid[i] ** k
            a[row, count] = (-1) ** row / weights[i]
            b[row] = values[i]
        solution = lu_solve(a, b)
        coefficients, level = list(solution[:count]), abs(solution[count])
        errors = [
            w * (polynomial(coefficients, x) - v)
            for x, v, w in zip(grid, values, weights, strict=True)
        ]
        extrema = alternating_extrema(errors, count + 1)
        worst = max(abs(e) for e in errors)
        if extrema is None or worst <= level * mpf("1.0005"):
            break
        reference = extrema
    return coefficients


def alternating_extrema(errors, count):
    """Find `count` extrema of alternating sign, the largest ones; None if there are too few."""
    runs = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs if len(runs) == count else None


def rounded(value, dtype):
    """Round to the nearest number of the type."""
    if dtype == "double":
        return float(value)
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def hexadecimal(value, dtype):
    """Write the number as an exact C++ literal."""
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}" + ("f" if dtype == "float" else "")


TINY = mpf(10) ** -15
LN2 = log(mpf(2))
SQRT2 = sqrt(mpf(2))
EXP_RANGE = (-LN2 / 2 - TINY, LN2 / 2 + 2 * TINY)
EXP_STEPS = 16  # steps of the table per doubling
LOG_STEPS = 16  # rows of the tables of log(1 + a)
STEP_RANGE = (-LN2 / 2 / EXP_STEPS - TINY, LN2 / 2 / EXP_STEPS + 2 * TINY)
LOG_Z = ((SQRT2 - 1) / (SQRT2 + 1)) ** 2


def exp_target(r):
    """Return Q(r) of e^r = 1 + r + r^2 Q(r)."""
    return (expm1(r) - r) / r**2


def log_target(z):
    """Return P(z) of 2 atanh(s) = 2 s + s z P(z), z = s^2."""
    return (2 * atanh(sqrt(z)) / sqrt(z) - 2) / z


def log_weight(z):
    """Return what makes an error of P(z) relative to the logarithm."""
    return z / (2 * atanh(sqrt(z)) / sqrt(z))


def erfc_shape(high):
    """Return H(t), its weight and the range of t for x from 0.7 to `high`."""
    c, k, low = mpf("1.5"), mpf(2), mpf("0.7")

    def target(t):
        x = (c + k * t) / (1 - t)
        return x * exp(x * x) * erfc(x)

    return target, lambda t: 1 / target(t), (low - c) / (low + k), (high - c) / (high + k)


# name: (target, weight, low, high, {dtype: number of coefficients})
POLYNOMIALS = {
    # e^r = 1 + r + r^2 Q(r), the error relative to e^r, or for "expm1" to e^r - 1
    "exp": (exp_target, lambda r: r**2 / exp(r), *STEP_RANGE, {"double": 5, "float": 2}),
    "expm1": (exp_target, lambda r: r**2 / expm1(r), *EXP_RANGE, {"double": 11, "float": 6}),
    # log(1 + f) = 2 atanh(s) = 2 s + s z P(z), s = f / (2 + f), z = s^2
    "log": (log_target, log_weight, TINY, LOG_Z, {"double": 7, "float": 3}),
    # log(1 + r) = r + r^2 Q(r), r up to 1/16
    "log1p_unit": (
        lambda r: (log1p(r) - r) / r**2,
        lambda r: r**2 / log1p(r),
        -TINY,
        mpf(1) / LOG_STEPS + 2 * TINY,
        {"double": 8, "float": 3},
    ),
    # sin r = r + r z P(z), z = r^2
    "sin": (
        lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z,
        lambda z: z * sqrt(z) / sin(sqrt(z)),
        TINY,
        (pi / 4) ** 2,
        {"double": 6, "float": 3},
    ),
    # cos r = 1 - z / 2 + z^2 P(z), z = r^2
    "cos": (
        lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2 / cos(sqrt(z)),
        mpf(10) ** -10,
        (pi / 4) ** 2,
        {"double": 6, "float": 3},
    ),
    # atan t = t + t z P(z), z = t^2, t up to tan(pi / 8)
    "atan": (
        lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z,
        lambda z: z * sqrt(z) / atan(sqrt(z)),
        TINY,
        (SQRT2 - 1) ** 2,
        {"double": 11, "float": 5},
    ),
    # erf x = x + x P(z), z = x^2, x up to 0.7
    "erf": (
        lambda z: erf(sqrt(z)) / sqrt(z) - 1,
        lambda z: sqrt(z) / erf(sqrt(z)),
        TINY,
        mpf("0.49"),
        {"double": 11, "float": 6},
    ),
    # x e^(x^2) erfc x = H(t), t = (x - 1.5) / (x + 2), x from 0.7 to where erfc is 0
    "erfc.double": (*erfc_shape(high=28), {"double": 21}),
    "erfc.float": (*erfc_shape(high=11), {"float": 9}),
}


# name: (value, {dtype: bits of each part}); all parts are cut off, not rounded
SPLITS = {
    "ln 2": (LN2, {"double": [42, 53], "float": [16, 24]}),
    "ln 2 / 16": (LN2 / EXP_STEPS, {"double": [38, 53], "float": [12, 24]}),
    "log10 2": (LN2 / log(mpf(10)), {"double": [42, 53], "float": [16, 24]}),
    "pi / 2, fused": (pi / 2, {"double": [53, 53, 53], "float": [24, 24, 24]}),
    "pi / 2, split": (pi / 2, {"double": [33, 33, 33, 53], "float": [14] * 5 + [24]}),
}


def parts(value, bits, dtype):
    """Split the value into parts of these many bits."""
    for count in bits:
        unit = mpf(2) ** (floor(log(value, 2)) - count + 1)
        part = floor(value / unit) * unit
        yield hexadecimal(rounded(part, dtype), dtype)
        value -= part


def exp_table(dtype):
    """Return 2^(i / 16), with i taken off where the step count's lowest bits will be added."""
    code, integer, fraction = ("d", "q", 52) if dtype == "double" else ("f", "i", 23)
    for i in range(EXP_STEPS):
        power = rounded(mpf(2) ** (mpf(i) / EXP_STEPS), dtype)
        (bits,) = struct.unpack(integer, struct.pack(code, power))
        entry = struct.pack(integer, bits - (i << (fraction - 4)))
        yield hexadecimal(struct.unpack(code, entry)[0], dtype)


def log_tables(dtype):
    """Return 1 / (1 + t) and log(1 + t) at t = i / 16."""
    steps = [mpf(i) / LOG_STEPS for i in range(LOG_STEPS)]
    for table in ([1 / (1 + t) for t in steps], [log1p(t) for t in steps]):
        yield ", ".join(hexadecimal(rounded(value, dtype), dtype) for value in table)


def main(names):
    """Print the polynomials of these names; without any all of them and the split constants."""
    for name, (value, splits) in ({} if names else SPLITS).items():
        for dtype, bits in splits.items():
            print(f"// {name}, {dtype}")
            print(", ".join(parts(value, bits, dtype)) + "\n")
    for dtype in () if names else ("double", "float"):
        print(f"// table of exp, {dtype}\n" + ", ".join(exp_table(dtype)) + "\n")
        print(f"// tables of log1p_unit, {dtype}\n" + "\n".join(log_tables(dtype)) + "\n")
    for name in names or POLYNOMIALS:
        target, weight, low, high, counts = POLYNOMIALS[name]
        for dtype, count in counts.items():
            exact = remez(target, weight, low, high, count)
            coefficients = [rounded(c, dtype) for c in exact]
            error = max(
                abs(weight(x) * (polynomial(coefficients, x) - target(x)))
                for x in nodes(low, high, 500)
            )
            ulps = error * 2 ** (52 if dtype == "double" else 23)
            print(f"// {name}, {dtype}: {mp.nstr(ulps, 3)} ulp")
            print(", ".join(hexadecimal(c, dtype) for c in coefficients))
            rest = rounded(exact[0] - coefficients[0], dtype)
            print(f"// what the first coefficient lacks: {hexadecimal(rest, dtype)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
