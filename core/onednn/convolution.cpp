// core/onednn/convolution.cpp -- two-dimensional convolution and its derivatives, float32.
#include "convolution.h"

namespace tapegrad::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

enum Kind : std::int64_t { forward, input_grad, weight_grad };

memory::desc described(const memory::dims& sizes, Tag tag) {
    return {sizes, memory::data_type::f32, tag};
}

/// The tensors of a convolution, as the caller has them and as the kernel may.
struct Tensors {
    memory::desc x, weight, bias, y;
};

/// One group needs no dimension of its own.
memory::dims weight_sizes(const Convolution& p) {
    if (p.groups == 1) return {p.k, p.c, p.kernel_h, p.kernel_w};
    return {p.groups, p.k / p.groups, p.c / p.groups, p.kernel_h, p.kernel_w};
}

Tensors tensors(const Convolution& p, Tag data, Tag weight, bool with_bias) {
    return {described({p.n, p.c, p.h, p.w}, data), described(weight_sizes(p), weight),
            with_bias ? described({p.k}, Tag::a) : memory::desc(),
            described({p.n, p.k, p.out_h(), p.out_w()}, data)};
}

Tensors callers(const Convolution& p, bool with_bias) {
    return tensors(p, Tag::nchw, p.groups == 1 ? Tag::oihw : Tag::goihw, with_bias);
}

/// The fastest layout as measured (docs/onednn-probe.md). Blocked but for
/// - kernels of 1x1 on more than a few pixels: a plain matrix product needs no reorders;
/// - gradients for fewer channels than a block of 16 would be worth filling;
/// - small groups, whose blocks would be mostly padding.
Layout chosen(Kind kind, const Convolution& p) {
    if (p.layout != Layout::chosen) return p.layout;
    const std::int64_t channels = p.c / p.groups, kernels = p.k / p.groups;
    const bool depthwise = channels == 1 && kernels == 1;
    if (kind == weight_grad)
        return p.groups > 1 && channels < 16 && !depthwise ? Layout::channels_last
                                                           : Layout::blocked;
    if (p.groups > 1) return Layout::blocked;
    if (p.kernel_h * p.kernel_w == 1 && p.pad_h + p.pad_w == 0 && p.out_h() * p.out_w() >= 128)
        return Layout::plain;
    if (kind == input_grad && channels <= 4) return Layout::plain;
    if (kind == input_grad && kernels < 16) return Layout::channels_last;
    return Layout::blocked;
}

Tag data_tag(Layout layout) {
    switch (layout) {
        case Layout::plain:
            return Tag::nchw;
        case Layout::channels_last:
            return Tag::nhwc;
        default:
            return Tag::any;
    }
}

Tensors kernels(Kind kind, const Convolution& p, bool with_bias) {
    return tensors(p, data_tag(chosen(kind, p)), Tag::any, with_bias);
}

/// oneDNN counts dilation from 0.
struct Windows {
    memory::dims strides, dilations, padding;

    explicit Windows(const Convolution& p)
        : strides{p.stride_h, p.stride_w},
          dilations{p.dilation_h - 1, p.dilation_w - 1},
          padding{p.pad_h, p.pad_w} {}
};

dnnl::convolution_forward::primitive_desc forward_desc(Kind kind, const Convolution& p,
                                                       bool with_bias) {
    const Tensors t = kernels(kind, p, with_bias);
    const Windows w(p);
    return {engine(),
            dnnl::prop_kind::forward_training,
            dnnl::algorithm::convolution_direct,
            t.x,
            t.weight,
            t.bias,
            t.y,
            w.strides,
            w.dilations,
            w.padding,
            w.padding,
            attributes()};
}

Plan forward_plan(int threads, const Convolution& p, bool with_bias) {
    const auto desc = forward_desc(forward, p, with_bias);
    const Tensors own = callers(p, with_bias);
    Plan plan(threads);
    const auto x = plan.argument(own.x), weight = plan.argument(own.weight);
    const auto y = plan.argument(own.y), bias = with_bias ? plan.argument(own.bias) : y;
    const auto from = plan.reordered(x, desc.src_desc());
    const auto by = plan.packed(weight, desc.weights_desc());
    const auto to = plan.in_layout(y, desc.dst_desc());
    const dnnl::convolution_forward primitive(desc);
    if (with_bias)
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, from},
                   {DNNL_ARG_WEIGHTS, by},
                   {DNNL_ARG_BIAS, bias},
                   {DNNL_ARG_DST, to}});
    else
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, by}, {DNNL_ARG_DST, to}});
    plan.reorder(to, y);
    return plan;
}

