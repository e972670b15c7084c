"""Small graphs drawn as SVG, layer by layer, where Graphviz is not installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

#: Pixels.
ROW, GAP, LETTER, PAD, HEIGHT = 64, 18, 7.3, 10, 26


@dataclass(frozen=True)
class Box:
    """A node to draw: its text, who points to it, and how it looks."""

    text: str
    sources: Sequence[int]
    rounded: bool = False
    thick: bool = False

    @property
    def width(self) -> float:
        """Pixels that the text needs."""
        return LETTER * len(self.text) + 2 * PAD


def svg(boxes: Mapping[int, Box]) -> str:
    """Draw boxes, given in an order in which sources come first: every one above its sources."""
    layers: dict[int, list[int]] = {}
    depth: dict[int, int] = {}
    for key, box in boxes.items():
        depth[key] = 1 + max((depth[source] for source in box.sources), default=-1)
        layers.setdefault(depth[key], []).append(key)
    lengths = {d: sum(boxes[k].width + GAP for k in keys) for d, keys in layers.items()}
    width, height = max(lengths.values(), default=0) + GAP, ROW * len(layers)
    centre = _centres(boxes, layers, lengths, width)
    parts = []
    for key, box in boxes.items():
        for source in box.sources:
            (x1, y1), (x2, y2) = centre[source], centre[key]
            parts.append(
                f'<line x1="{x1:.0f}" y1="{y1 - HEIGHT / 2:.0f}" x2="{x2:.0f}" '
                f'y2="{y2 + HEIGHT / 2:.0f}" stroke="#888"/>'
            )
    parts += [_box(boxes[key], *place) for key, place in centre.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="monospace" font-size="12">{"".join(parts)}</svg>'
    )


def _centres(
    boxes: Mapping[int, Box],
    layers: Mapping[int, list[int]],
    lengths: Mapping[int, float],
    width: float,
) -> dict[int, tuple[float, float]]:
    """Place the layers from below, each by the mean place of its sources."""
    centre: dict[int, tuple[float, float]] = {}
    for d in range(len(layers)):
        keys = layers[d]
        if d:
            keys = sorted(keys, key=lambda k: _mean(centre[s][0] for s in boxes[k].sources))
        x = (width - lengths[d] + GAP) / 2
        for key in keys:
            centre[key] = (x + boxes[key].width / 2, ROW * (len(layers) - d - 0.5))
            x += boxes[key].width + GAP
    return centre


def _mean(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return float(sum(values) / len(values))


def _box(box: Box, x: float, y: float) -> str:
    radius, border = HEIGHT / 2 if box.rounded else 3, 3 if box.thick else 1
    return (
        f'<rect x="{x - box.width / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{box.width:.0f}" '
        f'height="{HEIGHT}" rx="{radius:.0f}" fill="white" stroke="black" '
        f'stroke-width="{border}"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{escape(box.text)}</text>'
    )
