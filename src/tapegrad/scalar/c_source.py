"""Programs as standalone C99.

Every instruction becomes a statement of its own, sums with their terms in the order in which the
executors add them. Programs of more than a few hundred instructions become several functions, as
the time compilers take grows faster than a function's length; values that one of them leaves to
another lie in an array `w`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import Template
from typing import Any, NamedTuple

import numpy as np

from tapegrad import _core
from tapegrad.errors import OptionError
from tapegrad.scalar.c_names import check_name

#: Instructions of one C function.
PART = 250

#: Operations that C writes as an expression; `$f` is the suffix of float's functions and literals.
EXPRESSIONS = {
    "neg": "-$a",
    "sub": "$a - $b",
    "sub_product": "$a - $b * $c",
    "product_sub": "$a * $b - $c",
    "div": "$a / $b",
    "square": "$a * $a",
    "abs": "fabs$f($a)",
    "lt": "$a < $b ? 1.0$f : 0.0$f",
    "le": "$a <= $b ? 1.0$f : 0.0$f",
    "gt": "$a > $b ? 1.0$f : 0.0$f",
    "ge": "$a >= $b ? 1.0$f : 0.0$f",
    "eq": "$a == $b ? 1.0$f : 0.0$f",
    "ne": "$a != $b ? 1.0$f : 0.0$f",
    "where": "$a != 0.0$f ? $b : $c",
    # The engine takes these in double, too.
    "pow": "($T)pow($a, $b)",
    "atan2": "($T)atan2($a, $b)",
    "hypot": "($T)hypot($a, $b)",
    "round": "rint$f($a)",
}

#: Operations that need a function of ours: they say what C's have no word for, or are stable.
FUNCTIONS = {
    "masked_mul": "$T ${name}_masked_mul($T a, $T b) { return a == 0 ? a : a * b; }",
    "masked_both": "$T ${name}_masked_both($T a, $T b) { return a == 0 ? a : b == 0 ? b : a * b; }",
    "relu": "$T ${name}_relu($T a) { return a != a || a > 0 ? a : 0; }",
    "sign": "$T ${name}_sign($T a) { return a < 0 ? -1 : a > 0 ? 1 : a; }",
    "maximum": "$T ${name}_maximum($T a, $T b) { return a != a || a > b ? a : b; }",
    "minimum": "$T ${name}_minimum($T a, $T b) { return a != a || a < b ? a : b; }",
    "remainder": "$T ${name}_remainder($T a, $T b) {\n"
    "    const double rest = fmod(a, b);\n"
    "    if (rest == 0) return copysign$f(0, b);\n"
    "    return ($T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);\n}",
    "floor_divide": "$T ${name}_floor_divide($T a, $T b) {\n"
    "    const double quotient = (double)a / b, rest = fmod(a, b);\n"
    "    if (isinf(quotient)) return ($T)(b == 0 || !isnan(rest) ? quotient : rest);\n"
    "    const double rounded = isinf(b) ? 0 : (fma(-quotient, b, a) - rest) / b;\n"
    "    const int opposed = rest != 0 && (rest < 0) != (b < 0);\n"
    "    const double whole = rint(quotient + (rounded - opposed));\n"
    "    return ($T)(whole == 0 ? copysign(0.0, quotient) : whole);\n}",
    "gelu": "$T ${name}_gelu($T a) {\n"
    "    return a < -40 ? -0.0$f : ($T)(0.5 * a * erfc(-0.7071067811865476 * a));\n}",
    "sigmoid": "$T ${name}_sigmoid($T a) {\n"
    "    const $T e = exp$f(-fabs$f(a));\n"
    "    return (a < 0 ? e : 1) / (1 + e);\n}",
    "softplus": "$T ${name}_softplus($T a) {\n"
    "    return (a > 0 ? a : 0) + log1p$f(exp$f(-fabs$f(a)));\n}",
    "prod": "$T ${name}_prod(const $T *a, int n) {\n"
    "    $T y = a[0];\n"
    "    for (int i = 1; i < n; ++i) y *= a[i];\n"
    "    return y;\n}",
    "max": "$T ${name}_max(const $T *a, int n) {\n"
    "    $T y = a[0];\n"
    "    for (int i = 1; i < n; ++i)\n"
    "        if (y == y && !(y > a[i])) y = a[i];\n"
    "    return y;\n}",
    "min": "$T ${name}_min(const $T *a, int n) {\n"
    "    $T y = a[0];\n"
    "    for (int i = 1; i < n; ++i)\n"
    "        if (y == y && !(y < a[i])) y = a[i];\n"
    "    return y;\n}",
    "logsumexp": "$T ${name}_logsumexp(const $T *a, int n) {\n"
    "    $T top = a[0], total = 0;\n"
    "    for (int i = 1; i < n; ++i)\n"
    "        if (a[i] > top) top = a[i];\n"
    "    if (!(fabs$f(top) < INFINITY)) top = 0;\n"
    "    for (int i = 0; i < n; ++i) total += exp$f(a[i] - top);\n"
    "    return top + log$f(total);\n}",
    "softmax": "void ${name}_softmax(const $T *a, int n, $T *y) {\n"
    "    $T top = a[0], total = 0;\n"
    "    for (int i = 1; i < n; ++i)\n"
    "        if (a[i] > top) top = a[i];\n"
    "    for (int i = 0; i < n; ++i) total += y[i] = exp$f(a[i] - top);\n"
    "    for (int i = 0; i < n; ++i) y[i] *= 1 / total;\n}",
    "softmax_vjp": "void ${name}_softmax_vjp(const $T *a, int n, $T *y) {\n"
    "    const $T *g = a + n;\n"
    "    $T mean = 0;\n"
    "    for (int i = 0; i < n; ++i) mean += a[i] * g[i];\n"
    "    for (int i = 0; i < n; ++i) y[i] = a[i] * (g[i] - mean);\n}",
}

FOLDED = ("prod", "max", "min", "logsumexp")
#: Two results of one operand, and the operations they are.
PAIRED = {"softplus_sigmoid": ("softplus", "sigmoid"), "sincos": ("sin", "cos")}


class Instruction(NamedTuple):
    """A line of a program's listing."""

    kernel: str
    first: int
    results: int
    n: int
    m: int
    operands: Sequence[int]


