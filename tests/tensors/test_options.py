"""Options and spellings of functions that the op table's samples leave out, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracles.torch import Torch, assert_equal, tapegrad
from tests.tensors.cases import DEVICES, DTYPES, RTOL
from tests.tensors.torch_calls import evaluate

random = np.random.default_rng(5)
ARRAYS: dict[str, Any] = {
    "x": random.standard_normal((3, 4)),
    "y": random.standard_normal((3, 4)),
    "p": random.uniform(0.1, 0.9, (3, 4)),
    "row": random.standard_normal(4),
    "stack": random.standard_normal((2, 3, 4)),
    "image": random.standard_normal((2, 4, 7, 6)),
    "kernel": random.standard_normal((6, 2, 3, 2)),
    "heads": random.standard_normal((2, 2, 5, 4)),
    "classes": np.array([3, 0, 1]),
    "small": np.array([2, 0, 1], "int32"),
    "mask": random.uniform(size=(3, 4)) > 0.5,
    "whole": random.integers(-5, 6, (3, 4)),
}
EXPRESSIONS = [
    *("stack[0, :, [0, 1]]", "stack[1, ..., mask[0]]", "stack[classes[1], None, :, small]"),
    *("whole @ whole.T", "small @ small", "tt.einsum('ij,kj->ik', whole, whole)", "mask & True"),
    *("F.linear(whole, whole)", "whole.masked_fill(mask, 2.7)", "mask.masked_fill(mask, 0)"),
    *("whole << 2", "whole >> small[:, None]", "2 << small", "-9 >> classes", "mask << 3"),
    *(
        "whole & 6",
        "whole | small[:, None]",
        "whole ^ -3",
        "5 & classes",
        "small | classes",
        "~whole",
    ),
    *(
        "~small",
        "mask & 3",
        "mask ^ whole",
        "True | mask",
        "small ^ mask[:, 0]",
        "whole & whole[0]",
    ),
    *("tt.bitwise_and(whole, 3)", "whole.bitwise_or(small[:, None])", "tt.bitwise_xor(7, small)"),
    *("tt.bitwise_not(mask)", "whole.T & whole.T", "small[:0] | 1", "classes[0] ^ 1"),
    *("tt.where(mask)", "stack.flip(0, 2)", "tt.cat([row[:0], x, row[:0].double()], 1)"),
    *("tt.isclose(mask, x > 0)", "tt.cat([row[:0], whole])", "x.any(())", "x[:, :1].squeeze(())"),
    *("F.pad(image, (1, 2, 0, 1), mode='reflect')", "F.pad(x, (2, -1), mode='circular')"),
    *("tt.add(x, y, alpha=2)", "x.sub(row, alpha=0.5)", "2 - x", "1 / p", "2**x", "p**row", "x**3"),
    *(
        "x**2",
        "whole**2",
        "whole**5",
        "whole.pow(0)",
        "whole**2.5",
        "p**0.5",
        "p**-1",
        "x.pow(2)",
        "-x",
        "abs(x)",
        "+x",
        "~mask",
        "mask & (x > 0)",
    ),
    *(
        "mask | (x > 0)",
        "x.T",
        "x.mT",
        "x.t()",
        "x.clip(-1, 1)",
        "x.clamp(min=row)",
        "x.matmul(row)",
    ),
    *("x @ y.T", "row @ row", "stack @ row", "stack @ x.T", "row @ stack.transpose(1, 2)"),
    *(
        "x.sum(dim=(0, 1))",
        "x.sum(-1, True)",
        "x.mean((0,), keepdim=True)",
        "x.var(0, unbiased=False)",
    ),
    *(
        "x.std()",
        "x.std(1, correction=0)",
        "x.max(1)",
        "x.min(dim=0, keepdim=True)",
        "tt.max(x, y)",
    ),
    *(
        "x.argmax(keepdim=True)",
        "x.argmin(1, keepdim=True)",
        "x.prod(0, keepdim=True)",
        "whole.prod(1)",
    ),
    *("whole.sum(0)", "whole.cumsum(1)", "mask.sum()", "mask.cumsum(0)", "whole.max(0)"),
    *("whole * 2 + 1", "whole == classes[0]", "whole.abs()", "mask.any(0)", "whole.all(1)"),
    *("y[small]", "x.index_select(0, small)", "x.gather(1, classes[:, None])", "x[1:, ::2]"),
    *("x[..., None, 1]", "x[-1]", "x[mask]", "x[[0, 2], 1:]", "x[classes[1:] - 1, [1, 2]]"),
    *("F.embedding(small, x, padding_idx=0)", "tt.stack([x, y], 1)", "tt.cat((x, y), -1)"),
    *(
        "x.unsqueeze(0).expand(2, -1, -1)",
        "stack.permute(2, 0, 1)",
        "stack.flatten(1)",
        "x.view(-1)",
    ),
    *(
        "stack.reshape(3, -1)",
        "x.split([1, 3], 1)",
        "x.chunk(3, 1)",
        "x.unbind(1)",
        "x.narrow(1, 1, 2)",
    ),
    *("x.flip([0, 1])", "x.squeeze(0)", "x.type_as(whole)", "x.long()", "whole.double()"),
    *("x.tril(-1)", "x.triu(1)", "x.softmax(0)", "x.log_softmax(dim=1)", "x.logsumexp((0, 1))"),
    *(
        "tt.where(mask, x, 0.0)",
        "x.where(mask, y)",
        "x.masked_fill(mask, -1.0)",
        "x.rsqrt().isnan()",
    ),
    *(
        "F.softplus(x, 2.0, 1.0)",
        "F.gelu(x, approximate='tanh')",
        "F.leaky_relu(x, 0.3)",
        "F.elu(x, 0.7)",
    ),
    *("F.pad(x, (1, 0, 0, 2), value=3.0)", "F.pad(x, (-1, 1))", "tt.einsum('ij,kj->ik', x, y)"),
    *("tt.einsum('bij, j -> bi', stack, row)", "tt.einsum('...j,j', stack, row)"),
    *("tt.einsum('ij,ij,ij->j', x, y, p)", "tt.einsum('ij->', x)", "tt.einsum('bij->jb', stack)"),
    *("tt.broadcast_to(row, (2, -1))", "stack[:, :1].broadcast_to((-1, 5, -1))"),
    *("F.conv2d(image, kernel, groups=2)", "F.conv2d(image[0], kernel, padding='same', groups=2)"),
    *("F.conv2d(image, kernel, None, (2, 1), (1, 2), (2, 1), 2)", "F.max_pool2d(image[0], 2)"),
    *("F.max_pool2d(image, (3, 2), (2, 1), (1, 0), 1, True)", "F.max_pool2d(image, 2, padding=1)"),
    *("F.max_pool2d(image, 2, return_indices=True)", "F.avg_pool2d(image, 3, 2, 1, True, False)"),
    *("F.avg_pool2d(image, (2, 3), padding=(1, 0), ceil_mode=True)", "F.avg_pool2d(image[0], 2)"),
    *("F.adaptive_avg_pool2d(image, (None, 3))", "F.adaptive_avg_pool2d(image[0], 5)"),
    *("F.layer_norm(stack, (3, 4), x, y, 1e-3)", "F.batch_norm(image, row, p[0], y[0], x[0])"),
    *("F.batch_norm(image, row.clone(), p[0].clone(), training=True)", "F.linear(stack, x)"),
    *("F.scaled_dot_product_attention(heads, heads, heads, is_causal=True, scale=0.1)",),
    *("F.scaled_dot_product_attention(heads[:1], heads, heads)",),
    *("F.scaled_dot_product_attention(heads[0, 0], heads[0, 0], heads[1, 0])",),
    *("F.scaled_dot_product_attention(heads[:, :, :3], heads, heads, is_causal=True)",),
    *("F.scaled_dot_product_attention(heads[None], heads[None], heads[None], heads[..., :1])",),
    *(
        "F.cross_entropy(x, classes, row**2, label_smoothing=0.3)",
        "F.cross_entropy(x, p / p.sum(1, True))",
    ),
    *("F.cross_entropy(x, classes, reduction='none')", "F.cross_entropy(row, classes[0])"),
    *(
        "F.cross_entropy(stack.transpose(1, 2), classes.expand(2, 3))",
        "F.nll_loss(x, classes, row**2)",
    ),
    *(
        "F.nll_loss(x, classes, ignore_index=0, reduction='sum')",
        "F.mse_loss(x, y, reduction='sum')",
    ),
    *(
        "F.l1_loss(x, y, reduction='none')",
        "F.binary_cross_entropy_with_logits(x, p, pos_weight=row**2)",
    ),
    *("F.binary_cross_entropy_with_logits(x, p, weight=p, pos_weight=row**2, reduction='none')",),
    *("(x // p).detach()", "x % p", "7 % p", "(3 // p).detach()", "whole // 3", "whole % -4"),
    *("whole % 2.5", "whole // 2.5", "7 % (whole.abs() + 1)", "small // 2", "x.remainder(row)"),
    *("x.div(p, rounding_mode='floor')", "tt.div(x, p, rounding_mode='trunc')", "x.trunc()"),
    *("whole.div(4, rounding_mode='trunc')", "(-7 - small).div(small - 4, rounding_mode='trunc')"),
    *(
        "x.round(decimals=2)",
        "(x * 100).round(decimals=-1)",
        "(whole / 2).round()",
        "whole.round()",
    ),
    *(
        "whole ** small.abs()[:, None]",
        "2 ** classes",
        "classes ** classes",
        "p ** whole",
        "mask ^ (x > 0)",
    ),
    *("x.norm()", "x.norm(dim=1)", "stack.norm(p=1, dim=(0, 2), keepdim=True)", "(x * 0).norm()"),
    *("x.sort(0)", "x.sort(descending=True)", "whole.sort(dim=1, stable=True)", "x.argsort(0)"),
    *(
        "whole.argsort(dim=1, descending=True, stable=True)",
        "mask.sort(dim=0, stable=True)",
        "stack.topk(2, 1)",
    ),
    *(
        "x.topk(2, largest=False)",
        "row[0].sort()",
        "x.masked_select(mask)",
        "row.masked_select(mask)",
    ),
    *("mask.nonzero()", "mask.nonzero(as_tuple=True)", "whole.nonzero()", "row[0].nonzero()"),
    *("x.repeat(2, 1, 2)", "row.repeat(3)", "x.tile((2, 1))", "row.repeat_interleave(2)"),
    *("stack.movedim(0, 2)", "stack.unflatten(2, (2, 2))", "x.roll(1)", "x.roll((1, 2), (1, 0))"),
    *("x.isclose(y, atol=1.0)", "x.dot(row) if x.ndim == 1 else row.dot(row)", "x.mv(row)"),
    *("tt.outer(row, x[0])", "x.expand_as(stack)", "x.view_as(y.T)", "x.new_ones(2, 3)"),
    *("x.new_full((2,), 3.5)", "x.clone().round_()", "whole.clone().floor_divide_(2)"),
    *("x.clone().remainder_(0.3)", "x.clone().masked_fill_(mask, 2.0)", "p.clone().pow_(2)"),
    *("F.cross_entropy(x, classes * 0 - 100)", "F.cross_entropy(x, classes, ignore_index=3)"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_options_are_pytorchs(torch: Torch, expression: str, dtype: str) -> None:
    arrays = {
        name: array.astype(dtype) if array.dtype.kind == "f" else array
        for name, array in ARRAYS.items()
        if name in expression
    }
    theirs = torch(evaluate, expression, arrays)
    for device in DEVICES:
        ours = evaluate(tapegrad(), expression, arrays, device)
        assert_equal(ours, theirs, 2 * RTOL[dtype], f"{expression} on {device}")
