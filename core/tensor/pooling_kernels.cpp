// core/tensor/pooling_kernels.cpp -- pooling windows over one plane.
//
// Compiled once per instruction set and number type. Each place of the window adds its part to a
// whole row of outputs; these loops the compiler turns into vectors, also for strides of two.
#include "kernels.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// As wide as the numbers, so that positions and numbers share loops.
using Position = Format<Real>::Int;

/// The outputs [low, high) that see an input at place k of the window, and where the first of them
/// does.
struct Reach {
    Size low, high, first;
};

TG_INLINE Reach reach(const WindowAxis& a, Size k) {
    const Size shift = k * a.dilation - a.padding;
    const Size low = shift >= 0 ? 0 : (-shift + a.stride - 1) / a.stride;
    const Size last = a.in - 1 - shift;
    const Size high = last < 0 ? 0 : smaller_of(last / a.stride + 1, a.out);
    return {low, larger_of(low, high), low * a.stride + shift};
}

/// Calls body(place), where place(i) is i times the stride; strides 1 and 2 have loops of their
/// own.
template <class Body>
TG_INLINE void with_stride(Size stride, Body body) {
    if (stride == 1)
        body([](Size i) TG_LAMBDA { return i; });
    else if (stride == 2)
        body([](Size i) TG_LAMBDA { return 2 * i; });
    else
        body([stride](Size i) TG_LAMBDA { return stride * i; });
}

/// The first input that an output sees.
TG_INLINE Size first_seen(const WindowAxis& a, Size o) {
    Size at = o * a.stride - a.padding;
    if (at < 0) at += (-at + a.dilation - 1) / a.dilation * a.dilation;
    return smaller_of(at, a.in - 1);
}

void max(const Real* x, Real* y, int64_t* positions, const WindowAxis& h, const WindowAxis& w,
         void* scratch) {
    Position* best = static_cast<Position*>(scratch);
    for (Size oh = 0; oh < h.out; ++oh, y += w.out, positions += w.out) {
        for (Size o = 0; o < w.out; ++o) {
            y[o] = -Format<Real>::infinity;
            best[o] = Position(first_seen(h, oh) * w.in + first_seen(w, o));
        }
        for (Size kh = 0; kh < h.kernel; ++kh) {
            const Size row = oh * h.stride - h.padding + kh * h.dilation;
            if (row < 0 || row >= h.in) continue;
            for (Size kw = 0; kw < w.kernel; ++kw) {
                const Reach r = reach(w, kw);
                const Real* from = x + row * w.in + r.first;
                const Position start = Position(row * w.in + r.first);
                Real* to = y + r.low;
                Position* at = best + r.low;
                with_stride(w.stride, [&](auto place) TG_LAMBDA {
                    const Size n = r.high - r.low;
                    for (Size i = 0; i < n; ++i) {
                        const Real value = from[place(i)], old = to[i];
                        const bool wins = (value > old) | (value != value);
                        to[i] = wins ? value : old;
                        at[i] = wins ? Position(start + Position(place(i))) : at[i];
                    }
                });
            }
        }
        for (Size o = 0; o < w.out; ++o) positions[o] = best[o];
    }
}

/// How many places of the window count for an output.
TG_INLINE Size counted(const WindowAxis& a, Size o, bool count_padding) {
    const Size start = o * a.stride - a.padding;
    const Size end = smaller_of(start + a.kernel, a.in + a.padding);
    if (count_padding) return end - start;
    return smaller_of(end, a.in) - larger_of(start, 0);
}

/// What an output of a row is divided by.
TG_INLINE Real divisor_of(const Divisor& divisor, Size rows, const WindowAxis& w, Size o) {
    return Real(divisor.fixed ? divisor.fixed : rows * counted(w, o, divisor.count_padding));
}

