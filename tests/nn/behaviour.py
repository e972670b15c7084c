"""What modules do beside computing, as events; runs in any library of PyTorch's shape."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np


def texts(lib: Any, builds: list[str]) -> list[str]:
    """Return the repr of modules."""
    return [repr(eval(build, {"nn": lib.nn, "tt": lib.tt})) for build in builds]


def network(lib: Any) -> Any:
    """Return a network with a shared layer, a parameter and buffers of its own."""
    nn, tt = lib.nn, lib.tt

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.rows = nn.ModuleList([nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3)])
            self.scale = nn.Parameter(tt.ones(3))
            self.register_buffer("kept", tt.arange(3))
            self.register_buffer("passing", tt.ones(2), persistent=False)
            self.register_buffer("nothing", None)
            self.again = self.rows[0]
            self.register_parameter("absent", None)

        def forward(self, x: Any) -> Any:
            x = self.first(x) * self.scale
            for row in self.rows:
                x = row(x)
            return self.again(x)

    return Net()


def weights(lib: Any, build: str) -> dict[str, Any]:
    """Return the state of a fresh module as arrays."""
    state = eval(build, {"nn": lib.nn}).state_dict()
    return {key: each.numpy() for key, each in state.items()}


def types_after(lib: Any, ways: list[Any]) -> list[Any]:
    """Return the types of a network's tensors after `to` with arguments; "refused" for none."""
    found: list[Any] = []
    for args, kwargs in ways:
        net = network(lib)
        given = [_kind(lib, each) for each in args]
        named = {key: _kind(lib, each) for key, each in kwargs.items()}
        try:
            net.to(*given, **named).cpu()
        except (RuntimeError, TypeError):
            found.append("refused")
            continue
        state = net.state_dict()
        found.append([str(each.dtype).partition(".")[2] for each in state.values()])
    return found


def _kind(lib: Any, each: Any) -> Any:
    """Return the argument of `to` that a text stands for."""
    if each == "cpu":
        return each
    if each.startswith("="):
        return lib.tt.ones(1, dtype=getattr(lib.tt, each[1:]))
    return getattr(lib.tt, each)


def without_dim(lib: Any) -> Any:
    """Return softmax and its logarithm along the dimension that modules choose themselves."""
    found = []
    for shape in ((), (3,), (2, 3), (2, 3, 2), (2, 3, 2, 2)):
        x = lib.tt.tensor(np.arange(np.prod(shape)).reshape(shape) / 10)
        found += [layer()(x).numpy() for layer in (lib.nn.Softmax, lib.nn.LogSoftmax)]
    return found


def walks(lib: Any) -> Any:
    """Return the names that all walks over a network meet, and what changes of it leave."""
    net = network(lib)
    found = {
        "state": list(net.state_dict()),
        "prefixed": list(net.state_dict(prefix="net.")),
        "parameters": [name for name, _ in net.named_parameters()],
        "doubled": [name for name, _ in net.named_parameters(remove_duplicate=False)],
        "own": [name for name, _ in net.named_parameters(recurse=False)],
        "buffers": [name for name, _ in net.named_buffers("net")],
        "modules": [(name, type(each).__name__) for name, each in net.named_modules()],
        "children": [name for name, _ in net.named_children()],
        "submodule": type(net.get_submodule("rows.1")).__name__,
        "parameter": tuple(net.get_parameter("rows.0.bias").shape),
    }
    applied: list[str] = []
    net.apply(lambda each: applied.append(type(each).__name__))
    net.eval()
    found |= {"applied": applied, "modes": [each.training for each in net.modules()]}
    net.rows[2].train()
    found["modes again"] = [each.training for each in net.modules()]
    del net.scale
    net.first = lib.nn.Identity()
    net.kept = lib.tt.ones(1)
    found["changed"] = list(net.state_dict())
    net.requires_grad_(False)
    found["frozen"] = [each.requires_grad for each in net.parameters()]
    return found


def conversions(lib: Any) -> Any:
    """Return dtypes and identities after a network changed its dtype."""
    net = network(lib)
    before = [id(each) for each in net.parameters()]
    net(lib.tt.ones(2, 2)).sum().backward()
    net.to(lib.tt.float64)
    kinds = {name: str(each.numpy().dtype) for name, each in net.state_dict().items()}
    gradients = [str(each.grad.numpy().dtype) for each in net.parameters()]
    same = before == [id(each) for each in net.parameters()]
    output = net(lib.tt.ones(2, 2, dtype=lib.tt.float64)).dtype == lib.tt.float64
    return kinds, gradients, same, output, [each.is_leaf for each in net.parameters()]


