// core/tensor/attention.h -- scaled dot-product attention, one head per task.
#pragma once

#include <type_traits>

#include "gemm.h"

namespace tapegrad {

/// An array [batch, heads, rows, columns] with any strides, in elements.
template <class T>
struct Heads {
    T* data = nullptr;
    Size strides[4] = {};

    T* at(Size batch, Size head) const { return data + batch * strides[0] + head * strides[1]; }
    Matrix<std::remove_const_t<T>> matrix(Size batch, Size head) const {
        return {at(batch, head), strides[2], strides[3]};
    }
};

/// q is [queries, width], k is [keys, width], v is [keys, value_width] per head.
struct AttentionSizes {
    Size batch, heads, queries, keys, width, value_width;
    Size tasks() const { return batch * heads; }
    Size products() const { return tasks() * queries * keys * (width + value_width); }
};

/// y and p are contiguous. mask (added before softmax) may be missing; `causal` lets query i see
/// keys up to i. A query that sees no key gets zeros.
template <class T>
struct Attention {
    AttentionSizes sizes;
    Heads<const T> q, k, v, mask;
    T scale;
    bool causal;
    T *y, *p;
};
/// False if there is not enough memory.
template <class T>
bool attention(const Attention<T>& a);

/// Gradients are contiguous, and so is p.
template <class T>
struct AttentionBackward {
    AttentionSizes sizes;
    Heads<const T> g, q, k, v;
    const T* p;
    T scale;
    T *gq, *gk, *gv;
};
template <class T>
bool attention_backward(const AttentionBackward<T>& a);

}  // namespace tapegrad
