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

from tapegrad import errors
from tapegrad._core import Graph, Var, isa, isas, set_isa
from tapegrad._core import functions as _functions
from tapegrad._core.functions import *  # noqa: F403  the op table decides what there is
from tapegrad.errors import (
    CompileError,
    DTypeError,
    GradError,
    GraphError,
    OptionError,
    ShapeError,
    TapegradError,
)
from tapegrad.scalar.program import Minimum, Program, compile
from tapegrad.scalar.transforms import grad, value_and_grad

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "DTypeError",
    "GradError",
    "Graph",
    "GraphError",
    "Minimum",
    "OptionError",
    "Program",
    "ShapeError",
    "TapegradError",
    "Var",
    "compile",
    "errors",
    "grad",
    "isa",
    "isas",
    "set_isa",
    "value_and_grad",
]
__all__ += _functions.__all__
