"""Names that PyTorch has and tapegrad has not, with what to write instead."""

from __future__ import annotations

_NO_GPU = "there is no GPU; tensors are on 'cpu' or 'reference', see x.to(device)"
_NO_HALF = "there is no half precision; use x.float()"
_NO_COMPLEX = "there are no complex numbers"
_ONE_LAYOUT = "there is one layout of memory; leave memory_format and layout out"
#: Of tensors and of the module.
INSTEAD = {
    "cuda": _NO_GPU,
    "is_cuda": _NO_GPU,
    "mps": _NO_GPU,
    "half": _NO_HALF,
    "bfloat16": _NO_HALF,
    "float16": _NO_HALF,
    "complex64": _NO_COMPLEX,
    "channels_last": _ONE_LAYOUT,
    "contiguous_format": _ONE_LAYOUT,
    "preserve_format": _ONE_LAYOUT,
    "strided": _ONE_LAYOUT,
    "view_as_complex": _NO_COMPLEX,
    "addmm": "write a + b @ c",
    "addcmul": "write a + value * b * c, or tg.elementwise for one pass",
    "addcdiv": "write a + value * b / c, or tg.elementwise for one pass",
    "lerp": "write a + weight * (b - a)",
    "baddbmm": "write a + b @ c",
    "fmod": "use tg.remainder, whose sign is the divisor's",
    "true_divide": "write a / b",
    "swapaxes": "use transpose",
    "swapdims": "use transpose",
    "moveaxis": "use movedim",
    "ravel": "use flatten",
    "hstack": "use tg.cat",
    "vstack": "use tg.cat",
    "concat": "use tg.cat",
    "concatenate": "use tg.cat",
    "diag": "use tg.einsum('ii->i', x), or x * tg.eye(n)",
    "diagonal": "use tg.einsum('...ii->...i', x)",
    "trace": "use tg.einsum('ii', x)",
    "meshgrid": "use x[:, None] and y[None, :], which broadcast",
    "cumprod": "use x.log().cumsum(dim).exp() of positive numbers",
    "median": "use x.sort().values",
    "var_mean": "use x.var() and x.mean()",
    "std_mean": "use x.std() and x.mean()",
    "kthvalue": "use x.sort().values",
    "quantile": "use x.sort().values",
    "unique": "use x.sort().values",
    "bincount": "use tg.nn.functional.one_hot(x).sum(0)",
    "count_nonzero": "use (x != 0).sum()",
    "scatter": "use scatter_add on zeros, or x[...] = y",
    "index_put": "use x[...] = y",
    "index_add": "use scatter_add",
    "index_copy": "use x[:, places] = y",
    "masked_scatter": "use x[mask] = y",
    "square_": "use x.mul_(x)",
    "multinomial": "use tg.rand and cumsum",
    "inverse": "linear algebra beyond products is not there; use NumPy's on x.numpy()",
    "linalg": "linear algebra beyond products is not there; use NumPy's on x.numpy()",
    "pinverse": "linear algebra beyond products is not there; use NumPy's on x.numpy()",
    "svd": "linear algebra beyond products is not there; use NumPy's on x.numpy()",
    "to_sparse": "there are no sparse tensors",
    "vmap": "operations broadcast over leading dimensions; write them with a batch",
    "autograd": "use tg.grad, tg.backward, tg.no_grad and tg.Function",
    "load": "use tapegrad.io.load",
    "save": "use tapegrad.io.save",
    "Size": "shapes are tuples",
}


def missing(owner: str, name: str) -> AttributeError:
    """Return the error for a name that is not there."""
    hint = INSTEAD.get(name)
    return AttributeError(f"{owner} has no attribute {name!r}" + (f": {hint}" if hint else ""))
