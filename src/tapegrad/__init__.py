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

from importlib import import_module as _import_module
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
    from tapegrad._core import functions as _functions
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
    from tapegrad.tensors import DType as DType
    from tapegrad.tensors import Function as Function
    from tapegrad.tensors import Tensor as Tensor
    from tapegrad.tensors import backward as backward
    from tapegrad.tensors import bool_ as bool_
    from tapegrad.tensors import checkpoint as checkpoint
    from tapegrad.tensors import device as device
    from tapegrad.tensors import elementwise as elementwise
    from tapegrad.tensors import enable_grad as enable_grad
    from tapegrad.tensors import float32 as float32
    from tapegrad.tensors import float64 as float64
    from tapegrad.tensors import get_num_threads as get_num_threads
    from tapegrad.tensors import get_packed_limit as get_packed_limit
    from tapegrad.tensors import gradgradcheck as gradgradcheck
    from tapegrad.tensors import inference_mode as inference_mode
    from tapegrad.tensors import int32 as int32
    from tapegrad.tensors import int64 as int64
    from tapegrad.tensors import is_grad_enabled as is_grad_enabled
    from tapegrad.tensors import is_inference_mode_enabled as is_inference_mode_enabled
    from tapegrad.tensors import is_tensor as is_tensor
    from tapegrad.tensors import no_grad as no_grad
    from tapegrad.tensors import set_grad_enabled as set_grad_enabled
    from tapegrad.tensors import set_num_threads as set_num_threads
    from tapegrad.tensors import set_packed_limit as set_packed_limit
    from tapegrad.tensors.compare import *  # noqa: F403
    from tapegrad.tensors.creation import *  # noqa: F403
    from tapegrad.tensors.ops.arithmetic import *  # type: ignore[no-redef]  # noqa: F403
    from tapegrad.tensors.ops.attention import *  # noqa: F403
    from tapegrad.tensors.ops.conv import *  # noqa: F403
    from tapegrad.tensors.ops.elementwise import *  # type: ignore[no-redef]  # noqa: F403
    from tapegrad.tensors.ops.index import *  # noqa: F403
    from tapegrad.tensors.ops.loss import *  # noqa: F403
    from tapegrad.tensors.ops.matmul import *  # type: ignore[no-redef]  # noqa: F403
    from tapegrad.tensors.ops.norm import *  # noqa: F403
    from tapegrad.tensors.ops.pool import *  # noqa: F403
    from tapegrad.tensors.ops.reduce import *  # type: ignore[no-redef]  # noqa: F403
    from tapegrad.tensors.ops.search import *  # noqa: F403
    from tapegrad.tensors.ops.shape import *  # noqa: F403
    from tapegrad.tensors.ops.softmax import *  # type: ignore[no-redef]  # noqa: F403
    from tapegrad.tensors.random import *  # noqa: F403
    from tapegrad.verbs import grad as grad
    from tapegrad.verbs import gradcheck as gradcheck

    bool: DType
    double: DType
    float: DType
    int: DType
    long: DType

    __all__ = ["errors"]
    __all__ += _functions.__all__
else:

    def __getattr__(name: str) -> Any:
        """Load the engine when one of its names is first used: the bench does without it."""
        if name in _PARTS:
            return _import_module(f"tapegrad.{name}")
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'tapegrad' has no attribute {name!r}")
        for place in _ENGINE:
            try:
                engine = _import_module(place)
            except ImportError as error:
                raise AttributeError(
                    f"tapegrad.{name}: the engine cannot be loaded: {error}"
                ) from error
            if name in engine.__all__:
                found = globals()[name] = getattr(engine, name)
                return found
        if name == "__all__":
            modules = [_import_module(place) for place in _ENGINE]
            every = {each for module in modules for each in module.__all__}
            found = globals()["__all__"] = ["errors", *_ERRORS, *sorted(every)]
            return found
        if name in engine.OTHER_NAMES:
            return engine.OTHER_NAMES[name]
        raise engine.missing("module 'tapegrad'", name)

    def __dir__() -> list[str]:
        names = {*__getattr__("__all__"), *_import_module(_ENGINE[-1]).OTHER_NAMES}
        return sorted({*names, *_PARTS, "__all__", "__doc__", "__version__"})
