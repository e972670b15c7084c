"""Convolution and matrix products by oneDNN against sums written out in float64."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapegrad.errors import DTypeError, OptionError, ShapeError

onednn = pytest.importorskip("tapegrad._onednn")

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> Floats:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def check(got: Floats, wanted: Doubles, terms: int) -> None:
    """The same up to the rounding of a sum of that many terms."""
    assert got.dtype == np.float32 and got.flags.c_contiguous
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=3e-7 * terms + 2e-6)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    onednn.set_num_threads(request.param)
    yield request.param
    onednn.set_num_threads(0)


# ---- matrix products --------------------------------------------------------------------------

SHAPES = [
    ((5, 7), (7, 4)),
    ((1, 1), (1, 1)),
    ((1, 300), (300, 1)),
    ((130, 65), (65, 257)),
    ((3, 200), (200, 100)),
    ((200, 300), (300, 1)),
    ((3, 5, 7), (3, 7, 4)),
    ((3, 5, 7), (1, 7, 4)),
    ((1, 5, 7), (3, 7, 4)),
    ((3, 5, 7), (7, 4)),
    ((5, 7), (3, 7, 4)),
    ((2, 3, 5, 7), (3, 7, 4)),
    ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((2, 2, 2, 5, 7), (2, 1, 2, 7, 4)),
    ((0, 7), (7, 4)),
    ((5, 7), (7, 0)),
    ((5, 0), (0, 4)),
    ((0, 5, 7), (0, 7, 4)),
    ((0, 5, 7), (1, 7, 4)),
]


def stored(shape: tuple[int, ...], order: str) -> Floats:
    """Random numbers that lie in memory as `order` says."""
    if order == "plain":
        return floats(*shape)
    if order == "swapped":
        return floats(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)
    if order == "reversed":
        return floats(*shape)[..., ::-1]
    return floats(*shape[:-1], 2 * shape[-1])[..., ::2]


ORDERS = ("plain", "swapped", "reversed", "spread")


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
def test_matmul_equals_the_sum_of_products(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], threads: int
) -> None:
    for a_order, b_order in itertools.product(ORDERS, ORDERS):
        a, b = stored(a_shape, a_order), stored(b_shape, b_order)
        wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
        check(onednn.matmul(a, b), wanted, a_shape[-1])
        bias = floats(b_shape[-1])
        check(onednn.matmul(a, b, bias), wanted + bias, a_shape[-1])


@pytest.mark.parametrize("x_shape", [(7,), (1, 7), (5, 7), (2, 3, 7), (2, 0, 7), (0, 7)])
def test_linear_multiplies_rows_by_the_transposed_weight(
    x_shape: tuple[int, ...], threads: int
) -> None:
    for order in ORDERS:
        x, w, bias = floats(*x_shape), stored((4, 7), order), floats(4)
        wanted = x.astype(np.float64) @ w.astype(np.float64).T
        check(onednn.linear(x, w), wanted, 7)
        check(onednn.linear(x, w, bias), wanted + bias, 7)
        check(onednn.linear(x[..., ::-1], w), x[..., ::-1].astype(np.float64) @ w.T, 7)


def test_large_arrays_of_any_strides() -> None:
    a, b = floats(300, 500)[:, ::-1], floats(700, 500)[::2]
    check(onednn.matmul(a, b.T), a.astype(np.float64) @ b.T.astype(np.float64), 500)
    ones = np.broadcast_to(np.float32(1), (300, 400))
    check(onednn.matmul(ones.T, a), ones.T.astype(np.float64) @ a, 300)


def test_linear_takes_a_transposed_x_and_no_features() -> None:
    x, w = floats(7, 5), floats(4, 7)
    check(onednn.linear(x.T, w), x.T.astype(np.float64) @ w.T, 7)
    bias = floats(4)
    assert np.array_equal(onednn.linear(floats(3, 0), floats(4, 0), bias), np.tile(bias, (3, 1)))
    assert np.array_equal(onednn.linear(floats(3, 0), floats(4, 0)), np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("a", "b"),
    [((5, 7), (6, 4)), ((2, 5, 7), (3, 7, 4)), ((7,), (7, 4)), ((5, 7), (7,)), ((), (7, 4))],
)
def test_matmul_of_shapes_that_do_not_fit_raises(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="matmul"):
        onednn.matmul(floats(*a), floats(*b))


def test_matmul_of_too_many_dimensions_raises() -> None:
    a, b = floats(*12 * (1,), 2, 2), floats(*12 * (1,), 2, 2)
    with pytest.raises(ShapeError, match="at most 10 batch dimensions"):
        onednn.matmul(a, b)


# ---- convolution ------------------------------------------------------------------------------


def windows(x: Doubles, o: dict[str, Any], kernel: tuple[int, int]) -> Doubles:
    """The windows of x (n, c, h, w) as (n, c, out_h, out_w, kernel_h, kernel_w)."""
    (sh, sw), (ph, pw), (dh, dw) = o["stride"], o["padding"], o["dilation"]
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    reach = (dh * (kernel[0] - 1) + 1, dw * (kernel[1] - 1) + 1)
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def conv(x: Floats, w: Floats, **o: Any) -> Doubles:
    groups, seen = o["groups"], windows(x.astype(np.float64), o, w.shape[2:])
    parts = zip(np.split(seen, groups, 1), np.split(w.astype(np.float64), groups), strict=True)
    return np.concatenate([np.einsum("nchwij,kcij->nkhw", a, b) for a, b in parts], 1)


def conv_weight_grad(g: Floats, x: Floats, w: Floats, **o: Any) -> Doubles:
    groups, seen = o["groups"], windows(x.astype(np.float64), o, w.shape[2:])
    parts = zip(np.split(seen, groups, 1), np.split(g.astype(np.float64), groups, 1), strict=True)
    return np.concatenate([np.einsum("nchwij,nkhw->kcij", a, b) for a, b in parts])


def conv_input_grad(g: Floats, x: Floats, w: Floats, **o: Any) -> Doubles:
    """By adding each output's share to the inputs it was made from, one by one."""
    (sh, sw), (ph, pw), (dh, dw) = o["stride"], o["padding"], o["dilation"]
    n, c, h, width = x.shape
    k, per_group, kh, kw = w.shape
    out = np.zeros((n, c, h + 2 * ph, width + 2 * pw))
    for m, i, j in itertools.product(range(k), range(kh), range(kw)):
        low = m // (k // o["groups"]) * per_group
        rows = slice(i * dh, i * dh + sh * g.shape[2], sh)
        columns = slice(j * dw, j * dw + sw * g.shape[3], sw)
        share = g[:, m, None].astype(np.float64) * w[m, None, :, i, j, None, None]
        out[:, low : low + per_group, rows, columns] += share
    return out[:, :, ph : ph + h, pw : pw + width]


