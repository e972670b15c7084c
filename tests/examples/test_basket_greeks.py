"""Greeks of the basket against Black and Scholes, bumps, and prices by another simulation."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from tests.examples.conftest import Drawn, example

GREEKS = example("basket_greeks")
SPOTS, VOLS, (RATE, CORRELATION) = np.split(GREEKS["MARKET"], [5, 10])
STRIKE, YEARS = GREEKS["STRIKE"], GREEKS["YEARS"]


def black_scholes(spot: float, vol: float) -> list[float]:
    """Return price, delta, vega and rho of a call."""
    spread = vol * np.sqrt(YEARS)
    d1 = (np.log(spot / STRIKE) + (RATE + vol**2 / 2) * YEARS) / spread
    owed = STRIKE * np.exp(-RATE * YEARS) * norm.cdf(d1 - spread)
    price = spot * norm.cdf(d1) - owed
    return [price, norm.cdf(d1), spot * norm.pdf(d1) * np.sqrt(YEARS), owed * YEARS]


def test_a_basket_of_one_asset_is_black_and_scholes_call() -> None:
    found = GREEKS["by_sweep"](GREEKS["paths"](100_000), np.eye(5)[2])
    picked = [0, 3, 8, 11]  # price, delta 2, vega 2, rho
    apart = found.values[picked] - black_scholes(SPOTS[2], VOLS[2])
    assert np.all(np.abs(apart) < 4 * found.errors[picked])
    assert np.all(found.errors[picked] < 0.02 * found.values[picked])
    np.testing.assert_array_equal(found.values[[1, 2, 4, 5]], 0)


def test_the_price_is_that_of_correlated_draws() -> None:
    found = GREEKS["by_sweep"](GREEKS["paths"](100_000))
    matrix = np.full((5, 5), CORRELATION) + (1 - CORRELATION) * np.eye(5)
    draws = np.random.default_rng(1).multivariate_normal(np.zeros(5), matrix, 100_000)
    prices = SPOTS * np.exp((RATE - VOLS**2 / 2) * YEARS + VOLS * np.sqrt(YEARS) * draws)
    payoffs = np.exp(-RATE * YEARS) * np.maximum(prices.mean(1) - STRIKE, 0)
    error = np.hypot(found.errors[0], payoffs.std() / np.sqrt(len(payoffs)))
    assert abs(found.values[0] - payoffs.mean()) < 4 * error


def test_bumps_give_the_same_greeks() -> None:
    draws = GREEKS["paths"](100_000)
    sweep, bumps = GREEKS["by_sweep"](draws), GREEKS["by_bumps"](draws)
    np.testing.assert_allclose(bumps.values, sweep.values, rtol=2e-3)


def test_the_greeks_are_drawn(drawn: Drawn) -> None:
    assert "20,000 paths: price and 12 Greeks" in drawn(GREEKS, "--paths", "20000")
