"""Values at the edges: NaN, infinities, zeros with signs, nothing, one element; and long sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad.tensors as tt
from tests.oracles.torch import Torch, tapegrad
from tests.tensors.cases import DEVICES, DTYPES
from tests.tensors.torch_calls import evaluate, gradients_of, orders, slopes

NAN, INF = float("nan"), float("inf")
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e-30, -1e30, 0.5, 2.0])
GRID = np.array(
    [[1.0, NAN, 3.0], [INF, 2.0, -INF], [-INF, -INF, -INF], [0.0, -0.0, 1.0], [INF, INF, 0.0]]
)
UNARY = (
    *("neg", "sqrt", "square", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "sigmoid", "relu", "erf", "erfc"),
    *("abs", "floor", "ceil", "isnan", "isinf", "isfinite", "reciprocal", "rsqrt"),
    *("trunc", "round"),
)
BINARY = (
    "a + b",
    "a * b",
    "a / b",
    "a < b",
    "a == b",
    "tt.maximum(a, b)",
    "tt.minimum(a, b)",
    "a // b",
)
ROWS = (
    *("x.sum(1)", "x.mean(0)", "x.amax(1)", "x.amin(0)", "x.max(1)", "x.min(0)", "x.argmax(1)"),
    *("x.argmin(0)", "x.prod(1)", "x.cumsum(1)", "x.any(1)", "x.all(0)", "x.sum()", "x.max()"),
    *("tt.softmax(x, 1)", "tt.log_softmax(x, 1)", "tt.logsumexp(x, 1)", "tt.logsumexp(x, 0)"),
    *("x.sort(1).values", "x.topk(1, 1).values", "x.norm(dim=1)", "x.norm(1, 0)", "x.nonzero()"),
    *("tt.clamp(x, -1, 1)", "tt.where(x > 0, x, 0)", "x.var(1)", "x.std(0)"),
    *("x.clamp(min=float('nan'))", "x.clamp(max=x.flip(0))", "x.var(1, correction=3)"),
    *("x.std(0, correction=9)", "x.any(dim=())", "x.all(dim=())", "tt.where(x)", "x.flip(())"),
    *("F.max_pool2d(x[None, None], 2, 1)", "F.softplus(x)"),
)
EMPTY = (
    *("x.sum()", "x.sum(0)", "x.sum(1)", "x.mean()", "x.prod(1)", "x.cumsum(0)", "x.any(1)"),
    *("x.all(1)", "x.exp()", "x + 1", "x * x", "x.reshape(4, 0)", "x.T", "tt.cat([x, x])"),
    *("tt.softmax(x, 0)", "tt.softmax(x, 1)", "tt.logsumexp(x, 1)", "x @ x.T", "x.T @ x"),
    *("x.amax(0)", "x.max(0)", "x.argmax(0)"),
    *("x.flatten()", "x[:0]", "x.flip(0)", "tt.stack([x, x])", "x.var()", "tt.where(x > 0, x, x)"),
    *(
        "x.sort(0)",
        "x.sort(1)",
        "x.norm()",
        "x.nonzero()",
        "x.repeat(2, 2)",
        "x % 2",
        "x.roll(1, 0)",
    ),
    *("F.linear(x, x)", "F.linear(x.T, x.T)", "F.pad(x, (1, 1))", "x.expand(2, 3, 0)"),
    *(f"tt.einsum('ij,ij->{result}', x, x.sum(1, True))" for result in ("ij", "i", "j", "")),
    "tt.einsum('ij,ij->ij', x.sum(1, True), x)",
)


def same(ours: Any, theirs: Any, rtol: float, what: str) -> None:
    """Compare results; NaN is NaN, infinities have their sign."""
    listed = isinstance(theirs, list)
    for our, their in zip(ours if listed else [ours], theirs if listed else [theirs], strict=True):
        assert our.dtype == their.dtype and our.shape == their.shape, what
        np.testing.assert_allclose(our, their, rtol, 1e-30, equal_nan=True, err_msg=what)


def compare(torch: Torch, expressions: Any, arrays: dict[str, Any], rtol: float) -> None:
    for expression in expressions:
        theirs = torch(evaluate, expression, arrays)
        for device in DEVICES:
            same(evaluate(tapegrad(), expression, arrays, device), theirs, rtol, expression)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_special_values(torch: Torch, dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    compare(torch, [f"tt.{name}(x)" for name in UNARY], {"x": x}, rtol)


def test_limits_are_kept_where_they_exist() -> None:
    """PyTorch's sign hides NaN, and its gelu and silu have NaN at infinity."""
    x = np.array([NAN, INF, -INF, -0.0])
    for device in DEVICES:
        tensor = tt.tensor(x, device=device)
        np.testing.assert_array_equal(tensor.sign().numpy(), [NAN, 1, -1, 0])
        np.testing.assert_array_equal(tt.gelu(tensor).numpy(), [NAN, INF, 0, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_special_values(torch: Torch, dtype: str) -> None:
    a, b = np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype))
    compare(torch, BINARY, {"a": a, "b": b}, 1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_special_values(torch: Torch, dtype: str) -> None:
    rtol = 1e-5 if dtype == "float32" else 1e-12
    with np.errstate(all="ignore"):
        compare(torch, ROWS, {"x": GRID.astype(dtype)}, rtol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_elements(torch: Torch, dtype: str) -> None:
    compare(torch, EMPTY, {"x": np.zeros((3, 0), dtype)}, 1e-6)


#: Batches of no images; `l` is a matrix, `i` no indices.
NO_BATCH = (
    *("F.conv2d(x, w)", "F.conv2d(x, w, stride=2, padding=1)", "F.max_pool2d(x, 2)"),
    *("F.avg_pool2d(x, 2)", "F.adaptive_avg_pool2d(x, 2)", "F.layer_norm(x, (5,))", "x.max(1)"),
    *("F.linear(x, l)", "tt.matmul(x, l.T)", "F.scaled_dot_product_attention(x, x, x)"),
    *("F.cross_entropy(x[:, :, 0, 0], i)", "F.mse_loss(x, x)", "F.embedding(i, l)", "l[i]"),
    *("x.gather(1, i.reshape(0, 1, 1, 1))", "l.index_select(0, i)", "x.cumsum(0)", "x.chunk(3)"),
    *("x.flatten(1)", "tt.bmm(x[:, 0], x[:, 0])", "F.one_hot(i, 4)", "x.tril()", "x.prod(0)"),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_images(torch: Torch, dtype: str) -> None:
    arrays: dict[str, Any] = {"x": np.zeros((0, 3, 5, 5), dtype), "w": np.ones((4, 3, 3, 3), dtype)}
    arrays |= {"l": np.ones((7, 5), dtype), "i": np.zeros(0, "int64")}
    compare(torch, NO_BATCH, arrays, 1e-6)


def compare_orders(torch: Torch, expressions: Any, arrays: dict[str, Any]) -> None:
    """Compare gradients, too, recorded and not, and those of recorded ones."""
    for expression in expressions:
        used = {name: array for name, array in arrays.items() if name in expression}
        theirs = torch(orders, expression, used)
        for device in DEVICES:
            ours = orders(tapegrad(), expression, used, device)
            same(ours, theirs, 1e-10, f"{expression} on {device}")


#: Their means over nothing are nan; gradients are empty, or zeros of what has no part in it.
OF_NOTHING = (
    *("F.max_pool2d(x, 2)", "F.max_pool2d(x, 3, 2, 1)", "F.avg_pool2d(x, 2)"),
    *("F.adaptive_avg_pool2d(x, 2)", "F.conv2d(x, w)", "F.layer_norm(x, (5,))", "x.mean()"),
    *("F.batch_norm(x, None, None, training=True)", "x.mean(0)", "x.mean((1, 2))", "x.var(1)"),
    *("x.var()", "x.var(0)", "x.std()", "x.std(0)", "x.norm(dim=0)", "x.norm(p=3)", "x.prod(0)"),
    *("x.logsumexp(0)", "x.softmax(0)", "x.max(1)[0]", "F.pad(x, (1, 1, 1, 1), mode='reflect')"),
    *(
        "F.mse_loss(x, x.detach())",
        "F.mse_loss(x, x.detach(), reduction='sum')",
        "w[:, :0].mean(1)",
    ),
    *(
        "F.binary_cross_entropy_with_logits(x, x.detach())",
        "w[:, :0].std(1)",
        "w[:, :0].softmax(1)",
    ),
    *("F.cross_entropy(x[:, :, 0, 0], i)", "F.cross_entropy(x[:, :, 0, 0], i, reduction='sum')"),
    *("F.cross_entropy(x[:, :, 0, 0], x.detach()[:, :, 0, 0])", "F.nll_loss(x[:, :, 0, 0], i)"),
    *("F.layer_norm(w[:, :0, 0, 0], (0,))", "tt.cat([x.flatten(), w.flatten()])"),
)


@pytest.mark.filterwarnings("error")
def test_gradients_of_nothing(torch: Torch) -> None:
    arrays: dict[str, Any] = {"x": np.zeros((0, 3, 5, 5)), "w": np.ones((4, 3, 3, 3))}
    compare_orders(torch, OF_NOTHING, arrays | {"i": np.zeros(0, "int64")})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_that_are_all_ignored(torch: Torch, reduction: str) -> None:
    random = np.random.default_rng(3)
    arrays: dict[str, Any] = {"x": random.standard_normal((2, 3))}
    options = f"reduction={reduction!r}"
    for classes in ("[-100, -100]", "[1, -100]"):
        target = f"tt.tensor({classes}).to(x.device)"
        calls = [f"F.nll_loss(x, {target}, {options})", f"F.cross_entropy(x, {target}, {options})"]
        calls.append(f"F.cross_entropy(x, {target}, x.detach()[0].exp(), {options})")
        calls.append(f"F.cross_entropy(x, {target}, {options}, label_smoothing=0.1)")
        compare_orders(torch, calls, arrays)


def test_the_largest_of_pixels_that_are_minus_infinity_is_the_first(torch: Torch) -> None:
    calls = ["F.max_pool2d(x, 2, 2, 1)", "F.max_pool2d(x, (2, 3), (1, 2), 1, (2, 1))"]
    x = np.full((1, 2, 4, 5), -INF)
    compare(torch, [f"{call[:-1]}, return_indices=True)" for call in calls], {"x": x}, 0)
    compare_orders(torch, calls, {"x": x})


def test_of_pixels_that_are_nan_the_last_is_the_largest(torch: Torch) -> None:
    x = np.array([[[[NAN, 1, NAN, 2], [0, 3, 2, 1]]]])
    calls = ["F.max_pool2d(x, (1, 4))", "F.max_pool2d(x, 2)", "F.max_pool2d(x, 2, 1)"]
    compare(torch, [f"{call[:-1]}, return_indices=True)" for call in calls], {"x": x}, 0)
    compare_orders(torch, calls, {"x": x})


def test_rows_that_are_named_often(torch: Torch) -> None:
    places = "tt.tensor([[0, 0, 1], [0, 3, 1]]).to(w.device)"
    options = ("scale_grad_by_freq=True", "padding_idx=1, scale_grad_by_freq=True", "max_norm=0.5")
    calls = [f"F.embedding({places}, w * 1, {each})" for each in (*options, "padding_idx=-1")]
    compare_orders(torch, calls, {"w": np.random.default_rng(4).standard_normal((4, 2))})


def test_nothing_joins_anything_and_has_zeros_as_gradient(torch: Torch) -> None:
    calls = ["tt.cat([e, x], 1)", "tt.cat([x, e, x], -1)", "tt.cat([e, x, e.float()])"]
    compare_orders(torch, calls, {"x": np.ones((2, 3)), "e": np.ones(0)})
    for device in DEVICES:
        nothing = tt.zeros(0, device=device, requires_grad=True)
        tt.cat([nothing, tt.ones(2, 3, device=device)], 1).sum().backward()
        assert nothing.grad is not None and nothing.grad.shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_element(torch: Torch, dtype: str) -> None:
    one = [each for each in (*ROWS, *EMPTY) if "4, 0" not in each and "3, 0" not in each]
    single = [each for each in one if "max_pool2d" not in each]
    compare(torch, single, {"x": np.full((1, 1), 0.7, dtype)}, 1e-5)
    scalars = ("x.sum()", "x.exp()", "x.max()", "tt.softmax(x, 0)", "x.cumsum(0)", "x.reshape(1)")
    compare(torch, scalars, {"x": np.array(0.7, dtype)}, 1e-5)


def test_gradients_at_edges_are_those_of_pytorch(torch: Torch) -> None:
    for name in ("relu", "abs", "sqrt", "sigmoid", "tanh", "log", "amax", "maximum", "prod"):
        theirs = torch(slopes, name)
        for device in DEVICES:
            ours = slopes(tapegrad(), name, device)
            np.testing.assert_allclose(ours, theirs, 1e-6, 1e-6, equal_nan=True, err_msg=name)


#: Where NaN has the gradient that PyTorch gives it.
AT_NAN = (
    *("x.relu()", "x.max()", "x.min()", "x.max(0).values", "x.sort().values[0]", "x.std()"),
    *("x.norm()", "x.norm('fro')", "x.norm(2, 0)", "x.norm(3)", "x.norm(1.5)", "x.norm(0.5)"),
    *("F.leaky_relu(x)", "F.mse_loss(x, 0 * x.detach())", "x.softmax(0)[0]", "x.logsumexp(0)"),
)


@pytest.mark.parametrize("expression", AT_NAN)
def test_gradients_at_nan_are_those_of_pytorch(torch: Torch, expression: str) -> None:
    for given in ([1.0, NAN, 3.0], [NAN, NAN, -3.0], [0.0, 0.0, 0.0]):
        theirs = torch(gradients_of, expression, [given])
        for device in DEVICES:
            ours = gradients_of(tapegrad(), expression, [given], device)
            same(ours, theirs, 1e-12, f"{expression} {given}")


@pytest.mark.parametrize("p", [-2.0, -1, -0.5, 0.5, 0.75, 1, 1.5, 3])
def test_norms_of_zeros_have_the_gradients_of_pytorch(torch: Torch, p: float) -> None:
    for given in ([0.0, 2.0, -3.0], [-0.0, 0.0, 0.0]):
        theirs = torch(gradients_of, f"x.norm({p})", [given])
        for device in DEVICES:
            ours = gradients_of(tapegrad(), f"x.norm({p})", [given], device)
            same(ours, theirs, 1e-12, f"norm({p}) of {given}")


# ---- long sums ----------------------------------------------------------------------------------

LONG = {
    "x.sum()": 200_000,
    "x.sum(0)": 2000,
    "x.mean(1)": 100,
    "x.var()": 200_000,
    "x.T @ x": 2000,
    "x @ x[:50].T": 100,
    "tt.softmax(x, 0)": 2000,
    "tt.logsumexp(x, 0)": 2000,
    "x.cumsum(0)": 2000,
    "F.layer_norm(x, (100,))": 100,
    "F.conv2d(x.reshape(2, 100, 20, 50), x[:36].reshape(4, 100, 3, 3), padding=1)": 900,
    "F.linear(x, x[:70])": 100,
    "tt.einsum('ij,ik->jk', x, x)": 2000,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_grow_no_faster_than_sums_do(torch: Torch, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((2000, 100)).astype(dtype)
    for expression, terms in LONG.items():
        exact = torch(evaluate, expression, {"x": x.astype("float64")})
        for device in DEVICES:
            ours = evaluate(tapegrad(), expression, {"x": x}, device)
            assert ours.dtype == dtype
            rtol = (1e-5 if dtype == "float32" else 1e-10) * np.sqrt(terms) / 10
            scale = np.abs(exact).max()
            np.testing.assert_allclose(ours, exact, rtol, rtol * scale, err_msg=expression)


def test_attention_to_nothing_is_what_pytorch_says(torch: Torch) -> None:
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((1, 2, 3, 4)) for _ in range(3))
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    call = "F.scaled_dot_product_attention(q, k, v, attn_mask=m)"
    compare(torch, [call], {"q": q, "k": k, "v": v, "m": mask}, 1e-10)


def test_whole_numbers_wrap_and_compare_exactly() -> None:
    for device in DEVICES:
        big = tt.tensor([2**53, 2**53 + 1, -(2**62)], device=device)
        assert (big + 1).tolist() == [2**53 + 1, 2**53 + 2, -(2**62) + 1]
        assert (big[:1] == big[1:2]).item() is False
        assert big.sum().item() == 2**54 + 1 - 2**62
        assert big.max().item() == 2**53 + 1 and big.argmin().item() == 2
        assert tt.tensor([2**31 - 1], dtype="int32", device=device).add(1).item() == -(2**31)
        assert (tt.tensor([7, -7], device=device) / 2).tolist() == [3.5, -3.5]


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "float64"])
def test_sums_and_products_have_the_type_that_is_named(torch: Torch, dtype: str) -> None:
    calls = [f"x.sum(dtype=tt.{dtype})", f"x.prod(1, dtype=tt.{dtype})"]
    calls += [f"x.cumsum(0, dtype=tt.{dtype})"] * (dtype != "bool")  # not there in PyTorch
    for given in ("int32", "int64", "bool", "float32"):
        x = np.array([[2**31 - 1, 5, 2], [7, 2**31 - 1, 2**30]]).astype(given)
        x = np.minimum(x, 3) if given == "float32" else x
        compare(torch, calls, {"x": x}, 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_remainders_of_special_values_are_numpys(device: str, dtype: str) -> None:
    """PyTorch loses those of float32 whose quotient overflows, as -1e30 % 1e-30."""
    a, b = (np.ascontiguousarray(each) for each in np.broadcast_arrays(SPECIAL[:, None], SPECIAL))
    a, b = a.astype(dtype), b.astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.remainder(a, b)
    found = tt.tensor(a, device=device) % tt.tensor(b, device=device)
    same(found.numpy(), expected, 1e-6 if dtype == "float32" else 1e-12, "a % b")


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((0, 3, 2), (2, 3)), ((2, 0, 2), (2, 3)), ((2, 3, 2), (2, 0)), ((2, 3, 0), (0, 3)),
        ((0, 3, 2), (0, 2, 3)), ((1, 0, 3, 2), (5, 1, 2, 3)), ((0, 2), (2, 3)),
    ],
)  # fmt: skip
def test_products_of_empty_matrices_are_empty_or_zero(
    left: tuple[int, ...], right: tuple[int, ...], device: str, dtype: str
) -> None:
    arrays = np.ones(left, dtype), np.ones(right, dtype)
    a, b = (tt.tensor(each, device=device) for each in arrays)
    np.testing.assert_array_equal((a @ b).numpy(), arrays[0] @ arrays[1])