def source(program: _core.Program, name: str) -> str:
    """Return a file of C that computes what a program does."""
    check_name(name)
    if program.calls is not None:
        raise OptionError(
            f"to_c: the program calls the Python function {program.calls!r}, which C cannot"
        )
    if program.frozen_branches():
        raise OptionError(
            "to_c: the program has frozen branches, and C has no way to say that a point takes "
            "another one; write tg.where instead of `if`"
        )
    dialect = Dialect(name, program.dtype == "float32")
    values = "value" if program.n_outputs == 1 else "values"
    results = [(values, program.n_outputs)]
    if program.n_derivatives:
        derivatives = "gradient" if program.n_outputs == 1 else "jacobian"
        results.append((derivatives, program.n_outputs * program.n_derivatives))
    main = Function(dialect, name, program.listing(), results).text()
    code = [*dialect.parts.values(), main]
    sizes = ", ".join(f"{result}[{count}]" for result, count in results)
    return "\n".join(
        [
            f"/* Written by tapegrad: x[{program.n_inputs}] to {sizes}, row by row. */",
            "#include <math.h>",
            *(["#include <stdlib.h>"] if any("malloc(" in text for text in code) else []),
            "",
            *(f"static {text}\n" for text in dialect.used_functions()),
            *(f"{text}\n" for text in code),
        ]
    )


class Dialect:
    """The number type, the names, and which functions of ours a file needs."""

    def __init__(self, name: str, single: bool) -> None:
        self.name = name
        self.single = single
        self.type = "float" if single else "double"
        #: Tables and bodies of loops by their names, those that others need first.
        self.parts: dict[str, str] = {}
        self._names: dict[tuple[str, bytes], str] = {}
        self._used: set[str] = set()

    def fill(self, template: str, **operands: str) -> str:
        """Fill in the type, the suffix of its functions, and operands."""
        fixed = {"T": self.type, "f": "f" if self.single else "", "name": self.name}
        return Template(template).substitute(fixed, **operands)

    def part(self, kind: str, key: bytes, text: Callable[[str], str]) -> str:
        """Return the name of a part of loops: those with one key are written once."""
        if (kind, key) not in self._names:
            name = self._names[kind, key] = f"{self.name}_{kind}{len(self.parts)}"
            self.parts[name] = text(name)
        return self._names[kind, key]

    def used_functions(self) -> Iterator[str]:
        """Yield the text of the functions that were called."""
        return (self.fill(text) for op, text in FUNCTIONS.items() if op in self._used)

    def function(self, op: str) -> str:
        """Return what a function is called, ours or C's."""
        if op not in FUNCTIONS:
            return self.fill(f"{op}$f")
        self._used.add(op)
        return f"{self.name}_{op}"

    def number(self, value: float) -> str:
        """Write a constant that C reads as the same number."""
        if self.single:
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        if math.isnan(value):
            return "NAN"
        text = "INFINITY" if math.isinf(value) else self.fill(f"{abs(value)!r}$f")
        return f"(-{text})" if math.copysign(1, value) < 0 else text


