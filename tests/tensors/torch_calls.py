"""Calls of operations for any library of PyTorch's shape; imports NumPy and nothing else."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

Call = tuple[str, list[Any], dict[str, Any]]


def differentiate(lib: Any, calls: list[Call]) -> list[Any]:
    """Return the results of calls, and the gradients of their weighted sums by float operands."""
    return [_differentiated(lib, *call) for call in calls]


def _differentiated(lib: Any, name: str, given: list[Any], options: dict[str, Any]) -> Any:
    operands: list[Any] = []
    arguments = [_argument(lib, each, operands) for each in given]
    found = function(lib, name)(*arguments, **options)
    outs = found if isinstance(found, (tuple, list)) else (found,)
    smooth = [out for out in outs if out.requires_grad]
    gradients: Any = []
    if smooth and operands:
        gradients = _gradients(lib, smooth, operands)
    return (
        [out.detach().numpy() for out in outs],
        [None if each is None else each.numpy() for each in gradients],
    )


def differentiate_twice(lib: Any, calls: list[Call]) -> list[Any]:
    """Return the gradients of calls' weighted gradients; None where a library has none."""
    return [_differentiated_twice(lib, *call) for call in calls]


def _differentiated_twice(lib: Any, name: str, given: list[Any], options: dict[str, Any]) -> Any:
    operands: list[Any] = []
    arguments = [_argument(lib, each, operands) for each in given]
    found = function(lib, name)(*arguments, **options)
    outs = found if isinstance(found, (tuple, list)) else (found,)
    smooth = [out for out in outs if out.requires_grad]
    if not smooth or not operands:
        return []
    slopes = _gradients(lib, smooth, operands, create_graph=True)
    curved = [each for each in slopes if each is not None and each.requires_grad]
    try:
        second = _gradients(lib, curved, operands) if curved else [None] * len(operands)
    except RuntimeError as error:
        if "not implemented" in str(error):
            return None
        raise
    # What is not reached, what is zero, and PyTorch's zeros without memory are the same.
    found = zip(second, [lib.tt.zeros_like(x) for x in operands], strict=True)
    return [(zero if each is None else zero + each).numpy() for each, zero in found]


def _gradients(lib: Any, outs: Any, operands: list[Any], create_graph: bool = False) -> Any:
    weights = [lib.tt.tensor(weight(tuple(out.shape))).to(out.dtype) for out in outs]
    return lib.tt.autograd.grad(
        outs, operands, weights, create_graph=create_graph, allow_unused=True
    )


def _argument(lib: Any, each: Any, operands: list[Any]) -> Any:
    """Return what is given: options as they are, and tensors for pairs of array and `grad`."""
    if isinstance(each, list):
        return [_argument(lib, part, operands) for part in each]
    if not isinstance(each, tuple) or not each or not isinstance(each[0], np.ndarray):
        return each
    array, grad = each
    tensor = lib.tt.tensor(array)
    if grad and tensor.is_floating_point():
        tensor.requires_grad_()
        operands.append(tensor)
    return tensor


def unknown_names(lib: Any, calls: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the calls by name that are refused, with the reason."""
    found = {}
    for name, given in calls.items():
        arguments = {key: _argument(lib, each, []) for key, each in given.items()}
        is_method = not hasattr(lib.F, name) and not hasattr(lib.tt, name)
        own = [arguments.pop("input")] if is_method else []
        try:
            function(lib, name)(*own, **arguments)
        except TypeError as error:
            found[name] = str(error)
    return found


def function(lib: Any, name: str) -> Any:
    """Return PyTorch's function of this name, wherever it is."""
    for place in (lib.F, lib.tt, lib.tt.Tensor):
        if hasattr(place, name):
            return getattr(place, name)
    raise AttributeError(name)


def weight(shape: tuple[int, ...]) -> Any:
    """Return weights for a result of this shape, none of them alike."""
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)


def promotions(lib: Any, kinds: list[str], numbers: list[Any], ops: list[str]) -> dict[str, str]:
    """Return the types of results for all pairs of operands; "error" where there is none."""
    operands = {f"{kind}[{ndim}]": _one(lib, kind, ndim) for kind in kinds for ndim in (0, 1)}
    operands |= {repr(number): number for number in numbers}
    found = {}
    for op in ops:
        for left, a in operands.items():
            for right, b in operands.items():
                if not isinstance(a, (bool, int, float)) or not isinstance(b, (bool, int, float)):
                    found[f"{left} {op} {right}"] = _kind(lib, op, a, b)
    return found


