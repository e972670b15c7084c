// core/tensor/reduce_kernels.cpp -- sums, products and extremes of rows and of columns.
//
// Compiled once per instruction set and number type. Lengths are halved down to leaves that are
// taken in lanes, so errors grow with the logarithm of the length and the order is fixed.
#include "kernels.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

struct Sum {
    static constexpr Real identity = 0;
    template <class L>
    TG_INLINE L combine(L a, L b) {
        return a + b;
    }
};

struct Prod {
    static constexpr Real identity = 1;
    template <class L>
    TG_INLINE L combine(L a, L b) {
        return a * b;
    }
};

struct Max {
    static constexpr Real identity = -Format<Real>::infinity;
    template <class L>
    TG_INLINE L combine(L a, L b) {
        return maximum(a, b);
    }
};

struct Min {
    static constexpr Real identity = Format<Real>::infinity;
    template <class L>
    TG_INLINE L combine(L a, L b) {
        return minimum(a, b);
    }
};

constexpr Size row_leaf = 32 * 4 * native;
constexpr Size column_leaf = 32;

template <class Op>
TG_INLINE Real leaf_of_row(const Real* x, Size n) {
    Vec a = Op::identity, b = a, c = a, d = a;
    Size i = 0;
    for (; i + 4 * native <= n; i += 4 * native) {
        a = Op::combine(a, Vec::load(x + i));
        b = Op::combine(b, Vec::load(x + i + native));
        c = Op::combine(c, Vec::load(x + i + 2 * native));
        d = Op::combine(d, Vec::load(x + i + 3 * native));
    }
    for (; i + native <= n; i += native) a = Op::combine(a, Vec::load(x + i));
    if (i < n) b = Op::combine(b, load_first(x + i, n - i, Op::identity));
    return across(Op::combine(Op::combine(a, b), Op::combine(c, d)),
                  [](Vec p, Vec q) TG_LAMBDA { return Op::combine(p, q); });
}

template <class Op>
Real row(const Real* x, Size n) {
    if (n <= row_leaf) return leaf_of_row<Op>(x, n);
    const Size half = (n / 2 + row_leaf - 1) / row_leaf * row_leaf;
    using One = Lanes<Real, 1>;
    const One first = row<Op>(x, half);  // memory is read in order
    return Op::combine(first, One(row<Op>(x + half, n - half)))[0];
}

/// W vectors side by side.
template <int W>
struct Strip {
    Vec v[W];
};

template <class Op, int W>
Strip<W> strip(const Real* x, Size stride, Size rows) {
    Strip<W> out;
    if (rows <= column_leaf) {
        for (int w = 0; w < W; ++w) out.v[w] = Op::identity;
        for (Size r = 0; r < rows; ++r, x += stride)
            for (int w = 0; w < W; ++w) out.v[w] = Op::combine(out.v[w], Vec::load(x + w * native));
        return out;
    }
    const Size half = rows / 2;
    out = strip<Op, W>(x, stride, half);
    const Strip<W> other = strip<Op, W>(x + half * stride, stride, rows - half);
    for (int w = 0; w < W; ++w) out.v[w] = Op::combine(out.v[w], other.v[w]);
    return out;
}

/// Fewer columns than lanes.
template <class Op>
Vec narrow(const Real* x, Size stride, Size rows, Size columns) {
    if (rows > column_leaf) {
        const Size half = rows / 2;
        const Vec first = narrow<Op>(x, stride, half, columns);
        return Op::combine(first, narrow<Op>(x + half * stride, stride, rows - half, columns));
    }
    Vec out = Op::identity;
    for (Size r = 0; r < rows; ++r, x += stride)
        out = Op::combine(out, load_first(x, columns, Op::identity));
    return out;
}

template <class Op>
void columns(const Real* x, Size stride, Size rows, Size count, Real* out) {
    constexpr int wide = 8;
    Size i = 0;
    for (; i + wide * native <= count; i += wide * native) {
        const Strip<wide> s = strip<Op, wide>(x + i, stride, rows);
        for (int w = 0; w < wide; ++w) s.v[w].store(out + i + w * native);
    }
    for (; i + native <= count; i += native) strip<Op, 1>(x + i, stride, rows).v[0].store(out + i);
    if (i < count) store_first(narrow<Op>(x + i, stride, rows, count - i), out + i, count - i);
}

Size find(const Real* x, Size n, Real value) {
    Size i = 0;
    if (value != value) {
        for (; i + native <= n; i += native) {
            const Vec v = Vec::load(x + i);
            if (any(v != v)) break;
        }
        while (i < n && x[i] == x[i]) ++i;
    } else {
        for (; i + native <= n; i += native)
            if (any(Vec::load(x + i) == Vec(value))) break;
        while (i < n && x[i] != value) ++i;
    }
    return i;
}

}  // namespace

extern const ReduceKernels<Real> TG_TABLE(reduce_);
const ReduceKernels<Real> TG_TABLE(reduce_) = {
    {row<Sum>, row<Prod>, row<Max>, row<Min>},
    {columns<Sum>, columns<Prod>, columns<Max>, columns<Min>},
    find};

}  // namespace TG_ISA
}  // namespace tapegrad
