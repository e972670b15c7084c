"""Let an arm of seven joints reach points in given directions, each from 1,000 random postures.

One program serves all targets, which are inputs of it. All starts run in one call, in lanes and
threads, each with its own Levenberg-Marquardt; joints stay within their limits. Seven joints have
many ways to reach a target: the one with most room to the limits is drawn in colour.

    pip install 'tapegrad[bench]'
    python examples/robot_arm.py --plot arm.png
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

import tapegrad as tg

Floats = NDArray[np.float64]
#: Lengths along the axes and twists between them (Denavit and Hartenberg's), as those of a KUKA
#: LBR iiwa; in metres and radians.
LENGTHS = np.array([0.34, 0, 0.4, 0, 0.4, 0, 0.126])
TWISTS = np.pi / 2 * np.array([-1, 1, 1, -1, -1, 1, 0])
LIMITS = np.radians([170, 120, 170, 120, 170, 120, 175])
#: Where the hand should be, and the direction in which it should point.
TARGETS = np.array(
    [
        [0.5, 0.2, 0.4, 0, 0, -1],
        [0.1, -0.6, 0.5, 0, -1, 0],
        [-0.4, 0.3, 0.8, -0.6, 0, 0.8],
    ]
)
#: Metres that an error of one in the direction counts as.
DIRECTION = 0.3
#: Values below this are a target reached: errors of some micrometres.
REACHED = 1e-11


@dataclass(frozen=True)
class Postures:
    """Joints (targets, starts, 7), whether each reaches its target, and the seconds of all."""

    joints: Floats
    reached: NDArray[np.bool_]
    seconds: float


def skeleton(joints: Any) -> tuple[Any, Any]:
    """Return the places of all joints and of the hand, and its direction.

    The same text serves numbers and Vars.
    """
    place, frame = np.zeros(3), np.eye(3)
    places = [place]
    for angle, length, twist in zip(joints, LENGTHS, TWISTS, strict=True):
        place = place + length * frame[:, 2]
        c, s = np.cos(angle), np.sin(angle)
        x, y = frame[:, 0] * c + frame[:, 1] * s, frame[:, 1] * c - frame[:, 0] * s
        z = frame[:, 2]
        # The twist is a multiple of a right angle or none: whole numbers, no rounding.
        ct, st = np.round(np.cos(twist)), np.round(np.sin(twist))
        frame = np.stack([x, y * ct + z * st, z * ct - y * st], axis=1)
        places.append(place)
    return places, frame[:, 2]


def compile_errors() -> tg.Program:
    """Compile the errors of a posture, by its joints; the target's inputs come after them."""
    g = tg.Graph()
    joints, target = g.inputs(len(LENGTHS)), g.inputs(6)
    places, direction = skeleton(joints)
    errors = [*(places[-1] - target[:3]), *(DIRECTION * (direction - target[3:]))]
    return tg.compile(errors, wrt=joints)


def reach(targets: Floats, count: int, seed: int = 0) -> Postures:
    """Start from `count` random postures for each target."""
    program = compile_errors()
    rng = np.random.default_rng(seed)
    joints = rng.uniform(-LIMITS, LIMITS, (len(targets), count, len(LIMITS)))
    starts = np.dstack([joints, np.repeat(targets[:, None], count, axis=1)]).reshape(-1, 13)
    high = np.append(LIMITS, np.full(6, np.inf))
    begin = time.perf_counter()
    found = program.minimize(starts, "lm", bounds=(-high, high), steps=200, target=REACHED)
    seconds = time.perf_counter() - begin
    shape = len(targets), count
    reached = np.reshape(found.value <= REACHED, shape)
    return Postures(found.x[:, :7].reshape(*shape, 7), reached, seconds)


def roomiest(joints: Floats) -> Floats:
    """Return the posture farthest from its limits as (1, 7), or (0, 7) where there is none."""
    room = np.min(1 - np.abs(joints) / LIMITS, axis=1)
    best: Floats = joints[np.argsort(-room)[:1]]
    return best


def draw_arm(axes: Any, joints: Floats, **style: Any) -> None:
    """Draw the limbs of a posture."""
    axes.plot(*np.array(skeleton(joints)[0]).T, **style)


def plot(postures: Postures, targets: Floats, title: str, path: Path) -> None:
    """Draw 60 ways to each target, and the roomiest."""
    figure = Figure(figsize=(4.5 * len(targets), 4.8), layout="constrained")
    figure.suptitle(title)
    for number, target in enumerate(targets):
        reached = postures.reached[number]
        ways = postures.joints[number][reached]
        axes: Any = figure.add_subplot(1, len(targets), number + 1, projection="3d")
        for joints in ways[:60]:
            draw_arm(axes, joints, color="0.6", lw=0.6, alpha=0.6)
        for joints in roomiest(ways):
            draw_arm(axes, joints, color="tab:blue", lw=3, marker="o", ms=4)
        axes.quiver(*target[:3], *(0.2 * target[3:]), color="tab:red", lw=2)
        axes.set(xlim=(-0.7, 0.7), ylim=(-0.7, 0.7), zlim=(0, 1.2))
        axes.set_title(f"reached from {reached.mean():.0%} of the starts")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Reach all targets, print, draw."""
    parser = argparse.ArgumentParser(description="A robot arm reaches targets.")
    parser.add_argument("--starts", type=int, default=1_000, help="for each target")
    parser.add_argument("--plot", type=Path, default=Path("build/robot_arm.png"))
    options = parser.parse_args()
    if options.starts < 1:
        parser.error(f"expected at least one start, got {options.starts}")
    with Console().status(f"{len(TARGETS)} targets from {options.starts:,} starts each"):
        postures = reach(TARGETS, options.starts)
    title = (
        f"{len(TARGETS)} targets from {options.starts:,} starts each in {postures.seconds:.2f} s, "
        f"{postures.reached.mean():.0%} reached"
    )
    for target, joints, reached in zip(TARGETS, postures.joints, postures.reached, strict=True):
        degrees = np.degrees(roomiest(joints[reached])).round().ravel()
        print(f"{target}: from {reached.mean():.1%} of the starts, best {degrees} degrees")
    print(title)
    plot(postures, TARGETS, title, options.plot)


if __name__ == "__main__":
    main()