def _one(lib: Any, kind: str, ndim: int) -> Any:
    return lib.tt.ones((2,) * ndim, dtype=getattr(lib.tt, kind, None) or lib.tt.bool_)


def _kind(lib: Any, op: str, a: Any, b: Any) -> str:
    try:
        return str(eval(op, {"tt": lib.tt}, {"a": a, "b": b}).dtype).partition(".")[2]
    except (RuntimeError, TypeError):
        return "error"


def evaluate(lib: Any, expression: str, arrays: dict[str, Any], *device: str) -> Any:
    """Return the value of an expression over arrays, `tt` and `F`, as an array."""
    tensors = {name: _on(lib.tt.tensor(array), device) for name, array in arrays.items()}
    found = eval(expression, {"tt": lib.tt, "F": lib.F, **tensors})
    return [each.numpy() for each in found] if isinstance(found, (tuple, list)) else found.numpy()


def _on(tensor: Any, device: tuple[str, ...]) -> Any:
    return tensor.to(device[0]) if device else tensor


def slopes(lib: Any, name: str, *device: str) -> Any:
    """Return the gradient of a function at values where it has none or several."""
    values = [0.0, 3.0, 3.0, 0.5, 100.0, 0.0]
    x = _on(lib.tt.tensor(values, dtype=lib.tt.float64), device).requires_grad_()
    y = lib.tt.maximum(x, x.detach().flip(0)) if name == "maximum" else getattr(x, name)()
    y.sum().backward()
    return x.grad.numpy()


def index_all(lib: Any, cases: list[Any], *device: str) -> list[Any]:
    """Return for shapes and indices what is read, what is left after writing, and gradients."""
    return [_indexed(lib, shape, index, number, device) for shape, index, number in cases]


def _indexed(
    lib: Any, shape: tuple[int, ...], index: Any, number: bool, device: tuple[str, ...]
) -> list[Any]:
    elements = np.arange(np.prod(shape, dtype=int), dtype="float64").reshape(shape)
    x = _on(lib.tt.tensor(elements), device).requires_grad_()
    places = tuple(_place(lib, each, device) for each in index)
    places = places if len(places) != 1 else places[0]
    picked = x[places]
    value = lib.tt.tensor(-weight(() if number else tuple(picked.shape)))
    value = _on(value, device).requires_grad_()
    written = x * 2
    written[places] = value
    plain = _on(lib.tt.tensor(elements), device)
    plain[places] = -1.0 if number else value.detach()
    found = [plain.numpy()]
    for out in (picked, written):
        weights = _on(lib.tt.tensor(weight(tuple(out.shape))), device)
        gradients = lib.tt.autograd.grad([out], [x, value], [weights], allow_unused=True)
        found += [out.detach().numpy(), *[each.numpy() for each in gradients if each is not None]]
    return found


def _place(lib: Any, each: Any, device: tuple[str, ...]) -> Any:
    """Return an item of an index; arrays as tensors."""
    return _on(lib.tt.tensor(each), device) if isinstance(each, np.ndarray) else each


def refusals(lib: Any, expressions: list[str], *device: str) -> list[bool]:
    """Return which expressions raise an error."""
    return [_refused(lib, each, device) for each in expressions]


def _refused(lib: Any, expression: str, device: tuple[str, ...]) -> bool:
    def tensor(data: Any, **options: Any) -> Any:
        return _on(lib.tt.tensor(data, **options), device)

    try:
        eval(expression, {"tt": lib.tt, "F": lib.F, "t": tensor})
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return True
    return False


def gradients_of(lib: Any, expression: str, given: list[Any], *device: str) -> list[Any]:
    """Return an expression over x, y and so on, summed, and its gradients by all of them."""
    leaves = [_on(lib.tt.tensor(each, dtype=lib.tt.float64), device) for each in given]
    names = {name: x.requires_grad_() for name, x in zip("xyz", leaves, strict=False)}
    total = eval(expression, {"tt": lib.tt, "F": lib.F, **names}).sum()
    total.backward()
    zeros = [lib.tt.zeros_like(x) if x.grad is None else x.grad for x in leaves]
    return [total.detach().numpy(), *[each.numpy() for each in zeros]]


