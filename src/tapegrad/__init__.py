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

from tapegrad import errors as errors
from tapegrad.errors import BranchChanged as BranchChanged
from tapegrad.errors import CompileError as CompileError
from tapegrad.errors import DeviceError as DeviceError
from tapegrad.errors import DTypeError as DTypeError
from tapegrad.errors import FileError as FileError
from tapegrad.errors import GradError as GradError
from tapegrad.errors import GraphError as GraphError
from tapegrad.errors import OptionError as OptionError
from tapegrad.errors import ShapeError as ShapeError
from tapegrad.errors import StateError as StateError
from tapegrad.errors import TapegradError as TapegradError

__version__ = "0.1.0"

#: What exists without the engine: errors, and parts that are imported when they are named.
_ERRORS = [
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, Exception)
]
_PARTS = (
    *("backends", "bench", "cli", "data", "distributed", "io", "models", "nn", "optim", "scalar"),
    *("tensors", "worker"),
)
#: Where the names of the engine are, in the order in which they are looked for.
_ENGINE = ("tapegrad.verbs", "tapegrad.scalar", "tapegrad.tensors")

if TYPE_CHECKING:
    from tapegrad import tensors as _tensors
    from tapegrad._core import functions as _functions
    from tapegrad.tensors import *  # noqa: F403
    from tapegrad._core.functions import *  # noqa: F403
    from tapegrad.scalar import Branch as Branch
    from tapegrad.scalar import Graph as Graph
    from tapegrad.scalar import Minimum as Minimum
    from tapegrad.scalar import NonFinite as NonFinite
    from tapegrad.scalar import Picture as Picture
    from tapegrad.scalar import Profile as Profile
    from tapegrad.scalar import Program as Program
    from tapegrad.scalar import SparseProgram as SparseProgram
    from tapegrad.scalar import SparseVars as SparseVars
    from tapegrad.scalar import Var as Var
    from tapegrad.scalar import VarArray as VarArray
    from tapegrad.scalar import compile as compile
    from tapegrad.scalar import custom as custom
    from tapegrad.scalar import hessian as hessian
    from tapegrad.scalar import hvp as hvp
    from tapegrad.scalar import isa as isa
    from tapegrad.scalar import isas as isas
    from tapegrad.scalar import jacobian as jacobian
    from tapegrad.scalar import jvp as jvp
    from tapegrad.scalar import locate_nonfinite as locate_nonfinite
    from tapegrad.scalar import scan as scan
    from tapegrad.scalar import set_isa as set_isa
    from tapegrad.scalar import to_dot as to_dot
    from tapegrad.scalar import value_and_grad as value_and_grad
    from tapegrad.scalar import vjp as vjp
    from tapegrad.verbs import grad as grad
    from tapegrad.verbs import gradcheck as gradcheck

    __all__ = ["errors"]
    __all__ += _functions.__all__
    __all__ += _tensors.__all__
else:

    def __getattr__(name: str) -> Any:
        """Load the engine when one of its names is first used: the bench does without it."""
        if name in _PARTS:
            return import_module(f"tapegrad.{name}")
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'tapegrad' has no attribute {name!r}")
        for place in _ENGINE:
            try:
                engine = import_module(place)
            except ImportError as error:
                raise AttributeError(f"tapegrad.{name}: the engine is missing: {error}") from error
            if name in engine.__all__:
                found = globals()[name] = getattr(engine, name)
                return found
        if name == "__all__":
            modules = [import_module(place) for place in _ENGINE]
            every = {each for module in modules for each in module.__all__}
            found = globals()["__all__"] = ["errors", *_ERRORS, *sorted(every)]
            return found
        raise AttributeError(f"module 'tapegrad' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__"), *_PARTS})
