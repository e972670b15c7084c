"""Fixtures: every instruction set this machine can run, and Ctrl-C."""

import signal
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


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell that runs the tests in the background makes them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