Plan input_grad_plan(int threads, const Convolution& p) {
    const Tensors t = kernels(input_grad, p, false), own = callers(p, false);
    const Windows w(p);
    const dnnl::convolution_backward_data::primitive_desc desc(
        engine(), dnnl::algorithm::convolution_direct, t.x, t.weight, t.y, w.strides, w.dilations,
        w.padding, w.padding, forward_desc(input_grad, p, false), attributes());
    Plan plan(threads);
    const auto g = plan.argument(own.y), weight = plan.argument(own.weight);
    const auto x_grad = plan.argument(own.x);
    const auto from = plan.reordered(g, desc.diff_dst_desc());
    const auto by = plan.packed(weight, desc.weights_desc());
    const auto to = plan.in_layout(x_grad, desc.diff_src_desc());
    plan.step(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
              {{DNNL_ARG_DIFF_DST, from}, {DNNL_ARG_WEIGHTS, by}, {DNNL_ARG_DIFF_SRC, to}});
    plan.reorder(to, x_grad);
    return plan;
}

Plan weight_grad_plan(int threads, const Convolution& p, bool with_bias) {
    const Tensors t = kernels(weight_grad, p, with_bias), own = callers(p, with_bias);
    const Windows w(p);
    const dnnl::convolution_backward_weights::primitive_desc desc(
        engine(), dnnl::algorithm::convolution_direct, t.x, t.weight, t.bias, t.y, w.strides,
        w.dilations, w.padding, w.padding, forward_desc(weight_grad, p, with_bias), attributes());
    Plan plan(threads);
    const auto g = plan.argument(own.y), x = plan.argument(own.x);
    const auto w_grad = plan.argument(own.weight);
    const auto bias_grad = with_bias ? plan.argument(own.bias) : g;
    const auto from = plan.reordered(g, desc.diff_dst_desc());
    const auto by = plan.reordered(x, desc.src_desc());
    const auto to = plan.in_layout(w_grad, desc.diff_weights_desc());
    const dnnl::convolution_backward_weights primitive(desc);
    if (with_bias)
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_DIFF_DST, from},
                   {DNNL_ARG_SRC, by},
                   {DNNL_ARG_DIFF_WEIGHTS, to},
                   {DNNL_ARG_DIFF_BIAS, bias_grad}});
    else
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_DIFF_DST, from}, {DNNL_ARG_SRC, by}, {DNNL_ARG_DIFF_WEIGHTS, to}});
    plan.reorder(to, w_grad);
    return plan;
}

Signature signature(Kind kind, const Convolution& p, bool with_bias) {
    return {p.flops(),
            {kind, with_bias, static_cast<std::int64_t>(p.layout), p.n, p.c, p.h, p.w, p.k,
             p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h,
             p.dilation_w, p.groups}};
}

}  // namespace

void convolution(const Convolution& problem, const float* x, const float* weight, const float* bias,
                 float* y, WeightKey key) {
    Plan& plan = plan_for(signature(forward, problem, bias),
                          [&](int threads) { return forward_plan(threads, problem, bias); });
    key = worth_keeping(key, weight, forward, problem.rows());
    if (bias)
        plan.run({x, weight, y, bias}, key);
    else
        plan.run({x, weight, y}, key);
}

void convolution_input_grad(const Convolution& problem, const float* g, const float* weight,
                            float* x_grad, WeightKey key) {
    Plan& plan = plan_for(signature(input_grad, problem, false),
                          [&](int threads) { return input_grad_plan(threads, problem); });
    key = worth_keeping(key, weight, input_grad, problem.rows());
    plan.run({g, weight, x_grad}, key);
}

void convolution_weight_grad(const Convolution& problem, const float* g, const float* x,
                             float* weight_grad, float* bias_grad) {
    Plan& plan = plan_for(signature(Kind::weight_grad, problem, bias_grad), [&](int threads) {
        return weight_grad_plan(threads, problem, bias_grad);
    });
    if (bias_grad)
        plan.run({g, x, weight_grad, bias_grad});
    else
        plan.run({g, x, weight_grad});
}

}  // namespace tapegrad::onednn
