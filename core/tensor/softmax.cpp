// core/tensor/softmax.cpp -- softmax and its kin along a dimension of contiguous arrays.
#include "softmax.h"

#include <algorithm>

#include "threads.h"

namespace tapegrad {
namespace {

/// Columns that one task takes: a few vectors, so that n rows of them stay in the cache.
constexpr Size column_block = 64;
/// An exponential counts as so many elements of work.
constexpr Size exp_work = 4;

/// Calls body(offset, columns) for blocks of columns of every [n, inner] matrix.
template <class Body>
void over_columns(const Slab& s, Body body) {
    const Size blocks = (s.inner + column_block - 1) / column_block;
    in_parallel(s.outer * blocks, exp_work * s.size(), [&](Size low, Size high) {
        for (Size task = low; task < high; ++task) {
            const Size first = task % blocks * column_block;
            body(task / blocks * s.n * s.inner + first, std::min(column_block, s.inner - first),
                 task / blocks * s.inner + first);
        }
    });
}

}  // namespace

void softmax(Softmax kind, const View& x, int dim, const View& y) {
    const Slab s = slab_of(x, dim);
    if (!s.size()) return;
    with_real(x.type, [&](auto element) {
        using T = decltype(element);
        const auto& kernels = *tensor_kernels<T>().softmax;
        const T* from = x.as<T>();
        T* to = y.as<T>();
        if (s.inner == 1)
            in_parallel(s.outer, exp_work * s.size(), [&](Size low, Size high) {
                kernels.rows[kind](from + low * s.n, to + low * s.n, high - low, s.n);
            });
        else
            over_columns(s, [&](Size at, Size columns, Size) {
                kernels.columns[kind](from + at, to + at, s.n, s.inner, columns);
            });
    });
}

void softmax_backward(Softmax kind, const View& g, const View& y, int dim, const View& gx) {
    const Slab s = slab_of(y, dim);
    if (!s.size()) return;
    with_real(y.type, [&](auto element) {
        using T = decltype(element);
        const auto& kernels = *tensor_kernels<T>().softmax;
        const T *from = g.as<T>(), *results = y.as<T>();
        T* to = gx.as<T>();
        if (s.inner == 1)
            in_parallel(s.outer, 2 * s.size(), [&](Size low, Size high) {
                kernels.rows_backward[kind](from + low * s.n, results + low * s.n, to + low * s.n,
                                            high - low, s.n);
            });
        else
            over_columns(s, [&](Size at, Size columns, Size) {
                kernels.columns_backward[kind](from + at, results + at, to + at, s.n, s.inner,
                                               columns);
            });
    });
}

void logsumexp(const View& x, const Slab& s, const View& y) {
    with_real(x.type, [&](auto element) {
        using T = decltype(element);
        const auto& kernels = *tensor_kernels<T>().softmax;
        const T* from = x.as<T>();
        T* to = y.as<T>();
        if (s.inner == 1)
            in_parallel(s.outer, exp_work * s.size(), [&](Size low, Size high) {
                for (Size o = low; o < high; ++o) to[o] = kernels.logsumexp(from + o * s.n, s.n);
            });
        else
            over_columns(s, [&](Size at, Size columns, Size result) {
                kernels.logsumexp_columns(from + at, to + result, s.n, s.inner, columns);
            });
    });
}

}  // namespace tapegrad
