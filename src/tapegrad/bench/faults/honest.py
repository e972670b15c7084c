"""The control: no fault at all. It must come out `checked`."""

from __future__ import annotations

from tapegrad.worker.honest import Honest

__all__ = ["Honest"]

ADAPTERS = {"honest": "Honest"}
