"""Graphs as pictures, in the language of Graphviz, and drawn in notebooks."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tapegrad._core import Graph, Var
from tapegrad.scalar.layers import Box, svg
from tapegrad.scalar.nodes import formula, label, of_one_graph
from tapegrad.scalar.options import whole

#: Seconds that a layout may take in a notebook; the text is shown after that.
PATIENCE = 10.0

#: Nodes that are drawn without Graphviz: more would be a tangle.
SMALL = 60

#: Signs that XML has a place for.
XML = re.compile("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

SHAPES = {"input": "ellipse", "constant": "plaintext"}


@dataclass(frozen=True)
class Picture:
    """A drawing of a graph: `str` gives its text, notebooks show it."""

    source: str
    """The drawing in Graphviz's language."""
    left_out: int
    """Nodes for which there was no room."""
    boxes: Mapping[int, Box] = field(default_factory=dict, repr=False, compare=False)
    """The nodes, to be drawn without Graphviz."""

    def __str__(self) -> str:
        return self.source

    def svg(self) -> str | None:
        """Draw it with the program `dot`, or, where there are few nodes, without it.

        None where there are many and `dot` is missing, fails or takes too long.
        """
        return self._drawn_by_dot() or (svg(self.boxes) if len(self.boxes) <= SMALL else None)

    def _drawn_by_dot(self) -> str | None:
        program = shutil.which("dot")
        if program is None:
            return None
        try:
            drawn = subprocess.run(
                [program, "-Tsvg"],
                input=self.source,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=PATIENCE,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return drawn.stdout

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        drawn = self.svg()
        return {"text/plain": self.source, **({"image/svg+xml": drawn} if drawn else {})}


def to_dot(outputs: Var | Iterable[Var], *, limit: int = 200) -> Picture:
    """Draw what Vars are computed from, in the language of Graphviz.

    Args:
        outputs: The Vars; their nodes have a thick border.
        limit: Nodes to draw: those nearest to the outputs. A dotted node stands for what a node
            has besides.

    Example:
        >>> import tapegrad as tg
        >>> g = tg.Graph()
        >>> x, y = g.input("x"), g.input("y")
        >>> print(tg.to_dot(tg.exp(x) * y))
        digraph tapegrad {
          rankdir=BT; node [shape=box, fontname="monospace"];
          n0 [label="x", shape=ellipse];
          n1 [label="y", shape=ellipse];
          n2 [label="exp"];
          n3 [label="mul", penwidth=3];
          n0 -> n2;
          n1 -> n3 [label="0"];
          n2 -> n3 [label="1"];
        }

    """
    ends = of_one_graph(outputs, "to_dot: outputs")
    drawn, left_out = _nearest(ends, whole("to_dot: expected limit", limit, 1))
    targets = {end.index for end in ends}
    lines = [_node(var, var.index in targets) for var in drawn.values()]
    for var in drawn.values():
        lines += _edges(var, drawn)
    body = "\n".join(f"  {line}" for line in lines)
    head = '  rankdir=BT; node [shape=box, fontname="monospace"];'
    boxes = {place: _box(var, drawn, place in targets) for place, var in drawn.items()}
    return Picture(f"digraph tapegrad {{\n{head}\n{body}\n}}", left_out, boxes)


def of_graph(graph: Graph, outputs: Any = None, limit: int = 200) -> Picture:
    """Draw a graph: what some Vars are computed from, or all that nothing else uses."""
    ends = graph.ends() if outputs is None else outputs
    if outputs is None and not ends:
        return Picture("digraph tapegrad {\n}", 0)
    return to_dot(ends, limit=limit)


def bundle(graph: Graph) -> dict[str, str]:
    """Give what a notebook shows of a graph: a picture, if it is small."""
    text = {"text/plain": repr(graph)}
    drawn = of_graph(graph).svg() if 0 < len(graph) <= SMALL else None
    return text | ({"image/svg+xml": drawn} if drawn else {})


def _nearest(outputs: list[Var], limit: int) -> tuple[dict[int, Var], int]:
    """Return the nodes to draw in the order of the graph, and how many there are besides."""
    seen = {output.index: output for output in outputs}
    order = list(seen.values())
    for var in order:  # grows while it is walked: breadth first
        for operand in var.operands:
            if operand.index not in seen:
                seen[operand.index] = operand
                order.append(operand)
    kept = sorted(order[:limit], key=lambda var: var.index)
    return {var.index: var for var in kept}, max(0, len(order) - limit)


def _node(var: Var, is_output: bool) -> str:
    attributes = [f'label="{_escaped(_text(var))}"']
    if var.op in SHAPES:
        attributes.append(f"shape={SHAPES[var.op]}")
    if is_output:
        attributes.append("penwidth=3")
    return f"n{var.index} [{', '.join(attributes)}];"


def _box(var: Var, drawn: Mapping[int, Var], is_output: bool) -> Box:
    sources = [operand.index for operand in var.operands if operand.index in drawn]
    return Box(_text(var), sources, var.op in SHAPES, is_output)


def _text(var: Var) -> str:
    """Write what a node does, with signs that pictures of XML have no place for as escapes."""
    return "".join(
        each if XML.match(each) else each.encode("unicode_escape").decode() for each in _name(var)
    )


def _name(var: Var) -> str:
    """Say what a node does: inputs and constants by name and value, others by operation."""
    if var.op == "projection":
        return f"[{var.index - var.operands[0].index - 1}]"
    if var.op == "custom":
        return formula(var).rpartition("(")[0]
    return label(var) if var.op in SHAPES else var.op


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _edges(var: Var, drawn: dict[int, Var]) -> list[str]:
    """Draw arrows from operands; numbered, where there are several."""
    operands = var.operands
    number = ' [label="{}"]' if len(operands) > 1 else ""
    lines = [
        f"n{operand.index} -> n{var.index}{number.format(place)};"
        for place, operand in enumerate(operands)
        if operand.index in drawn
    ]
    if missing := len(operands) - len(lines):
        lines.append(f'm{var.index} [label="{missing:,} more", style=dotted];')
        lines.append(f"m{var.index} -> n{var.index} [style=dotted];")
    return lines
