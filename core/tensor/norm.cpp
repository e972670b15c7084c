// core/tensor/norm.cpp -- batch norm and layer norm in threads.
//
// A channel of a batch is `batch` rows of `inner` elements; it stays in the second-level cache
// between its passes. Without inner dimensions channels are columns of one matrix.
#include "norm.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "pool.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// Rows whose contributions to the gradients of weight and bias are summed in one go.
constexpr Size chunk_rows = 64;
/// Columns that a thread takes at least: no two threads share a cache line.
constexpr Size column_block = 16;

template <class T>
T weight_of(const T* weight, Size channel) {
    return weight ? weight[channel] : T(1);
}

template <class T>
T inverse_root(T variance, T eps) {
    return T(1) / std::sqrt(variance + eps);
}

/// Calls body(low, high) for ranges of columns.
template <class Body>
void over_columns(Size channels, Size work, Body body) {
    const Size blocks = (channels + column_block - 1) / column_block;
    in_parallel(blocks, work, [&](Size low, Size high) {
        body(low * column_block, std::min(high * column_block, channels));
    });
}

/// y = (x - mean) scale + shift for one channel's rows.
template <class T>
void apply(const BatchNorm<T>& p, Size c, T mean, T rstd) {
    const auto& kernels = *tensor_kernels<T>().norm;
    for (Size b = 0; b < p.batch; ++b) {
        const Size at = (b * p.channels + c) * p.inner;
        kernels.affine(p.x + at, p.y + at, p.inner, mean, rstd * weight_of(p.weight, c),
                       p.bias ? p.bias[c] : T(0));
    }
}

/// The same for columns, whose scales and shifts are put into scratch first.
template <class T>
void apply_columns(const BatchNorm<T>& p, Size low, Size high, const T* mean, T* scale, T* shift,
                   const T* rstd) {
    for (Size c = low; c < high; ++c) {
        scale[c] = rstd[c] * weight_of(p.weight, c);
        shift[c] = p.bias ? p.bias[c] : T(0);
    }
    tensor_kernels<T>().norm->affine_columns(p.x + low, p.y + low, p.channels, p.batch, high - low,
                                             mean + low, scale + low, shift + low);
}

template <class T>
void channel_statistics(const BatchNorm<T>& p, Size c, T eps) {
    const auto& kernels = tensor_kernels<T>();
    const double count = static_cast<double>(p.batch * p.inner);
    const auto row = [&](Size b) { return p.x + (b * p.channels + c) * p.inner; };
    double sum = 0, squares = 0;
    for (Size b = 0; b < p.batch; ++b) sum += kernels.reduce->row[reduce_sum](row(b), p.inner);
    const T mean = static_cast<T>(sum / count);
    for (Size b = 0; b < p.batch; ++b) squares += kernels.norm->deviations(row(b), p.inner, mean);
    p.mean[c] = mean;
    p.variance[c] = static_cast<T>(squares / count);
    p.rstd[c] = inverse_root(p.variance[c], eps);
}

template <class T>
void column_statistics(const BatchNorm<T>& p, Size low, Size high, T eps) {
    const auto& kernels = tensor_kernels<T>();
    kernels.reduce->columns[reduce_sum](p.x + low, p.channels, p.batch, high - low, p.mean + low);
    for (Size c = low; c < high; ++c) p.mean[c] /= static_cast<T>(p.batch);
    kernels.norm->deviations_columns(p.x + low, p.channels, p.batch, high - low, p.mean + low,
                                     p.variance + low);
    for (Size c = low; c < high; ++c) {
        p.variance[c] /= static_cast<T>(p.batch);
        p.rstd[c] = inverse_root(p.variance[c], eps);
    }
}

/// gx = a g + b (x - mean) + c, from the sums of g and of g (x - mean).
template <class T>
struct Blend {
    T a, b, c;
};

template <class T>
Blend<T> blend_of(const BatchNormBackward<T>& p, Size c, double sum, double product) {
    const double count = static_cast<double>(p.batch * p.inner), rstd = p.rstd[c];
    const double scale = static_cast<double>(weight_of(p.weight, c)) * rstd;
    p.gweight[c] = static_cast<T>(product * rstd);
    p.gbias[c] = static_cast<T>(sum);
    return {static_cast<T>(scale), static_cast<T>(-scale * rstd * rstd * product / count),
            static_cast<T>(-scale * sum / count)};
}

template <class T>
void channel_backward(const BatchNormBackward<T>& p, Size c) {
    const auto& kernels = *tensor_kernels<T>().norm;
    const auto at = [&](Size b) { return (b * p.channels + c) * p.inner; };
    double sum = 0, product = 0;
    for (Size b = 0; b < p.batch; ++b)
        kernels.moments(p.g + at(b), p.x + at(b), p.inner, p.mean[c], &sum, &product);
    const Blend<T> blend = blend_of(p, c, sum, product);
    for (Size b = 0; b < p.batch; ++b)
        kernels.blend(p.g + at(b), p.x + at(b), p.gx + at(b), p.inner, p.mean[c], blend.a, blend.b,
                      blend.c);
}