class Function:
    """A listing as one C function, or as several with one that calls them."""

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        listing: dict[str, Any],
        results: list[tuple[str, int]],
    ) -> None:
        self._dialect = dialect
        self._name = name
        self._results = results
        self._outputs: list[int] = listing["outputs"]
        self._loops = [
            (loop, self._body(loop["body"]), self._table(loop["table"]))
            for loop in listing["loops"]
        ]
        instructions = [Instruction(*line) for line in listing["instructions"]]
        self._parts = [instructions[i : i + PART] for i in range(0, len(instructions), PART)]
        #: How a value is written where it is an operand.
        self._text = {v: f"x[{i}]" for i, v in enumerate(listing["inputs"]) if v is not None}
        self._text |= {value: dialect.number(number) for value, number in listing["constants"]}
        self._shared = self._values_between_parts()

    def _body(self, listing: dict[str, Any]) -> str:
        results = [("values", len(listing["outputs"]))]
        text = Function(self._dialect, "@", listing, results).text("static ")
        return self._dialect.part("body", text.encode(), lambda name: text.replace("@", name))

    def _table(self, values: list[float]) -> str:
        def text(name: str) -> str:
            return f"static {self._array(name, map(self._dialect.number, values))}\n"

        return self._dialect.part("table", np.array(values).tobytes(), text) if values else ""

    def _values_between_parts(self) -> dict[int, int]:
        """Return places in `w` of values that another part than their own needs."""
        home = {
            line.first + k: number
            for number, part in enumerate(self._parts)
            for line in part
            for k in range(line.results)
        }
        last = len(self._parts) if len(self._parts) > 1 else 0
        shared = {value for value in self._outputs if home.get(value, last) != last}
        for number, part in enumerate(self._parts):
            shared |= {v for line in part for v in line.operands if home.get(v, number) != number}
        return {value: place for place, value in enumerate(sorted(shared))}

    def text(self, storage: str = "") -> str:
        """Return the functions, the one with the name last."""
        real = self._dialect.type
        results = "".join(f", {real} *{result}" for result, _ in self._results)
        head = f"{storage}void {self._name}(const {real} *x{results}) {{"
        if len(self._parts) <= 1:
            lines = [line for part in self._parts for line in self._statements(part)]
            lines += self._stores()
            return "\n".join([head, *_block(lines), "}"])
        return "\n".join(
            [
                *self._part_functions(),
                head,
                *_block([*self._calls(), *self._stores(), "free(w);"]),
                "}",
            ]
        )

    def _part_functions(self) -> Iterator[str]:
        real = self._dialect.type
        for number, part in enumerate(self._parts):
            yield f"static void {self._name}_part{number}(const {real} *x, {real} *w) {{"
            yield from _block(list(self._statements(part)))
            yield "}\n"

    def _calls(self) -> Iterator[str]:
        """Yield calls of the parts; without memory the results are NaN."""
        real = self._dialect.type
        yield f"{real} *w = ({real} *)malloc({len(self._shared)} * sizeof({real}));"
        yield "if (!w) {"
        for result, count in self._results:
            yield f"    for (int i = 0; i < {count}; ++i) {result}[i] = NAN;"
        yield "    return;"
        yield "}"
        # Through a table: compilers would join functions that are called once into one again.
        count = len(self._parts)
        yield f"static void (*const parts[{count}])(const {real} *, {real} *) = {{"
        yield from (f"    {self._name}_part{number}," for number in range(count))
        yield "};"
        yield f"for (int i = 0; i < {count}; ++i) parts[i](x, w);"

    def _stores(self) -> Iterator[str]:
        places = [f"{result}[{i}]" for result, count in self._results for i in range(count)]
        for place, value in zip(places, self._outputs, strict=True):
            yield f"{place} = {self._text[value]};"

    # ---- instructions ------------------------------------------------------------------------

    def _statements(self, part: list[Instruction]) -> Iterator[str]:
        left: dict[int, str] = {}
        for line in part:
            yield from self._statement(line)
            for value in range(line.first, line.first + line.results):
                if value in self._shared:
                    left[value] = f"w[{self._shared[value]}]"
                    yield f"{left[value]} = {self._text[value]};"
        self._text |= left

    def _statement(self, line: Instruction) -> Iterator[str]:
        operands = [self._text[v] for v in line.operands]
        if line.kernel in PAIRED:
            for value, op in enumerate(PAIRED[line.kernel], line.first):
                yield self._assign(value, f"{self._dialect.function(op)}({operands[0]})")
        elif line.kernel == "loop":
            yield from self._loop(line, operands)
        elif line.kernel in ("softmax", "softmax_vjp"):
            yield from self._row(line, operands)
        elif line.kernel in FOLDED:
            yield self._array(f"a{line.first}", operands)
            call = f"{self._dialect.function(line.kernel)}(a{line.first}, {line.n})"
            yield self._assign(line.first, call)
        else:
            yield self._assign(line.first, self._expression(line, operands))

    def _expression(self, line: Instruction, operands: list[str]) -> str:
        if line.kernel == "sumdot":
            return ordered_sum(line.n, line.m, operands)
        template = EXPRESSIONS.get(line.kernel)
        if template is None:
            return f"{self._dialect.function(line.kernel)}({', '.join(operands)})"
        return self._dialect.fill(template, **dict(zip("abc", operands, strict=False)))

    def _row(self, line: Instruction, operands: list[str]) -> Iterator[str]:
        operand, result = f"a{line.first}", self._declare_row(line)
        yield self._array(operand, operands)
        yield f"{self._dialect.type} {result}[{line.results}];"
        yield f"{self._dialect.function(line.kernel)}({operand}, {line.results}, {result});"

    def _loop(self, line: Instruction, operands: list[str]) -> Iterator[str]:
        """Repeat the body: `a` are its arguments, `y` its results, `s` operands of all rounds."""
        loop, body, table = self._loops[line.m]
        real, row, number = self._dialect.type, self._declare_row(line), line.first
        carried, stepped, outputs = loop["carried"], loop["stepped"], loop["outputs"]
        columns, count = loop["columns"], loop["count"]
        fixed = carried + loop["shared"]
        arguments = ", ".join([*operands[:fixed], *["0"] * (stepped + columns)])
        yield f"{real} {row}[{max(line.results, 1)}], y{number}[{carried + outputs}];"
        yield f"{real} a{number}[] = {{{arguments}}};"
        if stepped:
            yield self._array(f"s{number}", operands[fixed : fixed + count * stepped])
        if columns:
            yield f"long p{number} = (long){operands[-1]};"
        yield f"for (long k = 0; k < {carried}; ++k) {row}[k] = a{number}[k];"
        yield f"for (unsigned long i = 0; i < {count}ul; ++i) {{"
        if stepped:
            place = f"s{number}[i * {stepped} + k]"
            yield f"    for (long k = 0; k < {stepped}; ++k) a{number}[{fixed} + k] = {place};"
        if columns:
            place = f"{table}[p{number} * {columns} + k]"
            first = fixed + stepped
            yield f"    for (long k = 0; k < {columns}; ++k) a{number}[{first} + k] = {place};"
            yield f"    p{number} += {-1 if loop['backward'] else 1};"
        yield f"    {body}(a{number}, y{number});"
        yield (f"    for (long k = 0; k < {carried}; ++k) {row}[k] = a{number}[k] = y{number}[k];")
        if outputs:
            place = f"{row}[{carried} + i * {outputs} + k]"
            yield f"    for (long k = 0; k < {outputs}; ++k) {place} = y{number}[{carried} + k];"
        yield "}"

    def _declare_row(self, line: Instruction) -> str:
        row = f"r{line.first}"
        for k in range(line.results):
            self._text[line.first + k] = f"{row}[{k}]"
        return row

    def _array(self, name: str, operands: Iterable[str]) -> str:
        return f"const {self._dialect.type} {name}[] = {{{', '.join(operands)}}};"

    def _assign(self, value: int, expression: str) -> str:
        self._text[value] = f"v{value}"
        return f"const {self._dialect.type} v{value} = {expression};"


def ordered_sum(plain: int, pairs: int, operands: list[str]) -> str:
    """Add terms and products in the executors' order: four partial sums, then those by two."""
    products = [
        f"{a} * {b}" for a, b in zip(operands[plain::2], operands[plain + 1 :: 2], strict=True)
    ]
    terms = operands[:plain]
    partial: list[list[str]] = [[], [], [], []]
    if plain <= 4 and pairs <= 4:  # the kernels of small sums have one sequence of terms
        sequences = [terms + products]
    else:
        sequences = [terms, products] if plain >= 4 else [products, terms]
    if len(sequences[0]) < 4:
        return " + ".join(sequences[0])
    for sequence in sequences:
        for i, term in enumerate(sequence):
            partial[i % 4].append(term)
    s = [f"({' + '.join(each)})" if len(each) > 1 else each[0] for each in partial]
    return f"({s[0]} + {s[1]}) + ({s[2]} + {s[3]})"


def _block(lines: list[str]) -> Iterator[str]:
    """Indent a function's statements, and say where its argument is not needed."""
    if not any("x[" in line or "(x, w)" in line for line in lines):
        yield "    (void)x;"
    yield from (f"    {line}" for line in lines)
