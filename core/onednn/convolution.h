// core/onednn/convolution.h -- two-dimensional convolution and its derivatives, float32.
//
// Tensors are contiguous: x (n, c, h, w), weight (k, c / groups, kernel...), y (n, k, ...).
#pragma once

#include <cstdint>

#include "plan.h"

namespace tapegrad::onednn {

/// The layout the kernel works in; what differs from the caller's is reordered on the way.
enum class Layout : std::int64_t { chosen, plain, channels_last, blocked };

struct Convolution {
    std::int64_t n, c, h, w;
    std::int64_t k, kernel_h, kernel_w;
    std::int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    std::int64_t groups;
    Layout layout = Layout::chosen;

    /// What a dilated kernel covers.
    std::int64_t window_h() const { return dilation_h * (kernel_h - 1) + 1; }
    std::int64_t window_w() const { return dilation_w * (kernel_w - 1) + 1; }
    std::int64_t out_h() const { return (h + 2 * pad_h - window_h()) / stride_h + 1; }
    std::int64_t out_w() const { return (w + 2 * pad_w - window_w()) / stride_w + 1; }
    /// Results of each kernel.
    std::int64_t rows() const { return n * out_h() * out_w(); }
    double flops() const {
        return 2.0 * static_cast<double>(k * rows()) *
               static_cast<double>(c / groups * kernel_h * kernel_w);
    }
};

/// y = x * weight + bias; bias may be null. A key names the weight, whose packed copy may be kept.
void convolution(const Convolution& problem, const float* x, const float* weight, const float* bias,
                 float* y, WeightKey key);
/// The gradient with respect to x, from the gradient g with respect to y.
void convolution_input_grad(const Convolution& problem, const float* g, const float* weight,
                            float* x_grad, WeightKey key);
/// The gradients with respect to the weight and, unless it is null, the bias.
void convolution_weight_grad(const Convolution& problem, const float* g, const float* x,
                             float* weight_grad, float* bias_grad);

}  // namespace tapegrad::onednn
