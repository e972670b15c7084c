"""gradcheck: right derivatives pass at any scale, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.scalar import check


def rosenbrock(x: Any) -> Any:
    return tg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_gradcheck_finds_a_wrong_derivative() -> None:
    assert tg.gradcheck(rosenbrock, [0.3, -0.7, 1.1, 0.4, -0.2])
    assert tg.gradcheck(lambda x: tg.sum((tg.exp(x) / (1 + x * x)).ravel()), np.ones((2, 3)))
    assert tg.gradcheck(lambda x: x**3, 1e6)
    with pytest.raises(tg.GradError, match=r"entry \(1,\)"):
        tg.gradcheck(lambda x: x[0] + tg.floor(x[1]), [0.5, 1.0])  # a jump: differences see it
    with pytest.raises(tg.GradError, match="nan"):
        tg.gradcheck(tg.log, -1.0)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: tg.log(x[0]), [1e-6]),
        (lambda x: tg.log(x[0]), [1e-12]),
        (tg.log, 1e300),
        (lambda x: x[0] ** -2, [1e-3]),
        (lambda x: 1 / x, 1e-30),
        (lambda x: 1 / x, -1e-8),
        (lambda x: x[0] ** -2, [1e-12]),
        (lambda x: tg.log(abs(x)), 1e-12),
        (lambda x: tg.exp(-1e8 * x * x), 1e-4),
        (lambda x: np.sum(np.exp(x)), [20.0, 1.0]),
        (lambda x: tg.sin(1e4 * x), 0.3),
        (abs, 1e-9),
        (lambda x: np.sum(x**2), np.zeros((2, 2))),
        (lambda x: np.outer(x, np.sin(x)), [1.0, 2.0]),
        (lambda x: np.stack([x[0] * x[1], x[0]]), [3.0, -1.0]),
    ],
)
def test_gradcheck_takes_right_derivatives_for_right(function: Any, x: Any) -> None:
    assert tg.gradcheck(function, x)


@pytest.mark.parametrize(
    ("x", "eps"), [*((x, None) for x in (1e-6, 0.7, 1.0, 3e4, -1e8)), (1e-6, 1e-8), (0.7, 1e-4)]
)
def test_gradcheck_finds_slight_errors_at_any_scale(x: float, eps: float | None) -> None:
    wrong = tg.custom(np.square, lambda g, x: g * x * (2 + 1e-4))
    right = tg.custom(np.square, lambda g, x: g * x * 2)
    assert tg.gradcheck(right, x, eps=eps, atol=1e-12)
    with pytest.raises(tg.GradError, match=r"entry \(\)"):
        tg.gradcheck(wrong, x, eps=eps, atol=1e-12)
    with pytest.raises(tg.GradError, match=r"of output \(1,\) by entry \(2,\)"):
        tg.gradcheck(lambda v: np.stack([v[0], wrong(v[2])]), [1.0, 2.0, x], eps=eps, atol=1e-12)


@pytest.mark.parametrize("x", [1e-30, 1e-12, -1e-8, 1e-3, 2.0])
def test_gradcheck_finds_slight_errors_beside_a_pole(x: float) -> None:
    wrong = tg.custom(np.reciprocal, lambda g, x: -g * (1 + 1e-4) / x**2)
    with pytest.raises(tg.GradError, match=r"entry \(\)"):
        tg.gradcheck(wrong, x)
    with pytest.raises(tg.GradError, match=r"is 2,"):  # steps of 1e-13 show nothing here
        tg.gradcheck(tg.custom(lambda x: np.exp(20) + x, lambda g, x: 2 * g), 1e-12)


def test_gradcheck_works_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PIECE", 500)
    x = np.linspace(0.1, 2.0, 40)
    assert tg.gradcheck(lambda x: np.sum(np.log(x)) * x[0], x)
    wrong = tg.custom(np.sin, lambda g, x: g)
    with pytest.raises(tg.GradError, match=r"entry \(33,\)"):
        tg.gradcheck(lambda x: np.sum(x) + wrong(x[33]), x)


@pytest.mark.parametrize("options", [{"eps": 0.0}, {"eps": "a"}, {"rtol": -1.0}, {"atol": None}])
def test_gradcheck_options_that_make_no_sense_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(tg.OptionError, match=next(iter(options))):
        tg.gradcheck(lambda x: x, 1.0, **options)
