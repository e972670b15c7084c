// core/tensor/kernels.h -- the border between the drivers and the code that is compiled once per
// instruction set and number type.
//
// A kernel works on contiguous memory, in one thread. Drivers (reduce.cpp, softmax.cpp, ...) take
// shapes apart and hand out ranges to threads. Nothing here has a body: a weak symbol kept from the
// AVX-512 object would be an illegal instruction on an older CPU.
#pragma once

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

template <class T>
struct TensorKernels {
    const ReduceKernels<T>* reduce;
    const SoftmaxKernels<T>* softmax;
    const RandomKernels<T>* random;
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
