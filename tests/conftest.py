"""What tests of several packages share."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

pytest_plugins = ["tests.oracles.torch"]

# The same examples in every run: what passes here passes elsewhere. New ones are looked for by
# `pytest --hypothesis-profile=default`, which draws others every time. How long one may take is not
# asked: machines differ.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell that runs the tests in the background makes them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
