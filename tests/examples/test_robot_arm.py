"""The arm of seven joints: postures against textbook matrices and SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tests.examples.conftest import Drawn, example

Floats = NDArray[np.float64]
ARM = example("robot_arm")
TARGETS, LIMITS = ARM["TARGETS"], ARM["LIMITS"]


def hand(joints: Floats) -> Floats:
    """Return the hand's place and direction, by Denavit and Hartenberg's matrices of 4 x 4."""
    pose = np.eye(4)
    for angle, length, twist in zip(joints, ARM["LENGTHS"], ARM["TWISTS"], strict=True):
        c, s, ct, st = np.cos(angle), np.sin(angle), np.cos(twist), np.sin(twist)
        pose = pose @ np.array(
            [[c, -s * ct, s * st, 0], [s, c * ct, -c * st, 0], [0, st, ct, length], [0, 0, 0, 1]]
        )
    return np.concatenate([pose[:3, 3], pose[:3, 2]])


def test_postures_reach_their_targets() -> None:
    postures = ARM["reach"](TARGETS, 100)
    assert postures.joints.shape == (3, 100, 7)
    assert np.all(np.abs(postures.joints) <= LIMITS)
    for target, joints, reached in zip(TARGETS, postures.joints, postures.reached, strict=True):
        assert reached.mean() > 0.5
        for each in joints[reached]:
            np.testing.assert_allclose(hand(each), target, atol=3e-5)


def test_scipy_reaches_about_as_often() -> None:
    starts = np.random.default_rng(1).uniform(-LIMITS, LIMITS, (20, 7))
    scale = np.repeat([1, ARM["DIRECTION"]], 3)
    searches = [
        least_squares(lambda q: scale * (hand(q) - TARGETS[2]), each, bounds=(-LIMITS, LIMITS))
        for each in starts
    ]
    often = np.mean([each.cost < 1e-9 for each in searches])
    ours = ARM["reach"](TARGETS[2:], 200, seed=1).reached.mean()
    assert ours > often - 0.25


def test_the_roomiest_posture_is_farthest_from_limits() -> None:
    postures = np.outer([0.9, -0.2, 0.5], LIMITS)
    np.testing.assert_array_equal(ARM["roomiest"](postures), postures[1:2])
    assert ARM["roomiest"](postures[:0]).shape == (0, 7)


def test_the_arm_is_drawn(drawn: Drawn) -> None:
    assert "3 targets from 50 starts each" in drawn(ARM, "--starts", "50")


def test_an_arm_that_reaches_nothing_is_drawn(tmp_path: Path) -> None:
    far = np.array([[5.0, 0, 0, 1, 0, 0]])
    postures = ARM["reach"](far, 4)
    assert not postures.reached.any()
    ARM["plot"](postures, far, "too far", tmp_path / "arm.png")
    assert (tmp_path / "arm.png").stat().st_size > 0
