"""Custom functions, checkpoints, hooks and gradients that are set, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.gradient_calls import CALLS


@pytest.mark.parametrize("call", CALLS, ids=lambda each: str(each.__name__))
def test_gradients_are_handled_as_in_pytorch(torch: Torch, call: Any) -> None:
    assert_equal(call(tapegrad()), torch(call), 1e-12, call.__name__)
