"""Gradients that would be views of the cotangent are copied, and only those."""

from __future__ import annotations

import numpy as np

from tapegrad.worker.owned import Owned


def test_what_shares_memory_is_copied() -> None:
    cotangent = np.ones(4)
    own, again = np.zeros(4), np.zeros(4)
    owned = Owned(
        [cotangent], lambda each: each.ctypes.data if each.strides[0] else 0, lambda _, g: g.copy()
    )
    repeated = np.broadcast_to(np.float64(2.0), 4)
    for _ in range(2):
        found = owned([cotangent, own, own, repeated, again])
        assert found[1] is own
        assert found[4] is again
        assert not any(np.shares_memory(found[place], cotangent) for place in range(5))
        assert not np.shares_memory(found[1], found[2])
        assert found[3].tolist() == [2.0] * 4


def test_gradients_of_their_own_are_left_as_they_are() -> None:
    gradients = [np.zeros(3)]
    owned = Owned([np.ones(3)], lambda each: each.ctypes.data, lambda _, g: g.copy())
    assert owned(gradients) is gradients
