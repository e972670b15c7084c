"""Forms of calls: what PyTorch takes gives what PyTorch gives, and what it refuses is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import (
    DeviceError,
    DTypeError,
    GradError,
    OptionError,
    ShapeError,
    TapegradError,
)
from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.torch_forms import REFUSED, outcomes

TEXTS = """
1e-10; 0.0; -0.0; 3; 1e8; 1e9; 123456.789; float('nan'); True; [1e-5, 2e-5]; [1.0, 1e-5]
[1e5, 1.5]; [100000.0, 2.0]; [1.5, float('nan'), -float('inf')]; [0.0, 1e-5]; [1.0, -2.0]
[1e8, 2e8]; [12345.678, 0.5]; []; [[1.5, -2.25], [300.0, 0.125]]; [1, -200]; [True, False]
[True]; [0.0, float('nan')]
[1e38, 1e-38]; [1e-5, float('inf')]; [999.5, 1.0]; [0.0, 0.0]; [[[1.0], [2.5]], [[3.0], [-4.0]]]
""".replace("\n", ";").split(";")


def _compared(torch: Torch, expressions: list[str]) -> None:
    ours, theirs = outcomes(tapegrad(), expressions), torch(outcomes, expressions)
    wrong = [text for each in expressions if (text := _difference(ours[each], theirs[each], each))]
    assert not wrong, "\n".join(wrong)


def _difference(ours: Any, theirs: Any, expression: str) -> str:
    """Return in what two outcomes differ; that a call is refused is to be an error of ours."""
    refused = [isinstance(each, str) and each.startswith(REFUSED) for each in (ours, theirs)]
    if any(refused):
        known = any(word in str(ours) for word in ("tapegrad.errors", "IndexError", "TypeError"))
        return "" if all(refused) and known else f"{expression}: {ours} is not {theirs!s:.200}"
    try:
        assert_equal(ours, theirs, 1e-5, expression)
    except AssertionError as error:
        return f"{expression}: {error}"
    return ""


def test_texts_are_those_of_pytorch(torch: Torch) -> None:
    texts = [f"repr(tt.tensor({each.strip()}))" for each in TEXTS if each.strip()]
    texts += [f"repr({each})" for each in ("tt.arange(300.0)", "tt.arange(2000).reshape(2, 1000)")]
    texts += ["repr(tt.zeros(40, 50) / 1.0)", "repr(tt.arange(1200.0).reshape(12, 10, 10) / 3)"]
    texts += ["repr(x.double() / 3)", "repr(tt.ones(0, 2))", "repr(tt.zeros(0, dtype=tt.int64))"]
    texts += ["repr(tt.ones(30).requires_grad_())", "repr(tt.ones(7, 1, 300, dtype=tt.int32))"]
    ours, theirs = outcomes(tapegrad(), texts), torch(outcomes, texts)
    for each in texts:
        assert ours[each].replace("tapegrad", "torch") == theirs[each], each


CREATED = """
tt.tensor([np.ones(2), np.zeros(2)])
tt.tensor([np.float64(1.0), 2.0])
tt.tensor([np.float32(1.0), 2.0])
tt.tensor([np.int32(1), 2])
tt.tensor([np.ones(2, 'float32')])
tt.tensor([np.ones(2, 'int32')])
tt.tensor([np.ones(2, 'int32'), np.ones(2)])
tt.tensor([tt.ones(1), tt.ones(1)])
tt.tensor([[tt.ones(1)], [tt.ones(1, 1)]])
tt.tensor([tt.ones(2), tt.ones(2)])
tt.tensor([tt.tensor(1.0, dtype=tt.float64), tt.tensor(2)])
tt.tensor([tt.tensor(1, dtype=tt.int32), tt.tensor(2, dtype=tt.int32)])
tt.tensor([1, 2.5])
tt.tensor([True, 2])
tt.arange(5, 0)
tt.arange(0, 5, -1)
tt.arange(5, 0, -2)
tt.arange(0)
tt.arange(2.5)
tt.arange(2.5, dtype=tt.int64)
tt.arange(2.5, dtype=tt.int32)
tt.arange(1.7, 5.2, dtype=tt.int64)
tt.arange(1.7, 5.2, dtype=tt.int32)
tt.arange(5.7, 1.2, -1.9, dtype=tt.int64)
tt.arange(0, 3, 0.5, dtype=tt.int64)
tt.arange(0, 1, 0.1, dtype=tt.float64)
tt.arange(3, dtype=tt.bool)
tt.linspace(0, 10, 4, dtype=tt.int64)
tt.linspace(-5, 5, 4, dtype=tt.int32)
tt.linspace(10, 0, 4, dtype=tt.int64)
tt.linspace(-5.5, 5.7, 6, dtype=tt.int64)
tt.linspace(0, 7, 5, dtype=tt.int64)
tt.linspace(4.7, 5, 1, dtype=tt.int64)
tt.linspace(0, 1, 3, dtype=tt.bool)
tt.linspace(0, 1, 0)
tt.zeros(2**63)
""".strip().splitlines()


def test_creation(torch: Torch) -> None:
    _compared(torch, CREATED)


REDUCED = """
x.var(False)
x.var(True)
x.std(False)
tt.var(x, False)
tt.std(x, True)
tt.var(x, True, True)
tt.var(x, False, True)
x.var(1, False)
x.var(None, False)
x.var(unbiased=False)
x.var((0,), False, True)
x.var(1, correction=0)
x.std(0, 'mean')
x.var(0, correction='a')
x.sum(False)
x.sum((True,))
x.mean(True)
x.prod(True)
x.argmax(True)
x.max(True)
x.amin(False)
x.any(True)
x.cumsum(True)
x.norm(2, True)
x.sort(True)
x.softmax(True)
x.logsumexp(True)
x.transpose(0, True)
x.reshape(True, 6)
x.reshape((True, 6))
x.unsqueeze(True)
x.squeeze(True)
x.flip(True)
x.permute(True, False)
x.expand(True, 2, 3)
x.flatten(False)
x.split(True)
x.narrow(True, 0, 1)
x.size(True)
tt.cat([x, x], True)
tt.stack([x, x], True)
tt.zeros(True)
tt.zeros((True, 2))
tt.where(x, 1.0, 2.0)
tt.where(x.long(), 1.0, 2.0)
tt.where(x > 1, 1.0, 2.0)
tt.where(x)
x.where(x, 0.0)
""".strip().splitlines()


def test_true_and_false_are_no_dimensions(torch: Torch) -> None:
    _compared(torch, REDUCED)


FORMS = """
x.flip(dims=(0,))
x.flip(0, 1)
x.flip(0, dims=(1,))
x.permute(dims=(1, 0))
x.reshape(shape=(3, 2))
x.view(size=(3, 2))
x.expand(size=(2, 2, 3))
x.repeat(repeats=(2, 2))
x.split(split_size=1)
x.split([1, 2], dim=1)
tt.split(x, split_size_or_sections=1)
x.tile(2, 2)
x.tile((2, 1, 1))
x.tile(dims=(2,))
x.narrow(1, -2, 2)
x.narrow(1, -2, 3)
x.narrow(1, tt.tensor(1), 2)
x.repeat_interleave(2)
x.repeat_interleave(tt.tensor(2))
x.repeat_interleave(tt.tensor([2]), 1)
x.repeat_interleave(tt.tensor([1, 2, 0]), 1)
x.repeat_interleave(tt.tensor([1, 2, 0]), dim=-1)
x.repeat_interleave(tt.tensor([1, 2, 0, 1, 1, 1]))
x.repeat_interleave(tt.tensor([1, 2]))
x.repeat_interleave(tt.tensor([1, -2, 0]), 1)
x.repeat_interleave(tt.tensor([1.0, 2.0]), 0)
x.repeat_interleave([1, 2])
F.max_pool2d(x[None], (2,))
F.avg_pool2d(x[None], [2])
F.max_pool2d(x[None], (2, 2, 2))
x.prod(dtype=tt.float64)
x.prod(1, dtype=tt.float64)
x.long().prod(0, True, dtype=tt.float32)
x.cumsum(1, dtype=tt.float64)
tt.cumsum(x.long(), 0, dtype=tt.float32)
x.clone().div_(2, rounding_mode='floor')
x.clone().div_(-2, rounding_mode='trunc')
x.clone().div_(2, rounding_mode='up')
x.new_zeros(2, dtype=tt.int64)
x.new_zeros(size=(2,))
x.new_ones((2, 1), dtype=tt.float64)
x.new_full((2,), 3, dtype=tt.int64)
x.new_tensor([1], dtype=tt.int64)
x.new_tensor([1], requires_grad=True).requires_grad
x.new_empty(2, 3).shape == (2, 3)
tt.max(x, other=x.flip(1))
x.min(other=x.flip(1))
x.max(x.flip(1))
x.max(1, other=x)
tt.zeros(3).scatter_add(0, tt.tensor([0, 0]), tt.ones(5))
tt.zeros(2, 3).scatter_add(0, tt.tensor([[0, 1]]), tt.ones(5, 5))
tt.zeros(2, 3).scatter_add(0, tt.tensor([[0, 0], [1, 1]]), tt.ones(1, 2))
tt.zeros(3).scatter_add_(0, tt.tensor([0, 0]), tt.ones(2))
F.mse_loss(x, tt.ones(3))
F.l1_loss(x, tt.ones(2, 1), reduction='none')
F.mse_loss(x, tt.ones(2))
F.pad(x, (1, 1), value=None)
F.pad(x, (-3, 0))
F.pad(x, (-4, 0))
F.pad(x, (0, -5))
F.pad(x, (-2, -2))
F.pad(x, (-4, 2))
x.clamp_min(2)
x.clamp_max(2)
x.clamp_min(tt.ones(3))
tt.clamp_max(x, 3)
tt.clip(x, 1, 2)
x.clip(min=3)
x.clone().unsqueeze_(0)
x.clone().unsqueeze_(-1)
x[None].clone().squeeze_(0)
x[None].clone().squeeze_()
x.clone().squeeze_(5)
x.clone().requires_grad_().unsqueeze_(0)
(x.clone().requires_grad_() * 2).unsqueeze_(0)
tt.empty(3).uniform_(2, 2)
tt.empty(3).uniform_(3, 2)
tt.empty(3).normal_(2, 0)
tt.empty(3).normal_(0, -1)
tt.empty(3, dtype=tt.int64).uniform_(0, 2)
tt.empty(3, dtype=tt.int64).normal_()
tt.empty(3).requires_grad_().normal_()
x.requires_grad_().numpy(force=True)
x.requires_grad_().numpy()
x.to('cpu', non_blocking=True)
x.to('cpu', copy=True) is x
x.to(tt.float32, False, True) is x
x.to('cpu', tt.float32, False) is x
x.to('cpu', tt.float64, True, True)
tt.randperm(-1)
tt.randint(high=1, size=(3,))
tt.randint(1, size=(3,))
tt.randint(low=2, high=3, size=(3,))
tt.randint(high=1)
tt.randint(size=(3,))
tt.rand(2, dtype=tt.int64)
tt.ones(2, 3) @ tt.ones(2)
nn.BatchNorm1d(3)(tt.ones(0, 3))
nn.BatchNorm2d(3)(tt.ones(0, 3, 2, 2))
nn.BatchNorm1d(3, affine=False)(tt.ones(0, 3))
len(nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh()))
list((nn.Sequential(nn.Linear(1, 2)) + nn.Sequential(nn.Linear(2, 1))).state_dict())
nn.Sequential(nn.ReLU()) + nn.ReLU()
nn.Sequential(nn.ReLU(), nn.Tanh()).pop(0)
nn.ModuleList([nn.ReLU(), nn.Tanh()]).pop(-1)
nn.ModuleList([nn.ReLU(), nn.Tanh()]).pop(5)
len(nn.ModuleList([nn.ReLU()]) + [nn.Tanh()])
nn.ModuleList([nn.ReLU()]) + 3
""".strip().splitlines()


def test_forms(torch: Torch) -> None:
    _compared(torch, FORMS)


POWERS = """
tt.tensor([2**40, -3]) ** 2.0
tt.tensor([100000], dtype=tt.int32).pow(2.0)
[(tt.tensor([3, 0]) ** e).dtype for e in (0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5)]
[tt.tensor([True, False]) ** e for e in (1.0, 2.0, 3.0)]
tt.tensor([3]) ** np.float64(2.0)
tt.tensor([3]).pow_(2.0)
tt.tensor([True]).pow_(1.0)
((tt.arange(4) - 1) ** 2.0).mean()
tt.tensor([2, 1, -1, 0]) ** -1
tt.tensor([2, 1, -1, 0]).pow_(-2)
tt.tensor(1) ** -1
tt.tensor([2, 1, -1, 0]) ** tt.tensor(-1)
tt.tensor([2, 1, -1, 0]) ** tt.tensor([[-1], [-2], [0], [3]])
tt.tensor([2, 1, -1, 0], dtype=tt.int32) ** tt.tensor([-2, -3, -3, -5], dtype=tt.int32)
tt.tensor([2, 1]).pow_(tt.tensor(-1))
1 ** tt.tensor([-1, -2, 3])
2 ** tt.tensor([-1, -2, 3])
(-1) ** tt.tensor([-1, -2, 3])
0 ** tt.tensor([-1, 0, 3])
tt.tensor([1, 2], dtype=tt.int32) ** tt.tensor([-1, 2**40])
tt.tensor([True, False]) ** tt.tensor([-1, -1])
tt.tensor([True, False]) ** -1
tt.tensor([True, False]) ** 2
tt.tensor([True, False]) ** True
tt.tensor([True, False]) ** False
tt.tensor([True, False]) ** tt.tensor([True, False])
tt.tensor([True, False]).square()
tt.tensor([3, 2]) ** np.int64(2)
tt.tensor([3, 2]) ** np.float32(2)
""".strip().splitlines()


def test_whole_powers(torch: Torch) -> None:
    _compared(torch, POWERS)


SCALED = """
tt.sub(x.long(), x.long(), alpha=1.5)
tt.sub(x.long(), x.long(), alpha=1.0)
tt.sub(x.long(), 1, alpha=2)
tt.add(x.long(), x, alpha=1.5)
tt.add(x, x.long(), alpha=1.5)
tt.add(x.long(), 1, alpha=1.5)
tt.add(x.long(), 1.5, alpha=2)
tt.add(x.long(), 1.0, alpha=1.5)
tt.add(x.long(), x.long(), alpha=True)
tt.add(x > 1, x > 2, alpha=True)
tt.add(x > 1, x > 2, alpha=2)
tt.add(x, x, alpha='a')
tt.add(x, x, alpha=tt.tensor(2.0))
x.long().add_(x.long(), alpha=1.5)
x.long().sub_(1, alpha=1.5)
x.long().sub_(1, alpha=2)
x.clone().add_(1, alpha=1.5)
tt.ones(0, dtype=tt.int64) // 0
tt.ones(0, dtype=tt.int64) % tt.tensor(0)
tt.ones(1, dtype=tt.int64) % tt.tensor(0)
""".strip().splitlines()


def test_whole_numbers_take_whole_factors(torch: Torch) -> None:
    _compared(torch, SCALED)


REACHING = """
F.linear(x, tt.ones(3))
F.linear(x[0], tt.ones(3))
F.linear(x[None], tt.ones(3), tt.tensor(1.0))
F.linear(x, tt.ones(2))
F.linear(x, tt.ones(4, 3), tt.tensor(1.0))
F.linear(x, tt.ones(4, 3), tt.ones(1))
F.linear(x[None], tt.ones(4, 3), tt.ones(1))
F.linear(x, tt.ones(4, 3), tt.ones(2, 4))
F.linear(x, tt.ones(4, 3), tt.ones(3))
F.linear(x, tt.ones(4, 3), tt.ones(3, 2, 4))
F.linear(x, tt.tensor(1.0))
F.linear(tt.tensor(1.0), x)
tt.tensor(1.0).movedim(0, 0)
tt.tensor(1.0).movedim((0,), (-1,))
tt.tensor(1.0).movedim((), ())
tt.tensor(1.0).movedim(1, 0)
tt.tensor(1.0).mT
x[0].mT
x.mT
tt.tensor(1.0).topk(1)
tt.tensor(1.0).topk(0)
tt.tensor(1.0).topk(2)
tt.tensor(1.0).topk(1, 1)
x.topk(True)
x.clone().copy_(2.0)
x.clone().copy_(True)
x.long().copy_(2.7)
x.clone().copy_(np.float32(2))
x.clone().copy_(tt.tensor(2), True)
x.clone().copy_(other=tt.ones(3), non_blocking=True)
x.clone().copy_([1.0, 2.0, 3.0])
tt.logsumexp(x.long(), 1)
tt.logsumexp(x.int(), (0, 1))
tt.logsumexp(x > 2, 0, True)
tt.logsumexp(tt.ones(0, 3, dtype=tt.int64), 0)
tt.softmax(x.long(), 0)
tt.ones(0, 3).norm(p=-1)
tt.ones(0, 3).norm(p=-1, dim=1)
F.layer_norm(tt.ones(3, 0), (0,))
F.layer_norm(x, ())
""".strip().splitlines()


def test_shapes_and_types_at_their_ends(torch: Torch) -> None:
    _compared(torch, REACHING)


LAYERED = """
[F.relu(x.sub_(2), inplace=True), x]
[nn.ReLU(inplace=True)(x.sub_(2)), x]
[nn.SiLU(inplace=True)(x), x]
[F.elu(x.sub_(2), 2.0, True), x]
[F.leaky_relu(x.sub_(2), 0.5, True), x]
[F.dropout(x, 1.0, inplace=True), x]
[F.dropout(x, 0.5, False, True), x]
F.relu(nn.Parameter(x), inplace=True)
F.relu(x.requires_grad_()[0], inplace=True)
[(h := y * 3, F.silu(h, True), (h * h).sum().backward(), y.grad)[3] for y in [nn.Parameter(x)]]
[(h := y - 3, (h + F.relu(h, True)).sum().backward(), y.grad)[2] for y in [nn.Parameter(x)]]
[(h := y.exp(), F.relu(h, True), h.sum().backward())[0] for y in [nn.Parameter(x)]]
F.batch_norm(x, None, None)
F.batch_norm(x, tt.zeros(3), None)
F.batch_norm(x, None, tt.ones(3))
F.batch_norm(x, None, tt.ones(3), training=True)
F.batch_norm(x, tt.zeros(3), None, training=True)
F.batch_norm(x, None, None, training=True)
F.batch_norm(tt.ones(0, 3), None, None)
F.cross_entropy(x, x.softmax(1), ignore_index=1)
F.cross_entropy(x, x.softmax(1), ignore_index=0)
F.cross_entropy(x, x.softmax(1), ignore_index=-1)
F.cross_entropy(x, x.softmax(1), ignore_index=-100)
nn.CrossEntropyLoss(ignore_index=2)(x, x.softmax(1))
F.cross_entropy(tt.ones(2, 0), tt.ones(2, 0))
F.cross_entropy(tt.ones(2, 0), tt.ones(2, 0), label_smoothing=0.1)
F.cross_entropy(x, tt.tensor([0, 1]), None, None, 1)
F.cross_entropy(x, tt.tensor([0, 1]), None, False)
F.cross_entropy(x, tt.tensor([0, 1]), reduce=False)
F.nll_loss(x, tt.tensor([0, 1]), None, None, 1, None, 'sum')
F.nll_loss(x, tt.tensor([0, 1]), size_average=True, reduce=True)
F.mse_loss(x, x * 2, False)
F.mse_loss(x, x * 2, None, False)
F.mse_loss(x, x * 2, None, None, 'sum')
F.mse_loss(x, x * 2, weight=x + 1)
F.mse_loss(x, x * 2, reduction='none', weight=x + 1)
F.mse_loss(x, x * 2, weight=x[0])
F.l1_loss(x, x * 2, weight=x + 1)
F.l1_loss(x, x * 2, reduction='sum', weight=x + 1)
F.binary_cross_entropy_with_logits(x, x / 9, None, False)
nn.MSELoss(False)(x, x * 2)
nn.L1Loss(None, False)(x, x * 2)
nn.CrossEntropyLoss(None, None, 1)(x, tt.tensor([0, 1]))
nn.NLLLoss(None, False, 1)(x, tt.tensor([0, 1]))
nn.BCEWithLogitsLoss(None, None, None, 'sum')(x, x / 9)
F.scaled_dot_product_attention(x.expand(1, 4, 2, 3), *[x[None, None]] * 2, enable_gqa=True)
F.scaled_dot_product_attention(x.expand(4, 2, 3), *[x.expand(3, 2, 3)] * 2, enable_gqa=True)
F.scaled_dot_product_attention(x.expand(1, 4, 2, 3), *[x.expand(1, 2, 2, 3)] * 2)
F.embedding(tt.tensor([1, 1, 0]), x, max_norm=2.0)
F.embedding(tt.tensor([1, 1, 0]), x, None, 2.0, 1.0)
[F.embedding(tt.tensor([1]), x, max_norm=2.0), x]
F.embedding(tt.tensor([1.0]), x, max_norm=2.0)
F.embedding(tt.tensor([5]), x, max_norm=2.0)
nn.Embedding(2, 3, None, 2.0, 1.0, True, _weight=x)(tt.tensor([1]))
nn.Embedding.from_pretrained(x, True, 0, 2.0, 3.0)(tt.tensor([[1, 0]]))
nn.Embedding.from_pretrained(x, max_norm=2.0).weight.requires_grad
nn.Embedding(2, 3, _weight=x, _freeze=True).weight.requires_grad
nn.Embedding(3, 3, _weight=x)
str(nn.Embedding(2, 3, 1, 2.0, 3.0, True))
x.gather(1, tt.tensor([[0]]), sparse_grad=False)
x.clone().div_(3).round_(decimals=1)
x.clone().div_(3).round_(decimals=-1)
x.long().round_(decimals=1)
tt.from_dlpack(np.ones(3), copy=True)
tt.from_dlpack(ext_tensor=np.ones(3), device='cpu')
tt.randperm(1, dtype=tt.float64)
tt.randperm(1, dtype=tt.float32, requires_grad=True).requires_grad
tt.randint(0, 1, (2,), dtype=tt.float32, requires_grad=True)
tt.randint(0, 1, (2,), requires_grad=True)
tt.rand_like(x, requires_grad=True).requires_grad
tt.randn_like(x, requires_grad=True).requires_grad
tt.empty_like(x, requires_grad=True).requires_grad
nn.Linear(2, 3).to('cpu', non_blocking=True).weight.shape == (3, 2)
len(list(nn.Sequential(*[nn.ReLU()] * 2).modules()))
len(list(nn.Sequential(*[nn.Sequential()] * 2).modules(remove_duplicate=False)))
nn.utils.clip_grad_norm_([x.requires_grad_()], 1.0, foreach=True)
nn.init.kaiming_uniform_(tt.ones(2, 0))
nn.init.kaiming_normal_(tt.ones(0, 3))
""".strip().splitlines()


def test_options_of_layers_and_losses(torch: Torch) -> None:
    _compared(torch, LAYERED)


def test_sparse_gradients_are_refused() -> None:
    x, places = tg.ones(2, 3), tg.tensor([[0]])
    for call in (
        lambda: tg.nn.functional.embedding(places, x, sparse=True),
        lambda: tg.nn.Embedding(2, 3, sparse=True),
        lambda: x.gather(1, places, sparse_grad=True),
    ):
        with pytest.raises(OptionError, match="no sparse gradients"):
            call()


def test_other_memory_is_copied_if_asked_for() -> None:
    array = np.zeros(2)
    shared, copied = tg.from_dlpack(array), tg.from_dlpack(array, copy=True)
    array[:] = 1
    assert shared.tolist() == [1.0, 1.0] and copied.tolist() == [0.0, 0.0]
    assert tg.from_dlpack(array, device="reference").device == tg.device("reference")
    with pytest.raises(DeviceError, match="copy=False"):
        tg.from_dlpack(array, device="reference", copy=False)


def test_capsules_are_read_and_what_cannot_be_is_explained() -> None:
    array = np.arange(3.0)
    shared = tg.from_dlpack(array.__dlpack__(max_version=(1, 0)))
    shared += 1
    assert array.tolist() == [1.0, 2.0, 3.0]
    assert tg.from_dlpack(array.__dlpack__()).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(DTypeError, match="from_dlpack: expected an array with the method"):
        tg.from_dlpack(3)


@pytest.mark.parametrize("module", [tg, tg.nn, tg.nn.functional, tg.optim, tg.data])
def test_modules_list_what_is_for_users(module: Any) -> None:
    names = [name for name in dir(module) if not name.startswith("__")]
    assert set(module.__all__) <= set(names) and len(names) == len(set(names))
    assert not [name for name in names if name.startswith("_")]
    assert not {"sys", "Any", "TYPE_CHECKING", "annotations", "activation", "sgd"} & set(names)
    assert all(getattr(module, name) is not None for name in names)


def test_old_names_of_reductions_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="write reduction='sum'"):
        tg.nn.functional.mse_loss(tg.ones(2), tg.zeros(2), size_average=False)


def test_no_statistics_of_nothing() -> None:
    layer = tg.nn.BatchNorm1d(3)
    layer(tg.ones(0, 3))
    assert layer.running_mean is not None and layer.running_mean.tolist() == [0.0] * 3


def test_a_target_that_broadcasts_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"mse_loss: .*\(2, 3\), got \(3,\)"):
        tg.nn.functional.mse_loss(tg.ones(2, 3), tg.ones(3))


def test_random_numbers_are_written_within_bounds() -> None:
    x = tg.empty(1000).uniform_(2, 5, generator=tg.Generator(1))
    assert 2 <= x.min().item() < 2.1 and 4.9 < x.max().item() < 5
    x = tg.empty(10000).normal_(3, 2, generator=tg.Generator(1))
    assert abs(x.mean().item() - 3) < 0.1 and abs(x.std().item() - 2) < 0.1


def test_a_shape_changed_in_place_has_a_history() -> None:
    x = tg.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.unsqueeze_(0)
    (y * tg.ones(2, 3)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4.0] * 3
    with pytest.raises(GradError, match="changed in place"):
        z.sum().backward()


def test_a_leaf_takes_another_shape_without_a_record() -> None:
    x = tg.ones(3, requires_grad=True)
    with tg.no_grad():
        x.unsqueeze_(0)
    assert x.is_leaf and x.requires_grad and x.shape == (1, 3)
    (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0, 2.0, 2.0]]


def test_inputs_that_take_no_part_have_zeros_if_asked_for() -> None:
    x, y = (tg.ones(2, requires_grad=True) for _ in range(2))
    found = tg.grad((x * 3).sum(), [x, y], materialize_grads=True)
    assert [each.tolist() for each in found] == [[3.0, 3.0], [0.0, 0.0]]
    with pytest.raises(GradError, match="allow_unused"):
        tg.grad((x * 3).sum(), [x, y], allow_unused=False, materialize_grads=True)


# ---- errors -------------------------------------------------------------------------------------

NAMED = """
bitwise_and: m & n
bitwise_or: m | n
bitwise_left_shift: m << n
isclose: tg.isclose(x, y)
isclose: x.isclose(y)
allclose: tg.allclose(x, y)
logical_or: x.logical_or(y)
clamp: x.clamp(min=y)
clamp_min: x.clamp_min(y)
masked_fill: x.masked_fill(n, 1.0)
embedding: F.embedding(tg.tensor([7]), x)
elu: F.elu(x, 'a')
binary_cross_entropy_with_logits: F.binary_cross_entropy_with_logits(x, x, pos_weight=y)
mse_loss: F.mse_loss(x, y)
randperm: tg.randperm(-1)
rand: tg.rand(2, dtype=tg.int64)
view_as: x.view_as(y)
reshape_as: x.reshape_as(y)
view: x.view(5)
std: x.std(0, 'mean')
mv: tg.mv(x, y)
zeros: tg.zeros(2**63)
""".strip().splitlines()


@pytest.mark.parametrize("line", NAMED)
def test_errors_name_what_was_called(line: str) -> None:
    name, _, call = line.partition(": ")
    x, y = tg.ones(2, 3), tg.ones(2)
    names = {"tg": tg, "F": tg.nn.functional, "x": x, "y": y, "m": x > 0, "n": y > 0}
    with pytest.raises((TapegradError, IndexError), match=f"^{name}: "):
        eval(call, names)


def test_a_product_that_does_not_fit_says_what_would() -> None:
    with pytest.raises(ShapeError, match=r"expected 3 rows on the right, .* got 2"):
        tg.ones(2, 3) @ tg.ones(2)
    with pytest.raises(ShapeError, match=r"expected 3 rows on the right, .* got 2"):
        tg.ones(2, 3) @ tg.ones(2, 2)


# ---- modes --------------------------------------------------------------------------------------


MODES: list[Any] = [tg.no_grad, tg.inference_mode, lambda: tg.set_grad_enabled(False)]


@pytest.mark.parametrize("mode", MODES)
def test_generators_keep_their_mode_and_leave_that_of_others(mode: Any) -> None:
    @mode()  # type: ignore[untyped-decorator]
    def modes(closed: list[bool]) -> Any:
        try:
            sent = yield tg.is_grad_enabled()
            try:
                yield sent, tg.is_grad_enabled()
            except KeyError:
                yield "thrown", tg.is_grad_enabled()
            return "done"
        finally:
            closed.append(tg.is_grad_enabled())

    for end in (True, False):
        closed: list[bool] = []
        steps = modes(closed)
        assert next(steps) is False and tg.is_grad_enabled()
        assert steps.send(3) == (3, False) and tg.is_grad_enabled()
        assert steps.throw(KeyError()) == ("thrown", False) and tg.is_grad_enabled()
        if end:
            with pytest.raises(StopIteration) as stop:
                next(steps)
            assert stop.value.value == "done"
        else:
            steps.close()
        assert closed == [False] and tg.is_grad_enabled()
    assert modes.__name__ == "modes"