def orders(lib: Any, expression: str, arrays: dict[str, Any], *device: str) -> list[Any]:
    """Return gradients of an expression, recorded and not, and those of the squares of recorded."""
    tensors = {name: _on(lib.tt.tensor(array), device) for name, array in arrays.items()}
    leaves = [x.requires_grad_() for x in tensors.values() if x.is_floating_point()]
    out = eval(expression, {"tt": lib.tt, "F": lib.F, **tensors})
    weights = [_on(lib.tt.tensor(weight(tuple(out.shape))), device).to(out.dtype)]
    grad = lib.tt.autograd.grad
    plain = grad([out], leaves, weights, retain_graph=True, allow_unused=True)
    recorded = grad([out], leaves, weights, create_graph=True, allow_unused=True)
    squares = [(x * x).sum() for x in recorded if x is not None and x.requires_grad]
    second = grad(squares, leaves, allow_unused=True) if squares else [None] * len(leaves)
    found = [out.detach().numpy()]
    for x, each in zip(leaves * 3, (*plain, *recorded, *second), strict=True):
        zero = lib.tt.zeros_like(x)
        found.append((zero if each is None else zero + each.detach()).numpy())
    return found


def changed(lib: Any, statement: str, given: list[Any], *device: str) -> list[Any]:
    """Return what a change of y = x * 1 in place leaves, and the gradients by x and z."""
    x, z = (_on(lib.tt.tensor(each, dtype=lib.tt.float64), device) for each in given)
    names = {"x": x.requires_grad_(), "z": z.requires_grad_(), "tt": lib.tt}
    exec(f"y = x * 1\nsame = y\n{statement}\nassert y is same", names)
    y: Any = names["y"]
    gradients = lib.tt.autograd.grad([(y * y).sum()], [x, z], allow_unused=True)
    return [y.detach().numpy(), *[each.numpy() for each in gradients if each is not None]]


def derivatives(lib: Any, name: str, points: list[float], kind: str, device: str = "cpu") -> Any:
    """Return slopes of an operation, recorded and not, and those of their squares."""
    dtype = getattr(lib.tt, kind)
    x = lib.tt.tensor(points, dtype=dtype, device=device, requires_grad=True)
    (recorded,) = lib.tt.autograd.grad(getattr(lib.tt, name)(x).sum(), x, create_graph=True)
    (second,) = lib.tt.autograd.grad((recorded * recorded).sum(), x)
    getattr(lib.tt, name)(x).sum().backward()
    return [each.detach().cpu().numpy() for each in (x.grad, recorded, second)]


def made(lib: Any, texts: list[str]) -> list[Any]:
    """Return type, shape and elements of tensors that expressions make."""
    names = {"tt": lib.tt, "nan": float("nan"), "inf": float("inf")}
    found = [eval(text, names) for text in texts]
    return [(str(x.dtype).split(".")[-1], tuple(x.shape), x.tolist()) for x in found]


def parameters(lib: Any, names: list[str]) -> dict[str, list[str]]:
    """Return the names of all arguments that PyTorch's functions take."""
    return {name: sorted(_parameters(lib, name)) for name in names}


def signatures(lib: Any, names: list[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return arguments by the name of what takes them: those with a place, and the others.

    What a library does not have, or has in C++, and what is not called is left out.
    """
    found = {}
    for name in names:
        value: Any = lib
        try:
            for part in name.split("."):
                value = getattr(value, part)
            given = inspect.signature(value).parameters.values()
        except (AttributeError, TypeError, ValueError):
            continue
        each = [x for x in given if x.name != "self"]
        placed = [x.name for x in each if x.kind is x.POSITIONAL_OR_KEYWORD]
        found[name] = placed, sorted(x.name for x in each if x.kind is x.KEYWORD_ONLY)
    return found


def _parameters(lib: Any, name: str) -> set[str]:
    """Return the names of a function's arguments; of all its forms, where it is not Python's."""
    try:
        return set(inspect.signature(function(lib, name)).parameters)
    except ValueError:
        forms = lib.tt._C._jit_get_schemas_for_operator(f"aten::{name}")
    return {
        "input" if each.name == "self" else each.name
        for form in forms
        if "Tensor" in str(form.arguments[0].type) and "Dimname" not in str(form)
        for each in form.arguments
        if not each.is_out
    }
