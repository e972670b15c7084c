"""Fixtures: every instruction set this machine can run."""

from collections.abc import Iterator

import pytest

import tapegrad as tg


@pytest.fixture(params=tg.isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """One instruction set after the other, with the one in use before put back."""
    before = tg.isa()
    tg.set_isa(request.param)
    yield request.param
    tg.set_isa(before)
