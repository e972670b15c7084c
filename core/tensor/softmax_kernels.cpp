// core/tensor/softmax_kernels.cpp -- softmax and its kin, along rows and down columns.
//
// Compiled once per instruction set and number type. A row stays in the first-level cache between
// its passes: the largest, exponentials and their sum, the quotient. Columns are taken a vector at
// a time for the same reason.
#include "kernels.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// exp of numbers that are hardly ever positive. Those whose exponential is zero, as the masked
/// ones of attention, do not take the slow path of exp; large ones and denormal results do.
TG_INLINE Vec exp_shifted(Vec a) {
    using C = Exp<Real>;
    const auto small = a < Vec(-C::normal_limit), zero = a < Vec(-C::limit);
    const auto rare = (small & !zero) | (a > Vec(C::normal_limit));
    if (__builtin_expect(any(rare), 0)) return exp_of_any(a);
    return select(zero, Vec(0), exp_of_normal(at_least(a, Vec(-C::normal_limit))));
}

TG_INLINE Real largest(const Real* x, Size n) {
    Vec a = -Format<Real>::infinity, b = a;
    Size i = 0;
    for (; i + 2 * native <= n; i += 2 * native) {
        a = maximum(a, Vec::load(x + i));
        b = maximum(b, Vec::load(x + i + native));
    }
    for (; i < n; i += native) a = maximum(a, load_up_to(x + i, n - i, -Format<Real>::infinity));
    return across(maximum(a, b), [](Vec p, Vec q) TG_LAMBDA { return maximum(p, q); });
}

/// The sum of e^(x - shift); exponentials are stored where `store` says so.
template <bool store>
TG_INLINE Real sum_of_exps(const Real* x, Real shift, Real* y, Size n) {
    Vec a = 0, b = 0;
    Size i = 0;
    for (; i + 2 * native <= n; i += 2 * native) {
        const Vec p = exp_shifted(Vec::load(x + i) - shift);
        const Vec q = exp_shifted(Vec::load(x + i + native) - shift);
        if (store) p.store(y + i), q.store(y + i + native);
        a = a + p;
        b = b + q;
    }
    for (; i < n; i += native) {
        const Vec p = exp_shifted(load_up_to(x + i, n - i, -Format<Real>::infinity) - shift);
        if (store) store_up_to(p, y + i, n - i);
        a = a + p;
    }
    return sum_across(a + b);
}

TG_INLINE Real log_of(Real a) { return log(Lanes<Real, 1>(a))[0]; }

void softmax_rows(const Real* x, Real* y, Size rows, Size n) {
    for (; rows; --rows, x += n, y += n) {
        const Real sum = sum_of_exps<true>(x, largest(x, n), y, n);
        const Vec factor = Real(1) / sum;
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            store_up_to(load_up_to(y + i, left, 0) * factor, y + i, left);
        });
    }
}

void log_softmax_rows(const Real* x, Real* y, Size rows, Size n) {
    for (; rows; --rows, x += n, y += n) {
        const Real shift = largest(x, n);
        const Vec log_sum = log_of(sum_of_exps<false>(x, shift, nullptr, n));
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            store_up_to(load_up_to(x + i, left, 0) - shift - log_sum, y + i, left);
        });
    }
}

/// y (g - sum of g y).
void softmax_rows_backward(const Real* g, const Real* y, Real* gx, Size rows, Size n) {
    for (; rows; --rows, g += n, y += n, gx += n) {
        Vec a = 0;
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            a = fma(load_up_to(g + i, left, 0), load_up_to(y + i, left, 0), a);
        });
        const Vec sum = sum_across(a);
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            const Vec gi = load_up_to(g + i, left, 0), yi = load_up_to(y + i, left, 0);
            store_up_to(yi * (gi - sum), gx + i, left);
        });
    }
}

/// g - e^y (sum of g).
void log_softmax_rows_backward(const Real* g, const Real* y, Real* gx, Size rows, Size n) {
    for (; rows; --rows, g += n, y += n, gx += n) {
        Vec a = 0;
        each_vector(n, [&](Size i, Size left) TG_LAMBDA { a = a + load_up_to(g + i, left, 0); });
        const Vec sum = sum_across(a);
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            const Vec gi = load_up_to(g + i, left, 0), yi = load_up_to(y + i, left, 0);
            store_up_to(gi - exp_shifted(yi) * sum, gx + i, left);
        });
    }
}

