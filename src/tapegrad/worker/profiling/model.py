"""A user's model, loaded from a file and ready to run steps."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tapegrad.worker.adapter import Unsupported
from tapegrad.worker.profiling.tree import leaves, mapped

#: What a model's file has to say, for messages.
CONVENTION = (
    "It must return (model, inputs): the model, and its inputs as a tensor, a tuple or list of "
    "positional arguments, or a dict of named ones."
)
SEED = 0


class Model:
    """A model with its inputs, and one step of it.

    The phase `step` is forward and backward, `forward` the forward pass that keeps what a
    backward pass would need, `inference` the one that does not.
    """

    def __init__(self, file: Path, function: str, phase: str, device: str) -> None:
        torch.manual_seed(SEED)
        self.phase = phase
        self.name = f"{file.name}:{function}"
        made = _called(_function(_module(file), function, self.name), self.name, file)
        self.call, self._arguments, self._named = _parts(made, self.name, device)
        self._file = file
        self._cotangents: list[Any] = []
        self._leaves = [
            tensor
            for tensor in (*_parameters(self.call), *leaves([self._arguments, self._named]))
            if tensor.is_leaf and tensor.requires_grad
        ]
        self._try()

    @property
    def modules(self) -> Mapping[str, Any]:
        """Return the modules by their path; the model itself has none.

        One that is in several places has all of their paths: a call does not tell by which it came.
        Those of TorchScript cannot be followed: their operators are known by their names.
        """
        if not isinstance(self.call, torch.nn.Module):
            return {}
        paths: dict[Any, list[str]] = {}
        for path, module in self.call.named_modules(remove_duplicate=False):
            if isinstance(module, torch.jit.ScriptModule):
                continue
            paths.setdefault(module, []).append(path)
        return {" = ".join(found): module for module, found in paths.items() if "" not in found}

    def reset(self) -> None:
        """Forget the gradients of the step before; outside the clock."""
        for tensor in self._leaves:
            tensor.grad = None

    def step(self) -> None:
        """Run one step."""
        outputs = self.forward()
        if self.phase == "step":
            torch.autograd.backward(outputs, self._cotangents)

    def forward(self) -> list[Any]:
        """Run the model and return what a backward pass starts from."""
        with torch.set_grad_enabled(self.phase != "inference"):
            result = self.call(*self._arguments, **self._named)
        return [tensor for tensor in leaves(result) if tensor.requires_grad]

    def _try(self) -> None:
        """Run a step for the first time; whatever is wrong with the model shows here."""
        try:
            outputs = self.forward()
            self._cotangents = [cotangent(output) for output in outputs]
            self.reset()
            self.step()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise Unsupported(f"The model of {self.name} fails: {_told(error, self._file)}") from (
                error
            )
        if self.phase == "step" and not outputs:
            raise Unsupported(
                f"The model of {self.name} returns no tensor with a gradient: is everything "
                "frozen or detached? The phase inference needs no gradients."
            )


def cotangent(output: Any) -> Any:
    """Make what a backward pass starts from: one for a loss, random numbers otherwise."""
    return torch.ones_like(output) if output.numel() == 1 else torch.randn_like(output)


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory was short, which is no fault of the model."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError))


def _module(file: Path) -> ModuleType:
    """Import a file as `python file.py` would, with its folder on the path."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Unsupported(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Unsupported(f"{file} is not Python: {error}") from error
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"{file.name} needs {error.name}, which {sys.executable} does not have; "
            "--python names another Python."
        ) from error
    except Exception as error:
        raise Unsupported(f"{file.name} cannot be imported: {_told(error, file)}") from error
    return module


def _function(module: ModuleType, name: str, whole: str) -> Callable[[], Any]:
    found = getattr(module, name, None)
    if found is None:
        there = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        known = f"The file defines: {', '.join(there)}." if there else "The file defines nothing."
        raise Unsupported(f"There is no function {name} for {whole}. {known}")
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise Unsupported(f"{whole} is no function but {_kind(found)}. {CONVENTION}")
    function: Callable[[], Any] = found
    return function


def _called(function: Callable[[], Any], name: str, file: Path) -> Any:
    try:
        return function()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise Unsupported(f"{name} fails: {_told(error, file)}") from error


def _parts(
    made: Any, name: str, device: str
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Split what the user's function returned into model, positional and named arguments."""
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise Unsupported(f"{name} returned {_kind(made)}. {CONVENTION}")
    model, inputs = made
    if isinstance(inputs, torch.nn.Module) or not (
        isinstance(inputs, (torch.Tensor, tuple, list, dict))
    ):
        raise Unsupported(f"{name} returned {_kind(inputs)} as inputs. {CONVENTION}")
    if _is_compiled(model) or isinstance(model, torch.jit.ScriptModule):
        raise Unsupported(
            f"{name} returned a compiled model, which has no operators left to tell apart. "
            "Return the model itself."
        )
    if isinstance(model, torch.nn.Module):
        for path, part in model.named_modules():
            if _is_compiled(part):
                raise Unsupported(
                    f"{name} returned a model whose part {path} is compiled: it has no operators "
                    "left to tell apart. Leave torch.compile out."
                )
        model = model.to(device)
    placed = mapped(inputs, lambda tensor: _placed(tensor, device))
    if isinstance(placed, dict):
        return model, (), placed
    return model, (placed,) if isinstance(placed, torch.Tensor) else tuple(placed), {}


def _is_compiled(model: Any) -> bool:
    """Tell whether torch.compile made it of a model or a function, or `compile()` changed it."""
    marks = ("_orig_mod", "_torchdynamo_orig_callable")
    compiled_in_place = getattr(model, "_compiled_call_impl", None) is not None
    return compiled_in_place or any(hasattr(model, mark) for mark in marks)


def _placed(tensor: Any, device: str) -> Any:
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad)


def _parameters(model: Callable[..., Any]) -> list[Any]:
    return list(model.parameters()) if isinstance(model, torch.nn.Module) else []


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(each).__name__ for each in value)})"
    return "nothing" if value is None else f"{type(value).__name__}"


def _told(error: Exception, file: Path) -> str:
    """Write an error with the line of the user's file that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file]
    where = f" (line {lines[-1]} of {file.name})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"