def options(
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> dict[str, Any]:
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


CONVOLUTIONS = {
    "seed": ((4, 3, 32, 32), (16, 3, 3, 3), options()),
    "one": ((1, 1, 1, 1), (1, 1, 1, 1), options()),
    "pointwise": ((2, 16, 9, 7), (33, 16, 1, 1), options()),
    "pointwise on many pixels": ((2, 16, 12, 13), (24, 16, 1, 1), options()),
    "pointwise stride": ((2, 16, 9, 7), (8, 16, 1, 1), options((2, 3))),
    "padded": ((2, 5, 8, 9), (6, 5, 3, 3), options(padding=(1, 2))),
    "more padding than kernel": ((1, 2, 4, 4), (3, 2, 2, 2), options(padding=(3, 4))),
    "stride leaves a rest": ((2, 4, 8, 10), (8, 4, 3, 3), options((2, 3))),
    "first layer": ((2, 3, 33, 35), (16, 3, 7, 7), options((2, 2), (3, 3))),
    "dilated": ((2, 16, 13, 12), (16, 16, 3, 2), options((1, 2), (2, 1), (2, 3))),
    "groups": ((2, 8, 7, 6), (12, 2, 3, 3), options((1, 2), (1, 1), groups=4)),
    "wide groups": ((2, 32, 7, 6), (64, 16, 3, 3), options(padding=(1, 1), groups=2)),
    "depthwise": ((2, 32, 9, 8), (32, 1, 3, 3), options(padding=(1, 1), groups=32)),
    "depthwise, two each": ((2, 6, 9, 8), (12, 1, 3, 3), options((2, 2), (1, 1), groups=6)),
    "whole input": ((3, 16, 5, 5), (10, 16, 5, 5), options()),
    "long kernel": ((1, 4, 3, 40), (5, 4, 1, 17), options(padding=(0, 8))),
    "many channels": ((2, 64, 6, 6), (64, 64, 3, 3), options(padding=(1, 1))),
    "empty batch": ((0, 3, 8, 8), (4, 3, 3, 3), options()),
}
LAYOUTS = (None, "plain", "channels_last", "blocked")


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_convolution_and_its_gradients(name: str, layout: str | None, threads: int) -> None:
    x_shape, w_shape, o = CONVOLUTIONS[name]
    x, w, bias = floats(*x_shape), floats(*w_shape), floats(w_shape[0])
    y, terms = conv(x, w, **o), int(np.prod(w_shape[1:]))
    check(onednn.conv2d(x, w, None, **o, layout=layout), y, terms)
    check(onednn.conv2d(x, w, bias, **o, layout=layout), y + bias[:, None, None], terms)
    g = floats(*y.shape)
    got = onednn.conv2d_input_grad(g, w, x_shape, **o, layout=layout)
    check(got, conv_input_grad(g, x, w, **o), terms * w_shape[0] // w_shape[1])
    w_grad, b_grad = onednn.conv2d_weight_grad(g, x, w_shape, **o, with_bias=True, layout=layout)
    terms = g.size // w_shape[0]
    check(w_grad, conv_weight_grad(g, x, w, **o), terms)
    check(b_grad, g.sum((0, 2, 3), dtype=np.float64), terms)
    alone, nothing = onednn.conv2d_weight_grad(g, x, w_shape, **o, with_bias=False, layout=layout)
    assert nothing is None
    check(alone, conv_weight_grad(g, x, w, **o), terms)


def test_convolution_takes_arrays_of_any_strides() -> None:
    x, w, o = floats(2, 9, 8, 3), floats(3, 3, 3, 8), options(padding=(1, 1))
    first, weight = x.transpose(0, 3, 1, 2), w.transpose(3, 0, 1, 2)[::-1]
    wanted = conv(first, weight, **o)
    check(onednn.conv2d(first, weight, None, **o), wanted, 27)
    g = floats(*wanted.shape[::-1]).T
    check(
        onednn.conv2d_input_grad(g, weight, first.shape, **o),
        conv_input_grad(g, first, weight, **o),
        100,
    )


@pytest.mark.parametrize(
    ("x", "w", "changed"),
    [
        ((1, 3, 8, 8), (4, 2, 3, 3), {}),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"groups": 2}),
        ((1, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}),
        ((1, 3, 2, 8), (4, 3, 3, 3), {}),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"dilation": (4, 1)}),
        ((3, 8, 8), (4, 3, 3, 3), {}),
        ((1, 3, 8, 8), (4, 3, 3), {}),
        ((1, 0, 8, 8), (4, 0, 3, 3), {}),
        ((1, 3, 0, 8), (4, 3, 1, 1), {"padding": (2, 2)}),
        ((1, 3, 8, 8), (0, 3, 3, 3), {}),
    ],
)
def test_convolution_of_shapes_that_do_not_fit_raises(
    x: tuple[int, ...], w: tuple[int, ...], changed: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match="conv2d"):
        onednn.conv2d(floats(*x), floats(*w), None, **options() | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"stride": (0, 1)},
        {"padding": (-1, 0)},
        {"dilation": (1, 0)},
        {"groups": 0},
        {"stride": (2**40, 1)},
        {"layout": "nchw"},
    ],
)
def test_options_that_make_no_sense_raise(changed: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        onednn.conv2d(floats(1, 2, 8, 8), floats(2, 2, 3, 3), None, **options() | changed)


def test_gradients_of_the_wrong_shape_raise() -> None:
    x, w, o = floats(2, 3, 8, 8), floats(4, 3, 3, 3), options()
    for shape in ((2, 4, 6, 5), (1, 4, 6, 6), (2, 3, 6, 6)):
        with pytest.raises(ShapeError, match="output's shape"):
            onednn.conv2d_input_grad(floats(*shape), w, x.shape, **o)
        with pytest.raises(ShapeError, match="output's shape"):
            onednn.conv2d_weight_grad(floats(*shape), x, w.shape, **o, with_bias=True)


def test_sizes_beyond_all_bounds_raise() -> None:
    far = (2**14, 2**14)
    g, w = floats(1, 1, 1, 1), floats(1, 1, 1, 1)
    with pytest.raises(MemoryError):
        onednn.conv2d(floats(1, 1, 9, 9), floats(2**13, 1, 1, 1), None, **options(padding=far))
    for shape in ((1, 1, 2**60, 1), (1, 1, 1, 2**31), (-1, 1, 1, 1), (1, -1, 1, 1)):
        with pytest.raises(ShapeError):
            onednn.conv2d_input_grad(g, w, shape, **options())
        with pytest.raises(ShapeError):
            onednn.conv2d_weight_grad(g, floats(1, 1, 1, 1), shape, **options(), with_bias=True)


def test_arguments_that_are_not_float32_arrays_raise() -> None:
    a, b = floats(2, 2), floats(2, 2)
    wrong: list[Any] = [a.astype(np.float64), a.astype(np.int32), [[1.0, 2.0]], None, 3]
    for other in wrong:
        with pytest.raises(DTypeError, match="float32"):
            onednn.matmul(other, b)
        with pytest.raises(DTypeError, match="float32"):
            onednn.linear(a, other)
        with pytest.raises(DTypeError, match="float32"):
            onednn.conv2d(floats(1, 1, 2, 2), other, None, **options())
    with pytest.raises(DTypeError, match="bias"):
        onednn.linear(a, b, np.zeros(2))
    with pytest.raises(ShapeError, match="bias"):
        onednn.linear(a, b, floats(3))


def test_arrays_in_foreign_byte_order_or_unaligned_are_copied() -> None:
    a = floats(3, 4)
    raw = np.zeros(a.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    raw[:] = a
    b = floats(4, 2)
    assert np.array_equal(onednn.matmul(raw, b), onednn.matmul(a, b))
    assert np.array_equal(onednn.matmul(a.astype(">f4"), b), onednn.matmul(a, b))


# ---- what is kept from call to call -----------------------------------------------------------


def test_repeated_runs_give_the_same_bits(threads: int) -> None:
    x, w, bias, o = floats(3, 16, 20, 20), floats(32, 16, 3, 3), floats(32), options((1, 1), (1, 1))

    def once() -> list[bytes]:
        y = onednn.conv2d(x, w, bias, **o)
        w_grad, b_grad = onednn.conv2d_weight_grad(y, x, w.shape, **o, with_bias=True)
        x_grad = onednn.conv2d_input_grad(y, w, x.shape, **o)
        product = onednn.matmul(y.reshape(3, -1).T, y.reshape(3, -1)[:, :100])
        return [each.tobytes() for each in (y, w_grad, b_grad, x_grad, product)]

    first = once()
    assert all(once() == first for _ in range(5))
    onednn.release()
    assert once() == first


def test_packed_weights_are_kept_until_their_version_changes() -> None:
    x, w, o = floats(2, 16, 10, 10), floats(32, 16, 3, 3), options()
    wanted = onednn.conv2d(x, w, None, **o, layout="blocked")
    weight, before = onednn.Weight(), onednn.packed_bytes()
    for version, kept in ((1, 0), (1, w.nbytes), (1, w.nbytes), (2, w.nbytes), (2, w.nbytes)):
        got = onednn.conv2d(x, w, None, **o, key=(weight, version), layout="blocked")
        assert np.array_equal(got, wanted)
        assert onednn.packed_bytes() - before == kept
    w *= 2
    stale = onednn.conv2d(x, w, None, **o, key=(weight, 2), layout="blocked")
    assert np.array_equal(stale, wanted)
    for version in (3, 4):  # each used once: the copy is of no use
        fresh = onednn.conv2d(x, w, None, **o, key=(weight, version), layout="blocked")
        assert np.array_equal(fresh, 2 * wanted)
    assert onednn.packed_bytes() == before


def test_packed_weights_go_with_their_owner_and_stay_below_the_limit() -> None:
    x, w, before = floats(16, 300), floats(200, 300), onednn.packed_bytes()
    weights = [onednn.Weight() for _ in range(5)]
    limit = onednn.packed_limit()
    onednn.set_packed_limit(before + 3 * 4 * 208 * 304)
    try:
        for weight in weights * 2:
            assert np.array_equal(onednn.linear(x, w, None, (weight, 0)), onednn.linear(x, w))
        assert 0 < onednn.packed_bytes() - before <= 3 * 4 * 208 * 304
    finally:
        onednn.set_packed_limit(limit)
    del weight, weights
    assert onednn.packed_bytes() == before


def test_parts_and_transposes_of_a_weight_have_copies_of_their_own() -> None:
    x, w, weight = floats(20, 64), floats(192, 64), onednn.Weight()
    for part in (w[:64], w[64:128], w[:64].T, w[::3]):
        for _ in range(3):
            assert np.array_equal(onednn.linear(x, part, None, (weight, 0)), onednn.linear(x, part))


def test_threads_share_packed_weights() -> None:
    x, w, weight = floats(64, 256), floats(256, 256), onednn.Weight()
    wanted, wrong = onednn.linear(x, w), []

    def work() -> None:
        for version in range(40):
            for _ in range(4):
                if not np.array_equal(onednn.linear(x, w, None, (weight, version)), wanted):
                    wrong.append(version)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: work(), range(3)))
    assert not wrong


