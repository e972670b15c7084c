// core/tensor/variance.cpp -- the variance over dimensions of an array.
//
// Two passes, since sums of squares alone lose what is far smaller than the mean: the mean, then
// squared distances from it, summed like any others.
#include "variance.h"

#include <algorithm>

#include "pool.h"
#include "reduce.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// Dimensions that are gone over as one; strides in elements, of x and of the means.
struct Axis {
    Size size, x, mean;
};

/// The dimensions of x, neighbours of one kind joined; the last is the row.
int joined(const View& x, const bool* reduced, Axis* axes) {
    Size strides[max_dims], step = 1;
    for (int d = x.ndim - 1; d >= 0; --d) {
        strides[d] = reduced[d] ? 0 : step;
        if (!reduced[d]) step *= x.shape[d];
    }
    int count = 0;
    for (int d = 0; d < x.ndim; ++d) {
        const Axis axis{x.shape[d], x.strides[d] / x.itemsize, strides[d]};
        if (axis.size == 1) continue;
        Axis* before = count ? &axes[count - 1] : nullptr;
        if (before && before->x == axis.size * axis.x && before->mean == axis.size * axis.mean)
            *before = {before->size * axis.size, axis.x, axis.mean};
        else
            axes[count++] = axis;
    }
    if (!count) axes[count++] = {1, 1, 0};
    return count;
}

/// Squares of the distances of a row.
template <class T>
void square_row(const T* x, Size step, const T* mean, Size mean_step, Size n, T* y) {
    const auto squared = [](T a, T b) { return (a - b) * (a - b); };
    if (step == 1 && mean_step == 0) {
        const T centre = *mean;
        for (Size i = 0; i < n; ++i) y[i] = squared(x[i], centre);
    } else if (step == 1 && mean_step == 1) {
        for (Size i = 0; i < n; ++i) y[i] = squared(x[i], mean[i]);
    } else {
        for (Size i = 0; i < n; ++i) y[i] = squared(x[i * step], mean[i * mean_step]);
    }
}

template <class T>
void square_all(const View& x, const bool* reduced, const T* mean, T* y) {
    Axis axes[max_dims];
    const int count = joined(x, reduced, axes);
    const Axis row = axes[count - 1];
    in_parallel(x.size(), x.size(), [&](Size low, Size high) {
        for (Size at = low; at < high;) {
            const Size first = at % row.size, n = std::min(row.size - first, high - at);
            Size from = first * row.x, centre = first * row.mean, rest = at / row.size;
            for (int d = count - 2; d >= 0; --d) {
                from += rest % axes[d].size * axes[d].x;
                centre += rest % axes[d].size * axes[d].mean;
                rest /= axes[d].size;
            }
            square_row(x.as<T>() + from, row.x, mean + centre, row.mean, n, y + at);
            at += n;
        }
    });
}

View contiguous_like(const View& x, void* data) {
    View out = x;
    out.data = static_cast<char*>(data);
    Size stride = x.itemsize;
    for (int d = x.ndim - 1; d >= 0; --d) out.strides[d] = stride, stride *= x.shape[d];
    return out;
}

template <class T>
bool variance_of(const View& x, const bool* reduced, double correction, const View& out) {
    const Size results = out.size();
    Scratch<T> means(static_cast<std::size_t>(results));
    Scratch<T> squares(static_cast<std::size_t>(x.size()));
    if ((results && !means.data()) || (x.size() && !squares.data())) return false;
    View centre = out;
    centre.data = reinterpret_cast<char*>(means.data());
    if (!reduce(ReduceOp::mean, x, reduced, centre)) return false;
    square_all(x, reduced, means.data(), squares.data());
    if (!reduce(ReduceOp::sum, contiguous_like(x, squares.data()), reduced, out)) return false;
    double count = 1;
    for (int d = 0; d < x.ndim; ++d) count *= reduced[d] ? static_cast<double>(x.shape[d]) : 1;
    const T divisor = static_cast<T>(std::max(count - correction, 0.0));
    for (Size i = 0; i < results; ++i) out.as<T>()[i] /= divisor;
    return true;
}

}  // namespace

bool variance(const View& x, const bool* reduced, double correction, const View& out) {
    return with_real(x.type, [&](auto number) {
        return variance_of<decltype(number)>(x, reduced, correction, out);
    });
}

}  // namespace tapegrad
