"""WebAssembly: every operation written as instructions that need no compiler of a language.

WebAssembly knows neither exp nor log, so they are written here too, as polynomials.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import wasmtime

from tapegrad.worker.adapter import Adapter, AnyArray, Work
from tapegrad.worker.case import Case
from tapegrad.worker.evaluator import Evaluator, Result, evaluations
from tapegrad.worker.graphs import MOST_OPERANDS, Kind, Op, OpList

ADAPTERS = {"wasm": "Wasm"}
REQUIRES = ["wasmtime", "numpy"]
IMPORTS = "wasmtime"

#: Operations in one function; between 25 and 1,000 it makes no difference.
CHUNK = 100
PAGE = 65536


def _horner(variable: str, coefficients: Sequence[float]) -> str:
    """Write the polynomial with these coefficients, the constant one first."""
    start = f"(f64.const {coefficients[-1]!r})"
    return reduce(
        lambda text, c: f"(f64.add (f64.const {c!r}) (f64.mul (local.get {variable}) {text}))",
        reversed(coefficients[:-1]),
        start,
    )


#: exp(x) = 2^k exp(r) with |r| <= ln(2)/2; below -708 it stays at 3e-308.
#: log1p(t) for t in [0, 1] is log1p(f), or ln(2) + log1p(f) where t > sqrt(2) - 1, by the series of
#: 2 artanh(f / (2 + f)).
HEAD = f"""
(memory (export "memory") 1)
(func $exp (param $x f64) (result f64) (local $k f64) (local $r f64)
  (local.set $x (f64.max (f64.min (local.get $x) (f64.const 709.0)) (f64.const -708.0)))
  (local.set $k (f64.nearest (f64.mul (local.get $x) (f64.const {1 / math.log(2)!r}))))
  (local.set $r (f64.sub
    (f64.sub (local.get $x) (f64.mul (local.get $k) (f64.const 6.93147180369123816490e-01)))
    (f64.mul (local.get $k) (f64.const 1.90821492927058770002e-10))))
  (f64.mul
    {_horner("$r", [1 / math.factorial(n) for n in range(14)])}
    (f64.reinterpret_i64 (i64.shl
      (i64.add (i64.trunc_f64_s (local.get $k)) (i64.const 1023)) (i64.const 52)))))
(func $log1p (param $t f64) (result f64) (local $s f64) (local $z f64) (local $large i32)
  (local.set $large (f64.gt (local.get $t) (f64.const {math.sqrt(2) - 1!r})))
  (local.set $t (select
    (f64.mul (f64.sub (local.get $t) (f64.const 1.0)) (f64.const 0.5))
    (local.get $t) (local.get $large)))
  (local.set $s (f64.div (local.get $t) (f64.add (f64.const 2.0) (local.get $t))))
  (local.set $z (f64.mul (local.get $s) (local.get $s)))
  (f64.add
    (select (f64.const {math.log(2)!r}) (f64.const 0.0) (local.get $large))
    (f64.mul (local.get $s) {_horner("$z", [2 / (2 * n + 1) for n in range(11)])})))
(func $softplus (param $x f64) (result f64)
  (f64.add
    (f64.max (local.get $x) (f64.const 0.0))
    (call $log1p (call $exp (f64.neg (f64.abs (local.get $x)))))))
(func $sigmoid (param $x f64) (result f64)
  (f64.div
    (f64.const 1.0) (f64.add (f64.const 1.0) (call $exp (f64.neg (local.get $x))))))
"""

TAIL = """
(func (export "run_rows") (param $rows i32) (param $points i32) (param $targets i32)
    (param $grads i32) (local $i i32) (local $target f64)
  (loop $next
    (memory.copy (i32.const 0) (local.get $points) (i32.const %(input_bytes)d))
    %(forward)s
    (local.set $target (f64.const 0.0))
    (local.set $i (i32.const 0))
    (loop $seed
      %(seed)s
      (local.set $i (i32.add (local.get $i) (i32.const 8)))
      (br_if $seed (i32.lt_u (local.get $i) (i32.const %(node_bytes)d))))
    %(last)s
    %(backward)s
    (f64.store (local.get $targets) (local.get $target))
    (memory.copy (local.get $grads) (i32.const %(node_bytes)d) (i32.const %(input_bytes)d))
    (local.set $targets (i32.add (local.get $targets) (i32.const 8)))
    (local.set $points (i32.add (local.get $points) (i32.const %(input_bytes)d)))
    (local.set $grads (i32.add (local.get $grads) (i32.const %(input_bytes)d)))
    (local.set $rows (i32.sub (local.get $rows) (i32.const 1)))
    (br_if $next (local.get $rows))))
