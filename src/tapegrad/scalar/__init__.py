"""The scalar engine: graphs, compiled programs, and transforms of functions of scalars."""

import copyreg as _copyreg

from tapegrad._core import Graph, Var, isa, isas, set_isa
from tapegrad._core import functions as _functions
from tapegrad._core.functions import *  # noqa: F403  the op table decides what there is
from tapegrad.scalar.array_functions import enable
from tapegrad.scalar.arrays import VarArray
from tapegrad.scalar.branches import Branch
from tapegrad.scalar.check import gradcheck
from tapegrad.scalar.control import scan
from tapegrad.scalar.custom import custom
from tapegrad.scalar.descent import Minimum
from tapegrad.scalar.picture import Picture, to_dot
from tapegrad.scalar.profile import Profile
from tapegrad.scalar.program import Program, compile
from tapegrad.scalar.sparse import SparseProgram, SparseVars
from tapegrad.scalar.transforms import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from tapegrad.scalar.trouble import NonFinite, locate_nonfinite

__all__ = [
    "Branch",
    "Graph",
    "Minimum",
    "NonFinite",
    "Picture",
    "Profile",
    "Program",
    "SparseProgram",
    "SparseVars",
    "Var",
    "VarArray",
    "compile",
    "custom",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "isa",
    "isas",
    "jacobian",
    "jvp",
    "locate_nonfinite",
    "scan",
    "set_isa",
    "to_dot",
    "value_and_grad",
    "vjp",
]
__all__ += _functions.__all__
# Native functions are copied and pickled as Python's are: by name.
_copyreg.pickle(type(_functions.exp), lambda function: function.__qualname__)
enable()
