"""A network with channels last, for frameworks whose users keep images so.

Images are (batch, channel, row, column) in a case. To turn them round before every convolution
and back after it would be work that nobody does; here they are turned once, as inputs and
cotangents are handed over, together with the filters of convolutions and the weights of dense
layers, which such frameworks have as (in, out). Results and gradients are turned back as they are
read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapegrad.worker.case import Array
from tapegrad.worker.networks import Network, Node

LAST = (0, 2, 3, 1)
FIRST = (0, 3, 1, 2)
#: (out, in, rows, columns) to (rows, columns, in, out).
FILTERS = (2, 3, 1, 0)
#: Operators with weights of shape (out, in), and the places of these among what they take.
WEIGHTS: Mapping[str, tuple[int, ...]] = {"linear": (1,), "multi_head_attention": (1, 3)}
#: Operators that work in any layout, as long as all they take has the same one.
ELEMENTWISE = ("add", "relu")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ChannelsLast:
    """A network in the other layout, and how its inputs are turned."""

    network: Network
    turns: Mapping[str, tuple[int, ...]]
    #: Places of results that are images.
    images: frozenset[int]

    def turned(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Bring inputs into this layout."""
        return {
            name: np.transpose(array, self.turns[name]) if name in self.turns else array
            for name, array in arrays.items()
        }

    def turned_results(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Bring what has the shapes of the results, as cotangents, into this layout."""
        return [
            np.ascontiguousarray(np.transpose(array, LAST)) if place in self.images else array
            for place, array in enumerate(arrays)
        ]

    def restored(self, results: Mapping[str, NDArray[Any]]) -> Arrays:
        """Bring results and gradients of inputs back into the layout of the case."""
        turns = {f"grad:{name}": turn for name, turn in self.turns.items()}
        turns |= {f"output{place}": LAST for place in self.images}
        return {
            name: np.transpose(array, np.argsort(turns[name])) if name in turns else array
            for name, array in results.items()
        }


def channels_last(network: Network, operators: Collection[str]) -> ChannelsLast:
    """Rewrite a network for `operators` that take images with channels last, and weights turned.

    Other operators than those and elementwise ones see images as in the case.
    """
    turning = _Turning({array.name for array in network.inputs}, operators)
    for node in network.nodes:
        turning.add(node)
    inputs = tuple(_turned(array, turning.turns.get(array.name)) for array in network.inputs)
    rewritten = replace(network, inputs=inputs, nodes=tuple(turning.nodes))
    images = frozenset(place for place, name in enumerate(network.results) if turning.is_last(name))
    return ChannelsLast(rewritten, turning.turns, images)


@dataclass
class _Turning:
    """The network so far, and which of its values have channels last."""

    inputs: set[str]
    operators: Collection[str]
    nodes: list[Node] = field(default_factory=list)
    turns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _last: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        if node.op in self.operators and node.op in WEIGHTS:
            takes = tuple(self.first(name) for name in node.takes)
            self.turns |= {takes[place]: (1, 0) for place in WEIGHTS[node.op]}
        elif node.op in self.operators:
            takes = self._image_operator(node)
        elif node.op in ELEMENTWISE and self._last.intersection(node.takes):
            takes = tuple(self.last(name) for name in node.takes)
            self._last.add(node.gives[0])
        else:
            takes = tuple(self.first(name) for name in node.takes)
        self.nodes.append(replace(node, takes=takes))

    def is_last(self, name: str) -> bool:
        """Tell whether a value has channels last."""
        return name in self._last

    def last(self, name: str) -> str:
        """Return a value with channels last."""
        if name in self._last:
            return name
        if name in self.inputs:
            self.turns[name] = LAST
            self._last.add(name)
            return name
        return self._permuted(name, LAST, "last")

    def first(self, name: str) -> str:
        """Return a value as the case has it."""
        return self._permuted(name, FIRST, "first") if name in self._last else name

    def _image_operator(self, node: Node) -> tuple[str, ...]:
        image, *parameters = node.takes
        if node.op.startswith("conv"):
            self.turns[parameters[0]] = FILTERS
        if not node.op.startswith("global"):
            self._last.add(node.gives[0])
        return (self.last(image), *parameters)

    def _permuted(self, name: str, dims: tuple[int, ...], suffix: str) -> str:
        turned = f"{name}_{suffix}"
        if not any(turned in node.gives for node in self.nodes):
            self.nodes.append(Node("permute", (name,), (turned,), {"dims": dims}))
        if dims == LAST:
            self._last.add(turned)
        return turned


def _turned(array: Array, dims: tuple[int, ...] | None) -> Array:
    if dims is None:
        return array
    return replace(array, shape=tuple(array.shape[dim] for dim in dims))
