"""Record a computation once, compile it in milliseconds, replay it forward and backward.

Example:
    >>> import tapegrad as tg
    >>> g = tg.Graph()
    >>> x, y = g.inputs(2)
    >>> program = tg.compile(tg.exp(x) * y, wrt=[x, y])
    >>> value, gradient = program([0.0, 3.0])
    >>> value, gradient.tolist()
    (3.0, [3.0, 1.0])

"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tapegrad import errors
from tapegrad.errors import (
    CompileError,
    DTypeError,
    GradError,
    GraphError,
    OptionError,
    ShapeError,
    TapegradError,
)

__version__ = "0.1.0"

_OWN = [
    "CompileError",
    "DTypeError",
    "GradError",
    "GraphError",
    "OptionError",
    "ShapeError",
    "TapegradError",
    "errors",
]
_PARTS = ("bench", "cli", "scalar", "worker")

if TYPE_CHECKING:
    from tapegrad.scalar import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Load the engine when one of its names is first used: the bench does without it."""
        if name in _PARTS:
            return import_module(f"tapegrad.{name}")
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'tapegrad' has no attribute {name!r}")
        engine = import_module("tapegrad.scalar")
        names = engine.__all__
        globals().update({each: getattr(engine, each) for each in names}, __all__=_OWN + names)
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module 'tapegrad' has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__"), *_PARTS})
