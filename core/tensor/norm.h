// core/tensor/norm.h -- batch norm and layer norm of contiguous arrays.
#pragma once

#include "view.h"

namespace tapegrad {

/// Arrays of one number type; weight, bias and gradients that are not wanted may be nullptr.
template <class T>
struct LayerNorm {
    Size rows, n;
    const T *x, *weight, *bias;
    T *y, *mean, *rstd;
};
template <class T>
void layer_norm(const LayerNorm<T>& p, T eps);

template <class T>
struct LayerNormBackward {
    Size rows, n;
    const T *g, *x, *mean, *rstd, *weight;
    T *gx, *gweight, *gbias;
};
/// False if there is not enough memory.
template <class T>
bool layer_norm_backward(const LayerNormBackward<T>& p);

/// x is [batch, channels, inner].
template <class T>
struct BatchNorm {
    Size batch, channels, inner;
    const T *x, *weight, *bias;
    T *y, *mean, *variance, *rstd;
};
/// With the statistics of x itself. False if there is not enough memory.
template <class T>
bool batch_norm(const BatchNorm<T>& p, T eps);
/// With given mean and variance.
template <class T>
bool batch_norm_inference(const BatchNorm<T>& p, T eps);

template <class T>
struct BatchNormBackward {
    Size batch, channels, inner;
    const T *g, *x, *weight, *mean, *rstd;
    T *gx, *gweight, *gbias;
};
template <class T>
bool batch_norm_backward(const BatchNormBackward<T>& p);

}  // namespace tapegrad
