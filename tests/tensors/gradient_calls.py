"""Functions of one's own, checkpoints, hooks and `grad`, for any library of PyTorch's shape."""

from __future__ import annotations

from typing import Any


def _leaf(lib: Any, *values: float) -> Any:
    return lib.tt.tensor(list(values), dtype=lib.tt.float64, requires_grad=True)


def _function(lib: Any) -> Any:
    return lib.tt.Function if hasattr(lib.tt, "Function") else lib.tt.autograd.Function


def _listed(*tensors: Any) -> list[Any]:
    return [None if each is None else each.detach().numpy() for each in tensors]


def _outcome(call: Any) -> Any:
    """Return a call's result, or whether it is refused."""
    try:
        return call()
    except (RuntimeError, TypeError, ValueError):
        return "refused"


# ---- functions of one's own ---------------------------------------------------------------------


def unused_results(lib: Any) -> Any:
    """Return what backward gets for results that nobody used, and what comes of it."""
    seen: list[Any] = []
    x = _leaf(lib, 1.0, 2.0)

    class Two(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, fills: bool) -> Any:
            ctx.set_materialize_grads(fills)
            return a * 2, a.sum() * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.extend([g, h])
            return g * 2 if h is None else g * 2 + h * 3, None

    for fills in (True, False):
        Two.apply(x, fills)[0].sum().backward()
    return _listed(*seen, x.grad)