"""
SUM_OF_ALL = """(local.set $target (f64.add (local.get $target) (f64.load (local.get $i))))
      (f64.store offset=%(node_bytes)d (local.get $i) (f64.const 1.0))"""
ZERO = "(f64.store offset=%(node_bytes)d (local.get $i) (f64.const 0.0))"
LAST = """(local.set $target (f64.load (i32.const %(last_byte)d)))
    (f64.store offset=%(node_bytes)d (i32.const %(last_byte)d) (f64.const 1.0))"""


class Writer:
    """Writes a graph's operations: values lie from address 0 on, gradients behind them."""

    def __init__(self, graph: OpList) -> None:
        self.graph = graph
        self.node_bytes = 8 * graph.n_nodes

    def module(self) -> str:
        """Write the whole module."""
        graph = self.graph
        sizes = {
            "node_bytes": self.node_bytes,
            "input_bytes": 8 * graph.n_inputs,
            "last_byte": self.node_bytes - 8,
        }
        n_ops = len(graph.ops)
        parts = sizes | {
            "forward": _calls("forward", n_ops),
            "backward": _calls("backward", n_ops),
            "seed": (SUM_OF_ALL if graph.target == "sum" else ZERO) % sizes,
            "last": "" if graph.target == "sum" else LAST % sizes,
        }
        ops = list(graph.with_outputs())
        forward = [self.forward(op, out) for op, out in ops]
        backward = [self.backward(op, out) for op, out in reversed(ops)]
        functions = [*_functions("forward", forward), *_functions("backward", backward)]
        return "\n".join(["(module", HEAD, *functions, TAIL % parts, ")"])

    def forward(self, op: Op, out: int) -> str:
        """Write an operation."""
        kind, ins = op
        values = [self.value(i) for i in ins]
        match kind:
            case Kind.SOFTPLUS:
                return self.set_value(out, f"(call $softplus {values[0]})")
            case Kind.SUM:
                return self.set_value(out, _sum(values))
            case Kind.PRODUCT:
                return self.set_value(out, f"(f64.mul {values[0]} {values[1]})")
        largest = reduce(lambda a, b: f"(f64.max {a} {b})", values)
        powers = [
            f"(local.tee $e{n} (call $exp (f64.sub {v} (local.get $m))))"
            for n, v in enumerate(values)
        ]
        shares = [
            self.set_value(out + n, f"(f64.mul (local.get $e{n}) (local.get $m))")
            for n in range(len(ins))
        ]
        scale = f"(local.set $m (f64.div (f64.const 1.0) {_sum(powers)}))"
        return "\n".join([f"(local.set $m {largest})", scale, *shares])

    def backward(self, op: Op, out: int) -> str:
        """Write how an operation hands gradients back."""
        kind, ins = op
        grad = self.grad(out)
        match kind:
            case Kind.SOFTPLUS:
                slope = f"(call $sigmoid {self.value(ins[0])})"
                return self.add_grad(ins[0], f"(f64.mul {grad} {slope})")
            case Kind.SUM:
                return "\n".join(self.add_grad(i, grad) for i in ins)
            case Kind.PRODUCT:
                left, right = ins
                return "\n".join(
                    (
                        self.add_grad(left, f"(f64.mul {grad} {self.value(right)})"),
                        self.add_grad(right, f"(f64.mul {grad} {self.value(left)})"),
                    )
                )
        pairs = [(self.value(out + n), self.grad(out + n)) for n in range(len(ins))]
        mean = f"(local.set $m {_sum([f'(f64.mul {y} {dy})' for y, dy in pairs])})"
        shares = (f"(f64.mul {y} (f64.sub {dy} (local.get $m)))" for y, dy in pairs)
        return "\n".join([mean, *map(self.add_grad, ins, shares)])

    def value(self, node: int) -> str:
        """Read a node's value."""
        return f"(f64.load (i32.const {8 * node}))"

    def grad(self, node: int) -> str:
        """Read a node's gradient."""
        return f"(f64.load (i32.const {self.node_bytes + 8 * node}))"

    def set_value(self, node: int, text: str) -> str:
        """Write a node's value."""
        return f"(f64.store (i32.const {8 * node}) {text})"

    def add_grad(self, node: int, text: str) -> str:
        """Add to a node's gradient."""
        address = self.node_bytes + 8 * node
        return f"(f64.store (i32.const {address}) (f64.add {self.grad(node)} {text}))"


def _sum(terms: Sequence[str]) -> str:
    return reduce(lambda a, b: f"(f64.add {a} {b})", terms)


def _functions(name: str, lines: list[str]) -> Iterator[str]:
    names = ["$m", *(f"$e{n}" for n in range(MOST_OPERANDS))]
    variables = " ".join(f"(local {each} f64)" for each in names)
    for first in range(0, len(lines), CHUNK):
        body = "\n".join(lines[first : first + CHUNK])
        yield f"(func ${name}_{first} {variables}\n{body})"


def _calls(name: str, count: int) -> str:
    return " ".join(f"(call ${name}_{first})" for first in range(0, count, CHUNK))


class Machine:
    """A module, compiled, with its memory: behind the nodes lie points, targets and gradients."""

    def __init__(self, engine: wasmtime.Engine, built: tuple[str, int], points: AnyArray) -> None:
        text, node_bytes = built
        self.store = wasmtime.Store(engine)
        module = wasmtime.Module(engine, text)
        exports: Any = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.run_rows = exports["run_rows"]
        sizes = (2 * node_bytes, points.nbytes, 8 * len(points), points.nbytes)
        *addresses, end = np.cumsum(sizes).tolist()
        self.addresses: list[int] = addresses
        memory = exports["memory"]
        memory.grow(self.store, end // PAGE)
        self.numbers = np.frombuffer(memory.get_buffer_ptr(self.store), np.float64)

    def run(self, points: AnyArray) -> Result:
        """Evaluate points."""
        start, targets, grads = (address // 8 for address in self.addresses)
        self.numbers[start:targets] = points.ravel()
        self.run_rows(self.store, len(points), *self.addresses)
        found = self.numbers[targets : grads + points.size]
        return found[: len(points)], found[len(points) :].reshape(points.shape)


class Wasm(Adapter):
    """A module for each graph."""

    dtypes = ("float64",)

    def version(self) -> str:
        """Return wasmtime's version."""
        return importlib.metadata.version("wasmtime")

    def graph(self, case: Case, arrays: Mapping[str, AnyArray]) -> Work:
        """Make a graph ready."""
        config = wasmtime.Config()
        config.parallel_compilation = self.threads > 1
        engine = wasmtime.Engine(config)
        contender = Evaluator(
            build=lambda graph: (Writer(graph).module(), 8 * graph.n_nodes),
            compile=lambda built, points: Machine(engine, built, points).run,
            ops_per_call=1_000_000,
        )
        return evaluations(contender, case, arrays)
