"""Changes in place of a tensor with views, for any library of PyTorch's shape."""

from __future__ import annotations

from typing import Any

VIEWS: dict[str, Any] = {
    "row": lambda x: x[0],
    "last": lambda x: x[-1],
    "part": lambda x: x[1:],
    "all": lambda x: x[:],
    "step": lambda x: x[::2],
    "narrow": lambda x: x.narrow(-1, 0, 1),
    "transpose": lambda x: x.transpose(0, -1),
    "flat": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "column": lambda x: x[..., -1],
    "wider": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x.squeeze(),
    "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
}
CHANGES: dict[str, Any] = {
    "add_": lambda x, y: x.add_(y),
    "sub_ alpha": lambda x, y: x.sub_(y, alpha=0.5),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "copy_": lambda x, y: x.copy_(y) if hasattr(y, "shape") else x.fill_(y),
    "zero_": lambda x, y: x.zero_(),
    "setitem": lambda x, y: x.__setitem__(-1 if _long(x) else ..., _number(y)),
    "slice": lambda x, y: x.__setitem__(slice(1, None) if x.ndim else ..., _number(y)),
    "places": lambda x, y: x.__setitem__([0] if _long(x) else ..., _number(y)),
    "mask": lambda x, y: x.__setitem__(x.detach() > 1.4, _number(y)),
    "masked_fill_": lambda x, y: x.masked_fill_(x.detach() > 1.4, _number(y)),
    "clamp_": lambda x, y: x.clamp_(-2.0, 1.6),
    "sin_": lambda x, y: x.clamp_(-3.0, 3.0).sin_(),  # of large numbers it is ill conditioned
    "pow_": lambda x, y: x.pow_(2.0),
}


def _long(x: Any) -> bool:
    """Tell whether a tensor has a first row."""
    return bool(x.ndim) and len(x) > 0


def _number(y: Any) -> Any:
    """Return one number of an operand."""
    return y.sum() if hasattr(y, "shape") else y


def changed(lib: Any, recorded: bool, steps: list[Any], apart: bool) -> Any:
    """Return a tensor and its views after changes of any of them, and the gradient behind them.

    Whether each has a history, its elements, and the gradient. With `apart` operands are copied
    before: what a change reads is then not what it writes.
    """
    w = lib.tt.tensor([0.7, 1.3], dtype=lib.tt.float64, requires_grad=True)
    ones = lib.tt.ones(3, 2, dtype=lib.tt.float64)
    base = ones * w if recorded else ones * 1.5
    seen, written = [base], [base]
    for kind, name, place, target in steps:
        given = seen[place % len(seen)]
        if kind == "view":
            fits = given.ndim and 0 not in given.shape and (name != "flat" or given.is_contiguous())
            seen.append(VIEWS[name](given) if fits else given)
            if name != "expand" and any(each is given for each in written):
                written.append(seen[-1])
            continue
        operand: Any = {"number": 1.25, "weights": w + 0.25, "itself": base}.get(kind, given)
        x = written[target % len(written)]
        _ = x.grad_fn  # PyTorch gives a view its history when that is asked for
        if hasattr(operand, "shape") and not _fits(operand.shape, x.shape):
            operand = operand.sum()
        CHANGES[name](x, operand.clone() if apart and hasattr(operand, "clone") else operand)
    total = w.sum()
    for number, each in enumerate(seen):
        total = total + (each * each).sum() * (number + 1)
    total.backward()
    values = [each.detach().numpy().copy() for each in seen]
    return [each.requires_grad for each in seen], values, w.grad.numpy()


def _fits(shape: Any, wider: Any) -> bool:
    """Tell whether a shape broadcasts to another."""
    ends = zip(reversed(shape), reversed(wider), strict=False)
    return len(shape) <= len(wider) and all(size in (1, wide) for size, wide in ends)


def shares(lib: Any, texts: list[str]) -> list[bool]:
    """Tell which results change with the tensor that they are made of."""
    found = []
    for text in texts:
        x = lib.tt.arange(6.0).reshape(2, 3).clone()
        y = eval(text, {"x": x, "tt": lib.tt})
        before = y.numpy().copy()
        x.add_(1)
        found.append(bool((y.numpy() != before).any()))
    return found


