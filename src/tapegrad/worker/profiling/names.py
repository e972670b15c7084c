"""PyTorch's operators under the names that the tables of all frameworks use.

`view` moves no data, `copy` does and computes nothing, `fill` makes tensors; `_` at the end of
PyTorch's names (in place) makes no difference here. What is not in the table is unknown, and its
share of a step is reported.
"""

from __future__ import annotations

#: Canonical name -> PyTorch's names that mean it, where they are not the same word.
NAMES = {
    # unary, binary, activations, selection
    "abs": "abs absolute",
    "add": "add __add__ __iadd__ __radd__ addcmul addcdiv lerp",
    "sub": "sub rsub subtract __sub__ __isub__ __rsub__",
    "mul": "mul multiply __mul__ __imul__ __rmul__",
    "div": "div true_divide floor_divide reciprocal __truediv__ __rtruediv__ remainder fmod",
    "pow": "pow __pow__ __rpow__ float_power",
    "square": "square",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exp exp2 expm1",
    "log": "log log1p log2 log10",
    "sin": "sin cos tan sinc",
    "tanh": "tanh sinh cosh atan atan2 asin acos",
    "erf": "erf erfc erfinv",
    "neg": "neg negative sign sgn",
    "round": "round floor ceil trunc frac",
    "maximum": "maximum minimum fmax fmin",
    "clip": "clip clamp clamp_min clamp_max hardtanh relu6",
    "where": "where masked_fill",
    "compare": (
        "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor "
        "bitwise_and bitwise_or bitwise_not bitwise_xor __and__ __or__ __xor__ any all equal "
        "allclose isclose is_nonzero"
    ),
    "relu": "relu threshold",
    "leaky_relu": "leaky_relu prelu rrelu",
    "elu": "elu selu celu",
    "sigmoid": "sigmoid hardsigmoid log_sigmoid",
    "softplus": "softplus softsign",
    "hardswish": "hardswish",
    "silu": "silu",
    "gelu": "gelu",
    "mish": "mish",
    "glu": "glu",
    # reductions
    "sum": "sum nansum",
    "mean": "mean nanmean",
    "amax": "amax max aminmax",
    "amin": "amin min",
    "prod": "prod cumprod",
    "var": "var std var_mean std_mean",
    "norm": "norm linalg_vector_norm linalg_norm frobenius_norm dist cdist pairwise_distance",
    "logsumexp": "logsumexp logaddexp",
    "cumsum": "cumsum logcumsumexp",
    "argmax": "argmax",
    "argmin": "argmin",
    # products
    "matmul": "matmul mm addmm chain_matmul linalg_multi_dot __matmul__ __rmatmul__ tensordot",
    "bmm": "bmm baddbmm addbmm",
    "linear": "linear bilinear",
    "matvec": "mv addmv dot vdot inner",
    "outer": "outer ger addr",
    "einsum": "einsum",
    "linalg": (
        "linalg_inv linalg_solve linalg_cholesky linalg_qr linalg_svd linalg_eigh linalg_det "
        "cholesky inverse det logdet triangular_solve linalg_solve_triangular"
    ),
    "fft": "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 stft istft",
    # convolutions, pooling, resizing
    "conv1d": "conv1d",
    "conv2d": "conv2d convolution _convolution mkldnn_convolution",
    "conv3d": "conv3d",
    "conv_transpose1d": "conv_transpose1d",
    "conv_transpose2d": "conv_transpose2d",
    "conv_transpose3d": "conv_transpose3d",
    "max_pool1d": "max_pool1d max_pool1d_with_indices",
    "max_pool2d": "max_pool2d max_pool2d_with_indices boolean_dispatch",
    "max_pool3d": "max_pool3d max_pool3d_with_indices",
    "avg_pool1d": "avg_pool1d",
    "avg_pool2d": "avg_pool2d",
    "avg_pool3d": "avg_pool3d",
    "adaptive_avg_pool2d": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
    "adaptive_max_pool2d": "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    "upsample_nearest2d": "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
    "upsample_bilinear2d": "upsample_bilinear2d upsample_linear1d upsample_bicubic2d",
    "interpolate": "interpolate grid_sampler grid_sampler_2d affine_grid_generator",
    "unfold": "im2col col2im unfold fold pixel_shuffle pixel_unshuffle",
    # normalisation
    "batch_norm": "batch_norm native_batch_norm cudnn_batch_norm",
    "layer_norm": "layer_norm native_layer_norm",
    "group_norm": "group_norm native_group_norm",
    "instance_norm": "instance_norm",
    "rms_norm": "rms_norm",
    "l2_normalize": "normalize",
    "local_response_norm": "local_response_norm",
    # softmax family, losses
    "softmax": "softmax _softmax",
    "log_softmax": "log_softmax _log_softmax",
    "softmin": "softmin",
    "cross_entropy": "cross_entropy cross_entropy_loss",
    "nll_loss": "nll_loss nll_loss_nd nll_loss2d",
    "mse_loss": "mse_loss",
    "l1_loss": "l1_loss smooth_l1_loss",
    "huber_loss": "huber_loss",
    "bce_with_logits": "binary_cross_entropy_with_logits binary_cross_entropy",
    "kl_div": "kl_div",
    "ctc_loss": "ctc_loss",
    "cosine_similarity": "cosine_similarity cosine_embedding_loss",
    "triplet_loss": "triplet_margin_loss margin_ranking_loss hinge_embedding_loss",
    # lookups, order
    "embedding": "embedding embedding_bag embedding_renorm",
    "one_hot": "one_hot",
    "gather": "gather take take_along_dim",
    "index_select": "index_select index masked_select __getitem__ nonzero",
    "scatter_add": (
        "index_add index_copy index_put scatter scatter_add scatter_reduce masked_scatter "
        "index_fill __setitem__ bincount"
    ),
    "sort": "sort msort",
    "argsort": "argsort",
    "topk": "topk kthvalue",
    "search": "searchsorted bucketize unique unique_consecutive _unique2",
    # shape
    "concat": "cat concat concatenate hstack vstack",
    "stack": "stack meshgrid",
    "pad": "pad constant_pad_nd _pad reflection_pad2d replication_pad2d",
    "flip": "flip rot90",
    "roll": "roll",
    "tile": "tile repeat",
    "repeat": "repeat_interleave",
    "triu": "triu tril triu_indices tril_indices",
    "view": (
        "view _unsafe_view view_as t transpose permute swapaxes swapdims movedim moveaxis adjoint "
        "expand expand_as broadcast_to broadcast_tensors unsqueeze squeeze select slice narrow "
        "split split_with_sizes chunk unbind tensor_split as_strided diagonal detach alias "
        "unflatten view_as_real view_as_complex numpy_T mT mH T H lift_fresh lift positive "
        "requires_grad_ real imag resolve_conj resolve_neg set_ result_type"
    ),
    "reshape": "reshape reshape_as flatten ravel",
    "copy": "contiguous clone copy to _to_copy type_as float half double long int item cpu cuda "
    "_local_scalar_dense pin_memory tolist deepcopy __deepcopy__",
    "fill": (
        "zero zeros zeros_like ones ones_like full full_like empty empty_like empty_strided fill "
        "arange linspace eye new_zeros new_ones new_full new_empty scalar_tensor tensor "
        "as_tensor randint random resize diag diag_embed"
    ),
    # random
    "dropout": (
        "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout dropout1d "
        "dropout2d dropout3d"
    ),
    "random_uniform": "rand rand_like uniform randint_like randperm",
    "random_normal": "randn randn_like normal",
    "random_exponential": "exponential",
    "random_bernoulli": "bernoulli multinomial",
    # attention and recurrent cells
    "scaled_dot_product_attention": "scaled_dot_product_attention",
    "multi_head_attention": (
        "multi_head_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd"
    ),
    "rnn": "rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell",
    "lstm": "lstm",
    "gru": "gru",
    "lstm_cell": "lstm_cell _thnn_fused_lstm_cell",
    "gru_cell": "gru_cell _thnn_fused_gru_cell",
    # the engine's own
    "accumulate_grad": "torch::autograd::AccumulateGrad",
    "start_of_backward": "torch::autograd::GraphRoot",
}
#: What the autograd engine does on its own account: no forward call belongs to it.
ENGINE = ("accumulate_grad", "start_of_backward")
_CANONICAL = {name: found for found, names in NAMES.items() for name in names.split()}


def canonical(name: str) -> str | None:
    """Return the canonical name of one of PyTorch's operators; None where it is unknown.

    Example:
        >>> canonical("aten::addmm"), canonical("aten::relu_"), canonical("mine::attention")
        ('matmul', 'relu', None)

    """
    plain = name.removeprefix("aten::")
    return _CANONICAL.get(plain) or _CANONICAL.get(plain.rstrip("_"))
