"""Weights that torchvision would fetch: here they come from files."""

from __future__ import annotations

from typing import Any

from tapegrad.errors import OptionError


def without_weights(options: dict[str, Any]) -> dict[str, Any]:
    """Return a model's options without torchvision's `weights`, which are to be None."""
    weights = options.pop("weights", None)
    if weights is not None:
        raise OptionError(
            f"weights: expected None, got {weights!r}; load a file instead, as by "
            "model.load_state_dict(tapegrad.io.load(path))"
        )
    return options
