"""The scalar engine: graphs, compiled programs, and transforms of functions of scalars."""

from tapegrad._core import Graph, Var, isa, isas, set_isa
from tapegrad._core import functions as _functions
from tapegrad._core.functions import *  # noqa: F403  the op table decides what there is
from tapegrad.scalar.program import Minimum, Program, compile
from tapegrad.scalar.transforms import grad, value_and_grad

__all__ = [
    "Graph",
    "Minimum",
    "Program",
    "Var",
    "compile",
    "grad",
    "isa",
    "isas",
    "set_isa",
    "value_and_grad",
]
__all__ += _functions.__all__