def results_that_are_arguments(lib: Any) -> Any:
    """Return how arguments and results of an identity stand in the record."""

    class Second(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5, g

    x, plain = _leaf(lib, 1.0, 2.0), lib.tt.ones(2, dtype=lib.tt.float64)
    found = []
    for a, b in ((x, plain), (plain, x), (x, x)):
        out = Second.apply(a, b)
        out.sum().backward()
        found += [out is b, b.is_leaf, b.requires_grad, out.is_leaf, out.requires_grad]
    return found, _listed(x.grad)


def shapes_of_gradients(lib: Any) -> Any:
    """Return what becomes of gradients of several shapes for an argument of two elements."""

    class Shaped(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, shape: Any) -> Any:
            ctx.shape = shape
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return lib.tt.ones(ctx.shape, dtype=lib.tt.float64), None

    found = []
    for shape in ((2,), (3, 2), (1, 2), (1,), (3,), (), (2, 1)):
        x = _leaf(lib, 1.0, 2.0)
        out = Shaped.apply(x, shape).sum()
        found.append(_outcome(lambda out=out, x=x: [out.backward(), *_listed(x.grad)]))
    return found


def marked_results(lib: Any) -> Any:
    """Return the results and gradients of a function with one result that has none."""

    class Marked(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            signs = a.sign()
            ctx.mark_non_differentiable(signs)
            return a * 2, signs

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2 + h

    x = _leaf(lib, 1.0, -2.0)
    double, signs = Marked.apply(x)
    (double * signs).sum().backward()
    return [double.requires_grad, signs.requires_grad], _listed(signs, x.grad)


def results_that_are_saved(lib: Any) -> Any:
    """Return derivatives of a function whose backward looks at its result, and what changes do."""

    class Tanh(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            y = a.tanh()
            ctx.save_for_backward(None, y, a)
            return 2 * a, y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            _, y, a = ctx.saved_tensors
            return 2 * g + h * (1 - y * y) + 0 * a

    x, grad = _leaf(lib, 0.5, -1.5), lib.tt.autograd.grad
    double, y = Tanh.apply(x)
    (slope,) = grad((y * y + double).sum(), x, create_graph=True)
    (second,) = grad(slope.sum(), x, create_graph=True)
    found = _listed(slope, second, *grad(second.sum(), x))
    outcomes = []
    for which in (0, 1):
        both = Tanh.apply(x)
        both[which].mul_(3.0)
        outcomes.append(_outcome(lambda both=both: _listed(*grad((both[0] + both[1]).sum(), x))))
    return found, outcomes


def contexts_set_up_apart(lib: Any) -> Any:
    """Return gradients of a function with setup_context, with defaults and arguments by name."""
    seen: list[Any] = []

    class Scaled(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(a: Any, b: Any, power: int = 2) -> Any:
            return a * b**power, power, None

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            a, b, ctx.power = inputs
            seen.append([len(inputs), type(output).__name__, list(ctx.needs_input_grad)])
            ctx.save_for_backward(a, b, output[0])

        @staticmethod
        def backward(ctx: Any, g: Any, *others: Any) -> Any:
            _, b, y = ctx.saved_tensors
            seen.append(list(others))
            return g * b**ctx.power, g * ctx.power * y / b, None, None, None

    a, b = _leaf(lib, 1.0, 2.0), _leaf(lib, 3.0, 4.0)
    found = []
    calls: list[tuple[list[Any], dict[str, Any]]] = [
        ([a, b], {}),
        ([a, b, 3], {}),
        ([a], {"b": b, "power": 3}),
        ([a.detach(), b], {}),
    ]
    for args, named in calls:
        y, power, nothing = Scaled.apply(*args, **named)
        a.grad = b.grad = None
        y.sum().backward()
        found += [power, nothing, *_listed(y, a.grad, b.grad)]
    refused = [_outcome(lambda: Scaled.apply(a)), _outcome(lambda: Scaled.apply(a, b, d=1))]
    return found, refused, seen


def arguments_by_name(lib: Any) -> Any:
    """Return gradients by arguments that have names, of a function with other results, too."""

    class Product(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any = 2.0, scale: float = 1.0) -> Any:
            ctx.save_for_backward(a, b if hasattr(b, "shape") else None)
            return "text", a * b * scale, 3

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append([each is None for each in gradients])
            return gradients[1] * b, gradients[1] * a

    seen: list[Any] = []
    a, b = _leaf(lib, 1.0, 2.0), _leaf(lib, 3.0, 4.0)
    text, y, number = Product.apply(a, b=b)
    y.sum().backward()
    return [text, number], seen, _listed(y, a.grad, b.grad)


def kinds_that_are_saved(lib: Any) -> Any:
    """Return which values save_for_backward takes."""

    class Saving(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, value: Any) -> Any:
            ctx.save_for_backward(value)
            return a * 1

    x = _leaf(lib, 1.0)
    return [_outcome(lambda v=v: Saving.apply(x, v) is None) for v in (x, None, 3, "a", [x])]


# ---- checkpoints --------------------------------------------------------------------------------


def _checkpoint(lib: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    call = lib.tt.checkpoint if hasattr(lib.tt, "Function") else lib.tt.utils.checkpoint.checkpoint
    return call(function, *args, use_reentrant=False, **kwargs)


def checkpoints(lib: Any) -> Any:
    """Return gradients through checkpoints by arguments and by what else is used."""
    a, b, w = _leaf(lib, 1.0, 2.0), _leaf(lib, 3.0, 4.0), _leaf(lib, 0.5, 0.7)
    grad, found = lib.tt.autograd.grad, []
    found += grad(_checkpoint(lib, lambda a, none, b: a * b, a, None, b).sum(), [a, b])
    found += grad(_checkpoint(lib, lambda a: a * w, a).sum(), [a, w])
    older = a * w  # used by the part and outside it, and itself made of what is used there
    part = _checkpoint(
        lib, lambda pair, *, scale: (pair[0] * older * scale, older), [a, 1], scale=b
    )
    found += grad((part[0].exp() + part[1] * older).sum(), [older, a, b, w], retain_graph=True)
    part = _checkpoint(lib, lambda a: (a * w).sin() * older, a)
    (slope,) = grad(part.sum(), [w], create_graph=True)
    found += grad(slope.sum(), [w, a])
    inner = _checkpoint(lib, lambda a: _checkpoint(lib, lambda c: c * c * w, a).exp(), a)
    found += grad(inner.sum(), [a, w])
    return _listed(*found)


def checkpoints_of_any_result(lib: Any) -> Any:
    """Return gradients through checkpoints of functions that return dicts and nested tuples."""
    a, w, calls, found = _leaf(lib, 1.0, 2.0), _leaf(lib, 0.5, 0.7), list[int](), []

    def part(x: Any) -> Any:
        calls.append(1)
        return {"first": x * w, "rest": [(x.exp() * w, 3), {"none": None, "last": (x * x).sin()}]}

    got = _checkpoint(lib, part, a)
    (value, number), inner = got["rest"]
    (got["first"] * value + inner["last"]).sum().backward()
    found += [list(got), number, inner["none"], len(calls)]
    return found, _listed(got["first"], value, inner["last"], a.grad, w.grad)


def hooks_and_checkpoints(lib: Any) -> Any:
    """Return what hooks of tensors used in a checkpoint see and leave."""
    a, w = _leaf(lib, 1.0, 2.0), _leaf(lib, 0.5, 0.7)
    older, seen = a * 2, {"w": [], "older": []}  # type: ignore[var-annotated]
    older.retain_grad()

    def ten_times(name: str) -> Any:
        def hook(gradient: Any) -> Any:
            seen[name].append(gradient)
            return gradient * 10

        return hook

    w.register_hook(ten_times("w"))
    older.register_hook(ten_times("older"))
    _checkpoint(lib, lambda x: x * w * older, a).sum().backward()
    return _listed(*seen["w"], *seen["older"], a.grad, w.grad, older.grad)


# ---- gradients that are set ---------------------------------------------------------------------


def gradients_set(lib: Any) -> Any:
    """Return which values `grad` of two numbers takes."""
    x = _leaf(lib, 1.0, 2.0)
    fits = lib.tt.ones(2, dtype=lib.tt.float64)
    values = [lib.tt.ones(3, dtype=lib.tt.float64), lib.tt.ones(2, dtype=lib.tt.float32), fits, x]
    found = []
    for value in [*values, "x", 1.0, [1.0, 2.0], None]:
        found.append(_outcome(lambda value=value: setattr(x, "grad", value)))
    return found


def hooks(lib: Any) -> Any:
    """Return what hooks of leaves and results may give back."""
    answers = [
        lambda g: g * 2,
        lambda g: None,
        lambda g: lib.tt.ones(3, dtype=lib.tt.float64),
        lambda g: lib.tt.ones((1, 2), dtype=lib.tt.float64),
        lambda g: g.float(),
        lambda g: 1.0,
    ]
    found = []
    for answer in answers:
        x = _leaf(lib, 1.0, 2.0)
        middle = x * 3
        total = middle.sum()
        for each in (x, middle):
            handle = each.register_hook(answer)
            refused = _outcome(lambda total=total: total.backward(retain_graph=True))
            found.append([refused, *_listed(x.grad)])
            handle.remove()
    return found


def retained(lib: Any) -> Any:
    """Return the gradients that results keep, with hooks before and behind."""
    x = _leaf(lib, 1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    first = _listed(y.grad, x.grad)
    y.sum().backward()
    refused = _outcome(lambda: lib.tt.ones(2).retain_grad())
    return first, _listed(y.grad, x.grad), refused


def backward_to_inputs(lib: Any) -> Any:
    """Return the gradients that backward leaves where it is told to."""
    found: list[Any] = []
    for wanted in ("x", "z", "zx", "u", "w", "", "p"):
        x, w, plain = _leaf(lib, 1.0, 2.0), _leaf(lib, 3.0, 4.0), lib.tt.ones(2)
        z = x * w
        u = z * z + x
        named = {"x": x, "z": z, "w": w, "u": u, "p": plain}
        inputs = [named[each] for each in wanted]
        refused = _outcome(lambda u=u, inputs=inputs: u.sum().backward(inputs=inputs))
        found.append(
            [refused, *_listed(*(each.grad for each in (x, w, z) if each.is_leaf or wanted))]
        )
    return found


def grad_by_results_lets_go_of_nothing_behind(lib: Any) -> Any:
    """Return gradients by a result, and then through what made it."""
    x = _leaf(lib, 1.0, 2.0)
    y = x.exp()
    by_y = lib.tt.autograd.grad((y * y).sum(), y)
    (y * 3).sum().backward()
    return _listed(*by_y, x.grad)


def walked_twice(lib: Any) -> Any:
    """Return gradients after two walks over what saved nothing, and what walks are refused."""
    found = []
    for expression in ("x + x", "-x", "x + 1", "x - x", "lib.tt.cat([x, x])", "x[1:]", "x * x"):
        x = _leaf(lib, 1.0, 2.0)
        y = eval(expression, {"x": x, "lib": lib}).sum()
        y.backward()
        found.append([_outcome(y.backward), *_listed(x.grad)])
    return found


def what_recorded_gradients_depend_on(lib: Any) -> Any:
    """Return whether gradients require gradients where they are the same everywhere, or not."""
    x = _leaf(lib, 1.0, 3.0, 2.0)
    outs = (x.max(0).values, x.sort().values[0], x.topk(1).values, (x * x).max(0).values)
    gradients = [lib.tt.autograd.grad(out.sum(), x, create_graph=True)[0] for out in outs]
    return [each.requires_grad for each in gradients], _listed(*gradients)


def gradients_that_somebody_holds(lib: Any) -> Any:
    """Return what hooks and functions saw, or gave, after gradients were added to later."""
    seen: list[Any] = []
    given = lib.tt.full((2,), 3.0, dtype=lib.tt.float64)

    class Given(_function(lib)):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(g)
            return ctx.saved_tensors[0], None

    leaves = [_leaf(lib, 1.0, 2.0) for _ in range(5)]
    told, replaced, custom, inner, first = leaves
    told.register_hook(seen.append)
    replaced.register_hook(lambda g: given)
    weight = _leaf(lib, 5.0, 6.0).detach()
    for _ in range(3):
        inside = inner.clone()
        inside.register_hook(seen.append)
        parts = (told, replaced, Given.apply(custom, given), inside, first + first.clone())
        for part in parts:
            part.backward(weight, retain_graph=True)
    return _listed(*seen, given, weight, *(each.grad for each in leaves))


CALLS = [
    gradients_that_somebody_holds,
    unused_results,
    results_that_are_arguments,
    shapes_of_gradients,
    marked_results,
    results_that_are_saved,
    contexts_set_up_apart,
    arguments_by_name,
    kinds_that_are_saved,
    checkpoints,
    checkpoints_of_any_result,
    hooks_and_checkpoints,
    gradients_set,
    hooks,
    retained,
    backward_to_inputs,
    grad_by_results_lets_go_of_nothing_behind,
    walked_twice,
    what_recorded_gradients_depend_on,
]