def copies(lib: Any) -> Any:
    """Return whether copies of a module are equal and apart, by deepcopy and by pickle."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.add_module("tied", model[0])
    x = lib.tt.tensor(np.eye(2, dtype="float32"))
    model[0].weight.requires_grad_(False)
    found = []
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found += [
            list(made.state_dict()) == list(model.state_dict()),
            type(made[0].weight) is nn.Parameter,
            [each.requires_grad for each in made.parameters()],
            made[0] is made[2] and made[0] is not model[0],
            bool((made.eval()(x) == model.eval()(x)).all()),
        ]
        with lib.tt.no_grad():
            made[0].weight.zero_()
        found.append(bool((model[0].weight == 0).all()))
    return found


def hooks(lib: Any) -> Any:
    """Return what hooks of all kinds saw, and what they changed."""
    layer = lib.nn.Linear(2, 2)
    with lib.tt.no_grad():
        layer.weight.copy_(lib.tt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.zero_()
    seen: list[Any] = []

    def note(name: str, *parts: Any, answer: Any = None) -> Any:
        seen.append((name, [_plain(part) for part in parts]))
        return answer

    handles = [
        layer.register_forward_pre_hook(lambda _, args: note("pre", *args, answer=args[0] * 2)),
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: note("kwargs", *args, *kwargs), with_kwargs=True
        ),
        layer.register_forward_hook(lambda _, args, out: note("post", *args, out, answer=out + 1)),
        layer.register_forward_hook(lambda _, args, out: note("first", out), prepend=True),
        layer.register_full_backward_hook(
            lambda _, into, out: note("backward", *into, *out, answer=(into[0] * 10,))
        ),
        layer.register_full_backward_pre_hook(
            lambda _, out: note("backward pre", *out, answer=(out[0] * 3,))
        ),
    ]
    x = lib.tt.tensor([[1.0, -1.0]], requires_grad=True)
    output = layer(x)
    output.sum().backward()
    note("gradients", output, x.grad, layer.weight.grad)
    for handle in handles:
        handle.remove()
    note("removed", layer(x))
    with layer.register_forward_hook(lambda *_: note("with")):
        layer(x)
    layer(x)
    layer.register_full_backward_hook(lambda _, into, out: note("no input", *into, *out))
    layer(x.detach()).sum().backward()
    return seen


def hooks_at_borders(lib: Any) -> Any:
    """Return what backward hooks see where a border is not one of tensors with gradients."""
    seen: list[Any] = []

    class Formed(lib.nn.Module):  # type: ignore[misc]
        def forward(self, form: str, x: Any, y: Any) -> Any:
            twice = x * 2
            return {"plain": twice, "dict": {"a": twice}, "deep": (y, [twice])}[form]

    def values(gradients: Any) -> Any:
        return [None if each is None else each.tolist() for each in gradients]

    def called(form: str, y: Any) -> None:
        layer = Formed()
        layer.register_full_backward_hook(
            lambda _, into, out: seen.append((form, values(into), values(out)))
        )
        x = lib.tt.tensor([1.0, 2.0], requires_grad=True)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = layer(form, x, y)
        result = result["a"] if form == "dict" else result[1][0] if form == "deep" else result
        result.sum().backward()
        rest = None if getattr(y, "grad", None) is None else y.grad.tolist()
        seen.append((x.grad.tolist(), rest, len(warned)))

    for form in ("plain", "dict", "deep"):
        for wanted in (True, False):
            called(form, lib.tt.tensor([3.0], requires_grad=wanted))
    called("plain", lib.tt.tensor([3]))
    called("plain", 3)
    layer = Formed()
    layer.register_full_backward_hook(lambda *_: None)
    constant, leaf = lib.tt.ones(1), lib.tt.ones(1, requires_grad=True)
    seen.append(layer("plain", constant, leaf).requires_grad)
    return seen


def clips(lib: Any, kind: str) -> Any:
    """Return gradients after clipping, given as text over `utils` and `parameters`."""
    random = np.random.default_rng(0)
    parameters = [lib.tt.ones(shape, requires_grad=True) for shape in ((3, 2), (4,), (1,))]
    for parameter in parameters[:2]:
        values = random.standard_normal(tuple(parameter.shape)).astype("float32")
        parameter.grad = lib.tt.tensor(values)
    norm = eval(kind, {"utils": lib.nn.utils, "parameters": parameters})
    return _plain(norm), [_plain(each.grad) for each in parameters]


def draws(lib: Any, fill: str, shape: tuple[int, ...]) -> Any:
    """Return mean, deviation and range of what an initialiser fills in."""
    values = eval(fill, {"init": lib.nn.init, "t": lib.tt.empty(shape)}).numpy().astype(float)
    return [float(each) for each in (values.mean(), values.std(), values.min(), values.max())]


def _plain(part: Any) -> Any:
    return part.detach().numpy().copy() if hasattr(part, "detach") else part