@pytest.mark.parametrize("key", [5, (5,), (5, 6, 7), ("a", 1), (5, 1), (None, 1)])
def test_a_key_of_the_wrong_kind_raises(key: Any) -> None:
    with pytest.raises(DTypeError, match="key"):
        onednn.linear(floats(2, 2), floats(2, 2), None, key)


def test_prepared_primitives_are_bounded() -> None:
    onednn.release()
    assert onednn.cache_size() == 0
    b = floats(1, 1)
    for rows in range(1, 1100):
        assert onednn.matmul(floats(rows, 1), b).shape == (rows, 1)
    assert 1 <= onednn.cache_size() <= 1024


def test_threads_of_python_may_call_at_once() -> None:
    x, w, o = floats(2, 16, 24, 24), floats(16, 16, 3, 3), options(padding=(1, 1))
    wanted = onednn.conv2d(x, w, None, **o)
    product = onednn.matmul(w.reshape(16, -1), w.reshape(16, -1).T)

    def both(_: int) -> bool:
        return np.array_equal(onednn.conv2d(x, w, None, **o), wanted) and np.array_equal(
            onednn.matmul(w.reshape(16, -1), w.reshape(16, -1).T), product
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(both, range(80)))


FORKING = """
import os, sys
import numpy as np
from tapegrad import _onednn
x = np.ones((4, 16, 32, 32), np.float32)
w = np.ones((16, 16, 3, 3), np.float32)
call = lambda: _onednn.conv2d(x, w, None, (1, 1), (1, 1), (1, 1), 1)
_onednn.set_num_threads(2)
before = call()
child = os.fork()
if child == 0:
    ok = _onednn.threads() == 1 and np.allclose(call(), before)
    os._exit(0 if ok else 1)
status = os.waitpid(child, 0)[1]
assert _onednn.threads() == 2 and np.array_equal(call(), before)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_computes_with_one_thread() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


SETTINGS = """
import numpy as np
from tapegrad import _onednn
_onednn.set_num_threads(2)
random = np.random.default_rng(0)
a = random.standard_normal((130, 65), dtype=np.float32)
b = random.standard_normal((65, 257), dtype=np.float32)
assert np.allclose(_onednn.matmul(a, b), a @ b, atol=1e-4)
x, g = np.ones((4, 16, 32, 32), np.float32), np.ones((4, 16, 30, 30), np.float32)
options = (1, 1), (0, 0), (1, 1), 1
assert np.all(_onednn.conv2d_weight_grad(g, x, (16, 16, 3, 3), *options, True)[0] == 3600)
"""


@pytest.mark.parametrize(
    "setting",
    ["OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_NUM_THREADS=1"],
)
def test_settings_of_openmp_change_no_result(setting: str) -> None:
    environment = os.environ | dict([setting.split("=")])
    command = [sys.executable, "-c", SETTINGS]
    assert subprocess.run(command, check=False, timeout=60, env=environment).returncode == 0


def test_one_thread_library_serves_all_modules() -> None:
    """Two pools would fight for the processors."""
    script = "import tapegrad as tg; tg.isas(); import tapegrad._onednn; " + (
        "print(open('/proc/self/maps').read())"
    )
    maps = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    libraries = {line.split()[-1] for line in maps.splitlines() if "libgomp" in line}
    assert len(libraries) == 1, libraries


def test_settings() -> None:
    assert onednn.version().startswith("3.")
    with pytest.raises(OptionError, match="set_num_threads"):
        onednn.set_num_threads(-1)
    onednn.set_num_threads(1)
    assert onednn.threads() == 1
    onednn.set_num_threads(0)
    assert onednn.threads() >= 1
