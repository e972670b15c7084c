// core/tensor/gemm.h -- products of matrices with any strides.
#pragma once

#include "view.h"

#define TG_ALWAYS_INLINE __attribute__((always_inline))

namespace tapegrad {

/// A matrix that is read; strides in elements.
template <class T>
struct Matrix {
    const T* data;
    Size row_stride, column_stride;

    // Always inline: no copy of them may come from one instruction set and serve another.
    TG_ALWAYS_INLINE Matrix transposed() const { return {data, column_stride, row_stride}; }
    TG_ALWAYS_INLINE Matrix rows_from(Size row) const {
        return {data + row * row_stride, row_stride, column_stride};
    }
    TG_ALWAYS_INLINE Matrix columns_from(Size column) const {
        return {data + column * column_stride, row_stride, column_stride};
    }
};

/// c = a b or c += a b: a is [m, k], b is [k, n], c has contiguous rows `stride` apart.
template <class T>
struct Product {
    Size m, n, k;
    Matrix<T> a, b;
    T* c;
    Size stride;
    bool add;
};

template <class T>
struct GemmKernels {
    /// Elements of scratch that a product of these sizes needs.
    Size (*scratch)(Size m, Size n, Size k);
    void (*multiply)(const Product<T>& product, T* scratch);
};

/// A product in threads: rows or columns of the result are handed out. False if there is not
/// enough memory.
template <class T>
bool multiply(const Product<T>& product);

/// `count` products; a, b and c move on by their steps (0: the same for all).
template <class T>
struct Batch {
    Product<T> first;
    Size count;
    const Size *a_steps, *b_steps;  ///< offset of each
    Size c_step;
};
template <class T>
bool multiply_all(const Batch<T>& batch);
/// The same for whole numbers, which wrap around.
template <class T>
void multiply_whole(const Batch<T>& batch);

}  // namespace tapegrad
