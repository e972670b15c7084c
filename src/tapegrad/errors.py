"""What tapegrad raises. Every message says what was expected, what came and what to do."""

from typing import Any


class TapegradError(Exception):
    """The base of all errors of this library."""


class GraphError(TapegradError, ValueError):
    """A graph was used in a way that cannot be recorded, as Vars of two graphs in one operation."""

    graphs: tuple[Any, ...] = ()
    """Where Vars of two graphs meet: the two."""


class ShapeError(TapegradError, ValueError):
    """An array or sequence has the wrong shape."""


class OptionError(TapegradError, ValueError):
    """An option has a value that makes no sense, as a negative number of steps."""


class DTypeError(TapegradError, TypeError):
    """A value has the wrong type."""


class DeviceError(TapegradError, RuntimeError):
    """Tensors of two devices meet, or a device is not there."""


class GradError(TapegradError, RuntimeError):
    """A derivative was asked for that does not exist here."""


class FileError(TapegradError, ValueError):
    """A saved file is damaged, or of a format that this version does not know."""


class CompileError(TapegradError, ValueError):
    """A program cannot be made from these outputs and inputs."""


class StateError(TapegradError, RuntimeError):
    """A state_dict does not fit the module or the optimiser that is to take it."""


class BranchChanged(TapegradError, ValueError):  # noqa: N818  what happened, not what is wrong
    """A point would take another branch than the one that was frozen when it was recorded."""

    rows: list[int] | None = None
    """Of many rows: those that would, counted from 0; of a descent from many starts: the starts
    that were the first to get there. None for a single point or start."""
    branches: tuple[Any, ...] = ()
    """The branches that these rows, or the point, leave."""
