// core/tensor/convolution.h -- two-dimensional convolution of contiguous arrays.
#pragma once

#include "kernels.h"

namespace tapegrad {

/// x is [batch, groups * channels, h.in, w.in]; y is [batch, groups * filters, h.out, w.out]; the
/// weight is [groups * filters, channels, h.kernel, w.kernel].
struct ConvolutionSizes {
    Size batch, groups, channels, filters;
    WindowAxis h, w;

    Size taps() const { return channels * h.kernel * w.kernel; }
    Size in_plane() const { return h.in * w.in; }
    Size out_plane() const { return h.out * w.out; }
    /// Multiplications.
    Size products() const { return batch * groups * filters * taps() * out_plane(); }
};

/// All return false if there is not enough memory; bias may be nullptr.
template <class T>
bool convolution(const ConvolutionSizes& s, const T* x, const T* weight, const T* bias, T* y);
template <class T>
bool convolution_input_grad(const ConvolutionSizes& s, const T* g, const T* weight, T* gx);
template <class T>
bool convolution_weight_grad(const ConvolutionSizes& s, const T* g, const T* x, T* gweight);

}  // namespace tapegrad
