"""The scalar engine: graphs, compiled programs, and transforms of functions of scalars."""

from tapegrad._core import Graph, Var, isa, isas, set_isa
from tapegrad._core import functions as _functions
from tapegrad._core.functions import *  # noqa: F403  the op table decides what there is
from tapegrad.scalar.arrays import VarArray, enable
from tapegrad.scalar.check import gradcheck
from tapegrad.scalar.program import Minimum, Program, compile
from tapegrad.scalar.sparse import SparseProgram, SparseVars
from tapegrad.scalar.transforms import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp

__all__ = [
    "Graph",
    "Minimum",
    "Program",
    "SparseProgram",
    "SparseVars",
    "Var",
    "VarArray",
    "compile",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "isa",
    "isas",
    "jacobian",
    "jvp",
    "set_isa",
    "value_and_grad",
    "vjp",
]
__all__ += _functions.__all__
enable()