def same_tensor(lib: Any, texts: list[str]) -> list[bool]:
    """Tell which results are the tensor that they are made of, and no other."""
    found = []
    for text in texts:
        x = lib.tt.ones(3)
        one = x[0]
        y = eval(text, {"x": x, "one": one, "tt": lib.tt})
        found.append(y is x or y is one)
    return found


#: Functions of several operands, with the shapes of these.
FUNCTIONS: dict[str, Any] = {
    "matmul": (lambda lib, a, b: a @ b, (3, 4), (4, 2)),
    "matmul of a vector": (lambda lib, a, b: a @ b, (3, 4), (4,)),
    "matmul of stacks": (lambda lib, a, b: a @ b, (2, 3, 4), (4, 2)),
    "bmm": (lambda lib, a, b: lib.tt.bmm(a, b), (2, 3, 4), (2, 4, 2)),
    "einsum": (lambda lib, a, b: lib.tt.einsum("ij,kj->ik", a, b), (3, 4), (2, 4)),
    "linear": (lambda lib, x, w, b: lib.F.linear(x, w, b), (3, 4), (2, 4), (2,)),
    "conv2d": (lambda lib, x, w, b: lib.F.conv2d(x, w, b), (2, 3, 4, 4), (2, 3, 3, 3), (2,)),
    "layer_norm": (lambda lib, x, w, b: lib.F.layer_norm(x, (4,), w, b), (2, 3, 4), (4,), (4,)),
    "layer_norm of all": (lambda lib, x, w, b: lib.F.layer_norm(x, (4,), w, b), (4,), (4,), (4,)),
    "batch_norm": (
        lambda lib, x, w, b: lib.F.batch_norm(x, None, None, w, b, True),
        *((3, 2, 4), (2,), (2,)),
    ),
    "attention by values": (
        lambda lib, q, v: lib.F.scaled_dot_product_attention(q.detach(), q.detach(), v),
        *((1, 2, 3, 4), (1, 2, 3, 3)),
    ),
    "scatter_add": (
        lambda lib, x, y: x.scatter_add(0, lib.tt.tensor([[0, 2], [1, 1]]), y),
        *((3, 2), (2, 2)),
    ),
    "where": (lambda lib, a, b: lib.tt.where(lib.tt.ones(3, 2) > 0, a, b), (3, 2), (3, 2)),
    "mul": (lambda lib, a, b: a * b, (3, 2), (2,)),
    "div": (lambda lib, a, b: a / b, (3, 2), (2,)),
    "pow": (lambda lib, a, b: a**b, (3, 2), (2,)),
    "cat": (lambda lib, a, b: lib.tt.cat([a, b]), (3, 2), (1, 2)),
    "mse_loss": (lambda lib, a, b: lib.F.mse_loss(a, b), (3, 2), (3, 2)),
}


def changed_later(lib: Any, name: str, arrays: list[Any]) -> list[Any]:
    """Return gradients after one operand, or the result, was changed; None where refused.

    Of all sets of operands that require gradients, and of each operand that is changed.
    """
    function, found = FUNCTIONS[name][0], list[Any]()
    for wanted in range(1, 1 << len(arrays)):
        for place in range(-2, len(arrays)):
            leaves = [lib.tt.tensor(each) for each in arrays]
            for number, leaf in enumerate(leaves):
                leaf.requires_grad_(bool(wanted >> number & 1))
            operands = [leaf * 1 for leaf in leaves]
            y = function(lib, *operands)
            if place > -2:
                ([*operands, y][place]).add_(1)
            weights = lib.tt.arange(float(y.numel()), dtype=y.dtype).reshape(y.shape)
            if not y.requires_grad:
                continue
            try:
                (y * weights).sum().backward()
            except RuntimeError:
                found.append(None)
                continue
            found.append([None if x.grad is None else x.grad.numpy() for x in leaves])
    return found
