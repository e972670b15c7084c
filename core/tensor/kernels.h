// core/tensor/kernels.h -- the border between the drivers and the code that is compiled once per
// instruction set and number type.
//
// A kernel works on contiguous memory, in one thread. Drivers (reduce.cpp, softmax.cpp, ...) take
// shapes apart and hand out ranges to threads. Nothing here has a body: a weak symbol kept from the
// AVX-512 object would be an illegal instruction on an older CPU.
#pragma once

#include "gemm.h"
#include "random.h"
#include "view.h"

namespace tapegrad {

enum Reduction { reduce_sum, reduce_prod, reduce_max, reduce_min, reduction_count };

/// All sums are pairwise: errors grow with the logarithm of the length.
template <class T>
struct ReduceKernels {
    /// n numbers in a row to one.
    T (*row[reduction_count])(const T* x, Size n);
    /// Each column of `rows` rows, `stride` elements apart.
    void (*columns[reduction_count])(const T* x, Size stride, Size rows, Size columns, T* out);
    /// The first position of the value (of a NaN, if it is one), or n.
    Size (*find)(const T* x, Size n, T value);
};

enum Softmax { softmax_plain, softmax_log, softmax_count };

template <class T>
struct SoftmaxKernels {
    /// Rows of n numbers.
    void (*rows[softmax_count])(const T* x, T* y, Size rows, Size n);
    void (*rows_backward[softmax_count])(const T* g, const T* y, T* gx, Size rows, Size n);
    /// Down `n` rows that are `stride` apart, for `columns` columns.
    void (*columns[softmax_count])(const T* x, T* y, Size n, Size stride, Size columns);
    void (*columns_backward[softmax_count])(const T* g, const T* y, T* gx, Size n, Size stride,
                                            Size columns);
    T (*logsumexp)(const T* x, Size n);
    void (*logsumexp_columns)(const T* x, T* y, Size n, Size stride, Size columns);
};

/// Normalisation of rows; the drivers choose what a row is.
template <class T>
struct NormKernels {
    /// The sum of (x - mean)^2.
    T (*deviations)(const T* x, Size n, T mean);
    /// y = (x - mean) scale + shift.
    void (*affine)(const T* x, T* y, Size n, T mean, T scale, T shift);
    /// Adds the sums of g and of g (x - mean).
    void (*moments)(const T* g, const T* x, Size n, T mean, double* sum, double* product);
    /// gx = a g + b (x - mean) + c.
    void (*blend)(const T* g, const T* x, T* gx, Size n, T mean, T a, T b, T c);

    // The same down columns, each with a mean of its own; rows are `stride` apart.
    void (*deviations_columns)(const T* x, Size stride, Size rows, Size columns, const T* mean,
                               T* out);
    void (*affine_columns)(const T* x, T* y, Size stride, Size rows, Size columns, const T* mean,
                           const T* scale, const T* shift);
    void (*moments_columns)(const T* g, const T* x, Size stride, Size rows, Size columns,
                            const T* mean, T* sum, T* product);
    void (*blend_columns)(const T* g, const T* x, T* gx, Size stride, Size rows, Size columns,
                          const T* mean, const T* a, const T* b, const T* c);

    /// Layer norm of rows of n; weight and bias may be missing.
    void (*layer_rows)(const T* x, const T* weight, const T* bias, T eps, T* y, T* mean, T* rstd,
                       Size rows, Size n);
    /// gx, and additions to gweight and gbias; each may be missing.
    void (*layer_rows_backward)(const T* g, const T* x, const T* mean, const T* rstd,
                                const T* weight, T* gx, T* gweight, T* gbias, Size rows, Size n);
};

/// One dimension of a sliding window: output o sees inputs o stride - padding + k dilation.
struct WindowAxis {
    Size in, out, kernel, stride, padding, dilation;
};

/// What the sum of a window is divided by: `fixed`, or if that is 0 how many places count, with or
/// without those of the border.
struct Divisor {
    bool count_padding;
    Size fixed;
};

template <class T>
struct PoolKernels {
    /// One plane each; positions are int64, counted within the plane. `scratch` has the size of the
    /// output's row (adaptive pooling: the input's) and elements as wide as T.
    void (*max)(const T* x, T* y, std::int64_t* positions, const WindowAxis& h, const WindowAxis& w,
                void* scratch);
    void (*average)(const T* x, T* y, const WindowAxis& h, const WindowAxis& w,
                    const Divisor& divisor);
    void (*average_backward)(const T* g, T* gx, const WindowAxis& h, const WindowAxis& w,
                             const Divisor& divisor, T* scratch);
    void (*adaptive)(const T* x, T* y, Size h, Size w, Size out_h, Size out_w, T* scratch);
    void (*adaptive_backward)(const T* g, T* gx, Size h, Size w, Size out_h, Size out_w,
                              T* scratch);
};

template <class T>
struct TensorKernels {
    const ReduceKernels<T>* reduce;
    const SoftmaxKernels<T>* softmax;
    const RandomKernels<T>* random;
    const NormKernels<T>* norm;
    const PoolKernels<T>* pool;
    const GemmKernels<T>* gemm;
};

/// The kernels of the instruction set in use: the best this CPU has, or the one TAPEGRAD_ISA names.
template <class T>
const TensorKernels<T>& tensor_kernels();
template <>
const TensorKernels<float>& tensor_kernels<float>();
template <>
const TensorKernels<double>& tensor_kernels<double>();

/// Chooses by name; false if there is none of that name here.
bool set_tensor_isa(const char* name);
/// The name of the instruction set in use.
const char* tensor_isa();

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
/// The name of a table of kernels for the number type that is compiled.
#define TG_TABLE(name) TG_EXPAND(name, TG_REAL)

}  // namespace tapegrad