template <class T>
void columns_backward(const BatchNormBackward<T>& p, Size low, Size high, T* scratch) {
    const auto& kernels = *tensor_kernels<T>().norm;
    T *a = scratch, *b = a + p.channels, *c = b + p.channels;
    kernels.moments_columns(p.g + low, p.x + low, p.channels, p.batch, high - low, p.mean + low,
                            a + low, b + low);
    for (Size i = low; i < high; ++i) {
        const Blend<T> blend = blend_of(p, i, a[i], b[i]);
        a[i] = blend.a, b[i] = blend.b, c[i] = blend.c;
    }
    kernels.blend_columns(p.g + low, p.x + low, p.gx + low, p.channels, p.batch, high - low,
                          p.mean + low, a + low, b + low, c + low);
}

}  // namespace

template <class T>
void layer_norm(const LayerNorm<T>& p, T eps) {
    const auto& kernels = *tensor_kernels<T>().norm;
    in_parallel(p.rows, 2 * p.rows * p.n, [&](Size low, Size high) {
        kernels.layer_rows(p.x + low * p.n, p.weight, p.bias, eps, p.y + low * p.n, p.mean + low,
                           p.rstd + low, high - low, p.n);
    });
}

template <class T>
bool layer_norm_backward(const LayerNormBackward<T>& p) {
    const auto& kernels = tensor_kernels<T>();
    const Size chunks = (p.rows + chunk_rows - 1) / chunk_rows;
    const int wanted = (p.gweight != nullptr) + (p.gbias != nullptr);
    const Size partial = wanted * chunks * p.n;
    Scratch<T> scratch(static_cast<std::size_t>(partial));
    if (!scratch.data()) return false;
    T* gweight = p.gweight ? scratch.data() : nullptr;
    T* gbias = p.gbias ? scratch.data() + (p.gweight ? chunks * p.n : 0) : nullptr;
    in_parallel(chunks, 4 * p.rows * p.n, [&](Size low, Size high) {
        for (Size chunk = low; chunk < high; ++chunk) {
            const Size first = chunk * chunk_rows, at = first * p.n;
            T* gw = gweight ? gweight + chunk * p.n : nullptr;
            T* gb = gbias ? gbias + chunk * p.n : nullptr;
            if (gw) std::fill_n(gw, p.n, T(0));
            if (gb) std::fill_n(gb, p.n, T(0));
            kernels.norm->layer_rows_backward(p.g + at, p.x + at, p.mean + first, p.rstd + first,
                                              p.weight, p.gx ? p.gx + at : nullptr, gw, gb,
                                              std::min(chunk_rows, p.rows - first), p.n);
        }
    });
    const auto total = kernels.reduce->columns[reduce_sum];
    if (p.gweight) total(gweight, p.n, chunks, p.n, p.gweight);
    if (p.gbias) total(gbias, p.n, chunks, p.n, p.gbias);
    return true;
}

template <class T>
bool batch_norm(const BatchNorm<T>& p, T eps) {
    const Size work = 2 * p.batch * p.channels * p.inner;
    if (p.inner != 1) {
        in_parallel(p.channels, work, [&](Size low, Size high) {
            for (Size c = low; c < high; ++c) {
                channel_statistics(p, c, eps);
                apply(p, c, p.mean[c], p.rstd[c]);
            }
        });
        return true;
    }
    Scratch<T> scratch(static_cast<std::size_t>(2 * p.channels));
    if (!scratch.data()) return false;
    over_columns(p.channels, work, [&](Size low, Size high) {
        column_statistics(p, low, high, eps);
        apply_columns(p, low, high, p.mean, scratch.data(), scratch.data() + p.channels, p.rstd);
    });
    return true;
}

template <class T>
bool batch_norm_inference(const BatchNorm<T>& p, T eps) {
    Scratch<T> scratch(static_cast<std::size_t>(3 * p.channels));
    if (!scratch.data()) return false;
    T* rstd = scratch.data();
    for (Size c = 0; c < p.channels; ++c) rstd[c] = inverse_root(p.variance[c], eps);
    const Size work = p.batch * p.channels * p.inner;
    if (p.inner != 1)
        in_parallel(p.channels, work, [&](Size low, Size high) {
            for (Size c = low; c < high; ++c) apply(p, c, p.mean[c], rstd[c]);
        });
    else
        over_columns(p.channels, work, [&](Size low, Size high) {
            apply_columns(p, low, high, p.mean, rstd + p.channels, rstd + 2 * p.channels, rstd);
        });
    return true;
}

template <class T>
bool batch_norm_backward(const BatchNormBackward<T>& p) {
    const Size work = 2 * p.batch * p.channels * p.inner;
    if (p.inner != 1) {
        in_parallel(p.channels, work, [&](Size low, Size high) {
            for (Size c = low; c < high; ++c) channel_backward(p, c);
        });
        return true;
    }
    Scratch<T> scratch(static_cast<std::size_t>(3 * p.channels));
    if (!scratch.data()) return false;
    over_columns(p.channels, work,
                 [&](Size low, Size high) { columns_backward(p, low, high, scratch.data()); });
    return true;
}

#define TG_INSTANTIATE(T)                                           \
    template void layer_norm(const LayerNorm<T>&, T);               \
    template bool layer_norm_backward(const LayerNormBackward<T>&); \
    template bool batch_norm(const BatchNorm<T>&, T);               \
    template bool batch_norm_inference(const BatchNorm<T>&, T);     \
    template bool batch_norm_backward(const BatchNormBackward<T>&);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE

}  // namespace tapegrad