/// As in PyTorch: infinite if the largest is, and no NaN comes of it.
Real logsumexp(const Real* x, Size n) {
    const Real shift = largest(x, n);
    if (!(shift >= -Format<Real>::largest && shift <= Format<Real>::largest)) return shift;
    return shift + log_of(sum_of_exps<false>(x, shift, nullptr, n));
}

// ---- down columns ------------------------------------------------------------------------------

TG_INLINE Vec largest_down(const Real* x, Size n, Size stride, Size left) {
    Vec a = -Format<Real>::infinity;
    for (Size r = 0; r < n; ++r) a = maximum(a, load_up_to(x + r * stride, left, 0));
    return a;
}

/// What add(sum, r) adds up for all rows, in pieces of 1,024: a sum of float that has grown large
/// takes in nothing small.
template <class Add>
TG_INLINE Vec sum_down(Size n, Add add) {
    constexpr Size piece = 1024;
    Vec sum = 0;
    for (Size first = 0; first < n; first += piece) {
        Vec part = 0;
        for (Size r = first, end = n - first < piece ? n : first + piece; r < end; ++r)
            part = add(part, r);
        sum = sum + part;
    }
    return sum;
}

void softmax_columns(const Real* x, Real* y, Size n, Size stride, Size columns) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec shift = largest_down(x + c, n, stride, left);
        const Vec sum = sum_down(n, [&](Vec part, Size r) TG_LAMBDA {
            const Vec e = exp_shifted(load_up_to(x + r * stride + c, left, 0) - shift);
            store_up_to(e, y + r * stride + c, left);
            return part + e;
        });
        const Vec factor = Real(1) / sum;
        for (Size r = 0; r < n; ++r) {
            Real* to = y + r * stride + c;
            store_up_to(load_up_to(to, left, 0) * factor, to, left);
        }
    });
}

void log_softmax_columns(const Real* x, Real* y, Size n, Size stride, Size columns) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec shift = largest_down(x + c, n, stride, left);
        const Vec log_sum = log(sum_down(n, [&](Vec part, Size r) TG_LAMBDA {
            return part + exp_shifted(load_up_to(x + r * stride + c, left, 0) - shift);
        }));
        for (Size r = 0; r < n; ++r)
            store_up_to(load_up_to(x + r * stride + c, left, 0) - shift - log_sum,
                        y + r * stride + c, left);
    });
}

void softmax_columns_backward(const Real* g, const Real* y, Real* gx, Size n, Size stride,
                              Size columns) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec sum = sum_down(n, [&](Vec part, Size r) TG_LAMBDA {
            const Size at = r * stride + c;
            return fma(load_up_to(g + at, left, 0), load_up_to(y + at, left, 0), part);
        });
        for (Size r = 0; r < n; ++r) {
            const Size at = r * stride + c;
            const Vec gi = load_up_to(g + at, left, 0), yi = load_up_to(y + at, left, 0);
            store_up_to(yi * (gi - sum), gx + at, left);
        }
    });
}

void log_softmax_columns_backward(const Real* g, const Real* y, Real* gx, Size n, Size stride,
                                  Size columns) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec sum = sum_down(n, [&](Vec part, Size r) TG_LAMBDA {
            return part + load_up_to(g + r * stride + c, left, 0);
        });
        for (Size r = 0; r < n; ++r) {
            const Size at = r * stride + c;
            const Vec gi = load_up_to(g + at, left, 0), yi = load_up_to(y + at, left, 0);
            store_up_to(gi - exp_shifted(yi) * sum, gx + at, left);
        }
    });
}

void logsumexp_columns(const Real* x, Real* y, Size n, Size stride, Size columns) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec top = largest_down(x + c, n, stride, left);
        const auto finite = abs(top) <= Vec(Format<Real>::largest);
        const Vec shift = select(finite, top, Vec(0));
        const Vec sum = sum_down(n, [&](Vec part, Size r) TG_LAMBDA {
            return part + exp_shifted(load_up_to(x + r * stride + c, left, 0) - shift);
        });
        store_up_to(select(finite, shift + log(sum), top), y + c, left);
    });
}

}  // namespace

extern const SoftmaxKernels<Real> TG_TABLE(softmax_);
const SoftmaxKernels<Real> TG_TABLE(softmax_) = {
    {softmax_rows, log_softmax_rows},
    {softmax_rows_backward, log_softmax_rows_backward},
    {softmax_columns, log_softmax_columns},
    {softmax_columns_backward, log_softmax_columns_backward},
    logsumexp,
    logsumexp_columns};

}  // namespace TG_ISA
}  // namespace tapegrad
