"""Seconds for 10,000 evaluations of scalar graphs: “Fastest autograd in the west”."""

from __future__ import annotations

import msgspec


class Published(msgspec.Struct, frozen=True):
    """Seconds for 10,000 evaluations of a graph, build and compile included."""

    seconds: float
    #: `est.` where the author scaled it up from fewer operations, `about` where it is rounded.
    mark: str = ""


#: Where they come from and on what they were measured.
SOURCE = "published (M1, 2023)"


def note_on(target: str) -> str:
    """Say what the figures are of, beside ours of a target."""
    other = "" if target == "last" else " and another target (the last node)"
    return (
        f"{SOURCE}: A. Rogozhnikov, “Fastest autograd in the west”, on an M1 laptop. “est.” is the "
        f"author's own extrapolation. Another machine{other}: beside ours for orientation, no "
        "ratio is made of them."
    )


_CHAIN = {
    "torch": Published(1130, "est."),
    "jax": Published(470, "est."),
    "jax-eager": Published(159_000, "est."),
    "python-objects": Published(312),
    "python-tape": Published(94),
    "numba": Published(41),
    "rust": Published(1.4),
    "c": Published(0.99),
    "generated-c": Published(61, "about"),
}


def published_for(family: str, ops: int) -> dict[str, Published]:
    """Return the published figures for a graph, by contender."""
    return _CHAIN if (family, ops) == ("chain", 10_000) else {}