void average(const Real* x, Real* y, const WindowAxis& h, const WindowAxis& w,
             const Divisor& divisor) {
    for (Size oh = 0; oh < h.out; ++oh, y += w.out) {
        for (Size o = 0; o < w.out; ++o) y[o] = 0;
        for (Size kh = 0; kh < h.kernel; ++kh) {
            const Size row = oh * h.stride - h.padding + kh;
            if (row < 0 || row >= h.in) continue;
            for (Size kw = 0; kw < w.kernel; ++kw) {
                const Reach r = reach(w, kw);
                const Real* from = x + row * w.in + r.first;
                Real* to = y + r.low;
                with_stride(w.stride, [&](auto place) TG_LAMBDA {
                    const Size n = r.high - r.low;
                    for (Size i = 0; i < n; ++i) to[i] += from[place(i)];
                });
            }
        }
        const Size rows = counted(h, oh, divisor.count_padding);
        for (Size o = 0; o < w.out; ++o) y[o] /= divisor_of(divisor, rows, w, o);
    }
}

void average_backward(const Real* g, Real* gx, const WindowAxis& h, const WindowAxis& w,
                      const Divisor& divisor, Real* scratch) {
    for (Size i = 0; i < h.in * w.in; ++i) gx[i] = 0;
    for (Size oh = 0; oh < h.out; ++oh, g += w.out) {
        const Size rows = counted(h, oh, divisor.count_padding);
        for (Size o = 0; o < w.out; ++o) scratch[o] = g[o] / divisor_of(divisor, rows, w, o);
        for (Size kh = 0; kh < h.kernel; ++kh) {
            const Size row = oh * h.stride - h.padding + kh;
            if (row < 0 || row >= h.in) continue;
            for (Size kw = 0; kw < w.kernel; ++kw) {
                const Reach r = reach(w, kw);
                Real* to = gx + row * w.in + r.first;
                const Real* from = scratch + r.low;
                with_stride(w.stride, [&](auto place) TG_LAMBDA {
                    const Size n = r.high - r.low;
                    for (Size i = 0; i < n; ++i) to[place(i)] += from[i];
                });
            }
        }
    }
}

/// The inputs [low, high) of output o of `out`.
TG_INLINE Size adaptive_low(Size o, Size in, Size out) { return o * in / out; }
TG_INLINE Size adaptive_high(Size o, Size in, Size out) { return ((o + 1) * in + out - 1) / out; }

void adaptive(const Real* x, Real* y, Size h, Size w, Size out_h, Size out_w, Real* scratch) {
    for (Size oh = 0; oh < out_h; ++oh) {
        const Size top = adaptive_low(oh, h, out_h), bottom = adaptive_high(oh, h, out_h);
        for (Size i = 0; i < w; ++i) scratch[i] = 0;
        for (Size row = top; row < bottom; ++row)
            for (Size i = 0; i < w; ++i) scratch[i] += x[row * w + i];
        for (Size ow = 0; ow < out_w; ++ow) {
            const Size low = adaptive_low(ow, w, out_w), high = adaptive_high(ow, w, out_w);
            Real sum = 0;
            for (Size i = low; i < high; ++i) sum += scratch[i];
            y[oh * out_w + ow] = sum / Real((bottom - top) * (high - low));
        }
    }
}

void adaptive_backward(const Real* g, Real* gx, Size h, Size w, Size out_h, Size out_w,
                       Real* scratch) {
    for (Size i = 0; i < h * w; ++i) gx[i] = 0;
    for (Size oh = 0; oh < out_h; ++oh) {
        const Size top = adaptive_low(oh, h, out_h), bottom = adaptive_high(oh, h, out_h);
        for (Size i = 0; i < w; ++i) scratch[i] = 0;
        for (Size ow = 0; ow < out_w; ++ow) {
            const Size low = adaptive_low(ow, w, out_w), high = adaptive_high(ow, w, out_w);
            const Real share = g[oh * out_w + ow] / Real((bottom - top) * (high - low));
            for (Size i = low; i < high; ++i) scratch[i] += share;
        }
        for (Size row = top; row < bottom; ++row)
            for (Size i = 0; i < w; ++i) gx[row * w + i] += scratch[i];
    }
}

}  // namespace

extern const PoolKernels<Real> TG_TABLE(pool_);
const PoolKernels<Real> TG_TABLE(pool_) = {max, average, average_backward, adaptive,
                                           adaptive_backward};

}  // namespace TG_ISA
}  // namespace tapegrad
