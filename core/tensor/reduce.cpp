// core/tensor/reduce.cpp -- sums, products, extremes and their like over dimensions of an array.
//
// Neighbouring dimensions of one kind are joined; then one reduced dimension after the other goes,
// the last first, each as [outer, n, inner] with any strides. Long reductions with few results are
// cut into pieces whose results are reduced once more; the pieces depend on sizes alone, so the
// bits do not depend on the number of threads.
#include "reduce.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "copy.h"
#include "pool.h"
#include "threads.h"

namespace tapegrad {
namespace {

// ---- operations on single elements -------------------------------------------------------------

struct Add {
    static constexpr Reduction kernel = reduce_sum;
    template <class A>
    static A identity() {
        return A(0);
    }
    template <class A>
    static A combine(A a, A b) {
        if constexpr (std::is_integral_v<A>)  // wraps around, as in NumPy
            return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) +
                                  static_cast<std::make_unsigned_t<A>>(b));
        else
            return a + b;
    }
};

struct Multiply {
    static constexpr Reduction kernel = reduce_prod;
    template <class A>
    static A identity() {
        return A(1);
    }
    template <class A>
    static A combine(A a, A b) {
        if constexpr (std::is_integral_v<A>)
            return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) *
                                  static_cast<std::make_unsigned_t<A>>(b));
        else
            return a * b;
    }
};

struct Largest {
    static constexpr Reduction kernel = reduce_max;
    template <class A>
    static A identity() {
        return std::numeric_limits<A>::lowest();
    }
    template <class A>
    static A combine(A a, A b) {
        return a > b ? a : b;
    }
};

struct Smallest {
    static constexpr Reduction kernel = reduce_min;
    template <class A>
    static A identity() {
        return std::numeric_limits<A>::max();
    }
    template <class A>
    static A combine(A a, A b) {
        return a < b ? a : b;
    }
};

struct Any {
    template <class A>
    static bool identity() {
        return false;
    }
    static bool combine(bool a, bool b) { return a | b; }
};

struct All {
    template <class A>
    static bool identity() {
        return true;
    }
    static bool combine(bool a, bool b) { return a & b; }
};

template <class T>
constexpr bool is_real = std::is_floating_point_v<T>;

// ---- leaves: rows and columns of contiguous elements -------------------------------------------

template <class Op, class In, class Acc>
Acc reduce_row(const In* x, Size n) {
    if constexpr (is_real<In> && is_real<Acc>) {
        return tensor_kernels<In>().reduce->row[Op::kernel](x, n);
    } else {
        Acc acc = Op::template identity<Acc>();
        for (Size i = 0; i < n; ++i) acc = Op::combine(acc, static_cast<Acc>(x[i]));
        return acc;
    }
}

template <class Op, class In, class Acc>
void reduce_columns(const In* x, Size stride, Size rows, Size columns, Acc* out) {
    if constexpr (is_real<In> && is_real<Acc>) {
        tensor_kernels<In>().reduce->columns[Op::kernel](x, stride, rows, columns, out);
    } else {
        std::fill_n(out, columns, Op::template identity<Acc>());
        for (Size r = 0; r < rows; ++r, x += stride)
            for (Size c = 0; c < columns; ++c) out[c] = Op::combine(out[c], static_cast<Acc>(x[c]));
    }
}

// ---- one dimension -----------------------------------------------------------------------------

/// [outer, n, inner] with strides in elements; n is reduced.
struct Axis {
    Size outer, n, inner;
    Size outer_stride, stride, inner_stride;
    Size size() const { return outer * n * inner; }
};

constexpr Size piece_elements = 64 * 1024;

/// Pieces that a reduction with few results is cut into.
Size pieces_of(const Axis& a) {
    const Size results = a.outer * a.inner;
    if (results >= 4096 || a.size() < 2 * piece_elements || (results >= 16 && a.inner == 1))
        return 1;
    return std::max<Size>(1, std::min(a.size() / piece_elements, a.n));
}

/// Rows: the reduced dimension is contiguous.
template <class Op, class In, class Acc>
void along_rows(const In* x, const Axis& a, Acc* out) {
    in_parallel(a.outer * a.inner, a.size(), [&](Size low, Size high) {
        for (Size i = low; i < high; ++i)
            out[i] = reduce_row<Op, In, Acc>(
                x + i / a.inner * a.outer_stride + i % a.inner * a.inner_stride, a.n);
    });
}

/// Columns: the dimension behind the reduced one is contiguous.
template <class Op, class In, class Acc>
void down_columns(const In* x, const Axis& a, Acc* out) {
    const bool split = a.outer == 1;  // one matrix: each thread has columns of it
    in_parallel(split ? a.inner : a.outer, a.size(), [&](Size low, Size high) {
        if (split) return reduce_columns<Op>(x + low, a.stride, a.n, high - low, out + low);
        for (Size o = low; o < high; ++o)
            reduce_columns<Op>(x + o * a.outer_stride, a.stride, a.n, a.inner, out + o * a.inner);
    });
}

template <class Op, class In, class Acc>
bool one_axis(const In* x, const Axis& a, Acc* out);

/// In pieces of the reduced dimension, whose results are reduced in turn.
template <class Op, class In, class Acc>
bool in_pieces(const In* x, const Axis& a, Size pieces, Acc* out) {
    const Size results = a.outer * a.inner;
    Scratch<Acc> partial(static_cast<std::size_t>(pieces * results));
    if (!partial.data()) return false;
    in_parallel(pieces, a.size(), [&](Size low, Size high) {
        for (Size p = low; p < high; ++p) {
            const Size first = a.n * p / pieces, last = a.n * (p + 1) / pieces;
            for (Size o = 0; o < a.outer; ++o) {
                const In* from = x + o * a.outer_stride + first * a.stride;
                Acc* to = partial.data() + p * results + o * a.inner;
                if (a.inner == 1)
                    *to = reduce_row<Op, In, Acc>(from, last - first);
                else
                    reduce_columns<Op>(from, a.stride, last - first, a.inner, to);
            }
        }
    });
    return one_axis<Op>(static_cast<const Acc*>(partial.data()),
                        Axis{1, pieces, results, 0, results, 1}, out);
}

/// Whether the axis can be reduced where it lies: along rows, or down columns.
bool in_place(const Axis& a) {
    return a.n <= 1 || a.stride == 1 || (a.inner > 1 && a.inner_stride == 1);
}

template <class Op, class In, class Acc>
bool one_axis(const In* x, const Axis& a, Acc* out) {
    const bool rows = a.inner == 1 || (a.stride == 1 && a.inner_stride != 1);
    if (!rows || a.inner == 1) {
        const Size pieces = pieces_of(a);
        if (pieces > 1) return in_pieces<Op, In, Acc>(x, a, pieces, out);
    }
    if (rows)
        along_rows<Op>(x, a, out);
    else
        down_columns<Op>(x, a, out);
    return true;
}

// ---- any dimensions ----------------------------------------------------------------------------

struct Dim {
    Size size, stride;  ///< in elements
    bool reduced;
};

/// Joins neighbours of one kind that are as good as one dimension.
int join(const View& x, const bool* reduced, Dim* dims) {
    int count = 0;
    for (int d = 0; d < x.ndim; ++d) {
        const Dim dim{x.shape[d], x.strides[d] / x.itemsize, reduced[d]};
        if (dim.size == 1) continue;
        if (count && dims[count - 1].reduced == dim.reduced &&
            dims[count - 1].stride == dim.size * dim.stride)
            dims[count - 1] = {dims[count - 1].size * dim.size, dim.stride, dim.reduced};
        else
            dims[count++] = dim;
    }
    return count;
}

int last_reduced(const Dim* dims, int count) {
    int d = count - 1;
    while (d >= 0 && !dims[d].reduced) --d;
    return d;
}

/// dims[first, last) as one dimension; false if their strides do not allow it.
bool as_one(const Dim* dims, int first, int last, Size& size, Size& stride) {
    size = 1, stride = 0;
    for (int d = last - 1; d >= first; --d) {
        if (size != 1 && dims[d].stride != size * stride) return false;
        if (size == 1) stride = dims[d].stride;
        size *= dims[d].size;
    }
    return true;
}

/// The dimension at `which` as an axis that can be reduced where it lies.
bool axis_at(const Dim* dims, int count, int which, Axis& a) {
    a.n = dims[which].size, a.stride = dims[which].stride;
    if (!as_one(dims, 0, which, a.outer, a.outer_stride) ||
        !as_one(dims, which + 1, count, a.inner, a.inner_stride))
        return false;
    if (a.inner == 1 && a.stride != 1 && a.outer_stride == 1) {
        // the last dimension of a transposed matrix: columns of what it was
        std::swap(a.outer, a.inner);
        std::swap(a.outer_stride, a.inner_stride);
    }
    return in_place(a);
}

void make_contiguous(Dim* dims, int count) {
    Size stride = 1;
    for (int d = count - 1; d >= 0; --d) dims[d].stride = stride, stride *= dims[d].size;
}

template <class Op, class In, class Acc>
bool reduce_dims(const In* x, Dim* dims, int count, Acc* out) {
    const int which = last_reduced(dims, count);
    if (which < 0) {  // nothing to reduce: a copy in the type of the result
        Size total = 1;
        for (int d = 0; d < count; ++d) total *= dims[d].size;
        for (Size i = 0; i < total; ++i) out[i] = static_cast<Acc>(x[i]);
        return true;
    }
    Axis a;
    axis_at(dims, count, which, a);
    const bool last = last_reduced(dims, which) < 0;
    if (last) return one_axis<Op, In, Acc>(x, a, out);
    Scratch<Acc> rest(static_cast<std::size_t>(a.outer * a.inner));
    if (!rest.data() || !one_axis<Op, In, Acc>(x, a, rest.data())) return false;
    std::copy(dims + which + 1, dims + count, dims + which);
    make_contiguous(dims, count - 1);
    return reduce_dims<Op, Acc, Acc>(rest.data(), dims, count - 1, out);
}

/// Whether x needs no copy: the first step reads it where it lies, all others read scratch.
bool readable(const Dim* dims, int count) {
    const int which = last_reduced(dims, count);
    Axis a;
    if (which >= 0) return axis_at(dims, count, which, a);
    Size size, stride;
    return as_one(dims, 0, count, size, stride) && (size == 1 || stride == 1);
}

template <class Op, class In, class Acc>
bool reduce_view(const View& x, const bool* reduced, const View& out) {
    Acc* to = out.as<Acc>();
    if (x.size() == 0) {
        std::fill_n(to, out.size(), Op::template identity<Acc>());
        return true;
    }
    Dim dims[max_dims];
    int count = join(x, reduced, dims);
    if (readable(dims, count)) return reduce_dims<Op, In, Acc>(x.as<In>(), dims, count, to);
    Scratch<In> plain(static_cast<std::size_t>(x.size()));
    if (!plain.data()) return false;
    View contiguous = x;
    contiguous.data = reinterpret_cast<char*>(plain.data());
    Size stride = x.itemsize;
    for (int d = x.ndim - 1; d >= 0; --d) contiguous.strides[d] = stride, stride *= x.shape[d];
    copy(contiguous, x);
    count = join(contiguous, reduced, dims);
    return reduce_dims<Op, In, Acc>(plain.data(), dims, count, to);
}

/// Sums and products of bools and int32 are int64.
template <class T>
using Wide = std::conditional_t<is_real<T>, T, std::int64_t>;

template <class T>
bool mean(const View& x, const bool* reduced, const View& out) {
    if (!reduce_view<Add, T, T>(x, reduced, out)) return false;
    Size n = 1;
    for (int d = 0; d < x.ndim; ++d) n *= reduced[d] ? x.shape[d] : 1;
    T* y = out.as<T>();
    const Size count = out.size();
    for (Size i = 0; i < count; ++i) y[i] /= static_cast<T>(n);
    return true;
}

}  // namespace

ResultType reduced_type(ReduceOp op, DType type) {
    const bool real = type == DType::f32 || type == DType::f64;
    switch (op) {
        case ReduceOp::any:
        case ReduceOp::all:
            return {DType::b8, true};
        case ReduceOp::sum:
        case ReduceOp::prod:
            return {real ? type : DType::i64, true};
        case ReduceOp::mean:
            return {type, real};
        default:
            return {type, true};
    }
}

bool reduce(ReduceOp op, const View& x, const bool* reduced, const View& out) {
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        switch (op) {
            case ReduceOp::sum:
                return reduce_view<Add, T, Wide<T>>(x, reduced, out);
            case ReduceOp::prod:
                return reduce_view<Multiply, T, Wide<T>>(x, reduced, out);
            case ReduceOp::max:
                return reduce_view<Largest, T, T>(x, reduced, out);
            case ReduceOp::min:
                return reduce_view<Smallest, T, T>(x, reduced, out);
            case ReduceOp::any:
                return reduce_view<Any, T, bool>(x, reduced, out);
            case ReduceOp::all:
                return reduce_view<All, T, bool>(x, reduced, out);
            default:
                if constexpr (is_real<T>) return mean<T>(x, reduced, out);
                return false;
        }
    });
}

namespace {

template <class T>
bool beats(bool largest, T a, T best) {
    if constexpr (is_real<T>)
        if (a != a) return best == best;
    return largest ? a > best : a < best;
}

template <class T>
void arg_reduce_row(bool largest, const T* x, Size n, T& value, std::int64_t& index) {
    if constexpr (is_real<T>) {
        const auto& kernels = *tensor_kernels<T>().reduce;
        value = kernels.row[largest ? reduce_max : reduce_min](x, n);
        index = kernels.find(x, n, value);
        value = x[index];  // of two zeros the one that comes first
    } else {
        index = 0;
        for (Size i = 1; i < n; ++i)
            if (beats(largest, x[i], x[index])) index = i;
        value = x[index];
    }
}

template <class T>
void arg_reduce_columns(bool largest, const T* x, const Slab& s, Size low, Size high, T* values,
                        std::int64_t* indices) {
    for (Size i = low; i < high; ++i) values[i] = x[i], indices[i] = 0;
    for (Size r = 1; r < s.n; ++r)
        for (Size i = low; i < high; ++i)
            if (const T a = x[r * s.inner + i]; beats(largest, a, values[i]))
                values[i] = a, indices[i] = r;
}

/// In double for floating point: a sum of its own type would stop where a term is too small for it.
template <class T>
void running_sums(const T* x, const Slab& s, T* out) {
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    constexpr Size most = 256;  // columns whose sums are kept at a time
    in_parallel(s.outer, s.size(), [&](Size low, Size high) {
        std::array<Sum, most> sums;
        for (Size o = low; o < high; ++o)
            for (Size first = 0; first < s.inner; first += most) {
                const Size columns = std::min(most, s.inner - first);
                const T* from = x + o * s.n * s.inner + first;
                T* to = out + o * s.n * s.inner + first;
                std::copy_n(from, columns, sums.data());
                std::copy_n(from, columns, to);
                for (Size r = 1; r < s.n; ++r)
                    for (Size i = 0; i < columns; ++i) {
                        Sum& sum = sums[static_cast<std::size_t>(i)];
                        sum = Add::combine(sum, static_cast<Sum>(from[r * s.inner + i]));
                        to[r * s.inner + i] = static_cast<T>(sum);
                    }
            }
    });
}

}  // namespace

void arg_reduce(bool largest, const View& x, int dim, const View& values, std::int64_t* indices) {
    const Slab s = slab_of(x, dim);
    with_type(x.type, [&](auto element) {
        using T = decltype(element);
        const T* from = x.as<T>();
        T* to = values.as<T>();
        in_parallel(s.outer, s.size(), [&](Size low, Size high) {
            for (Size o = low; o < high; ++o) {
                if (s.inner == 1)
                    arg_reduce_row(largest, from + o * s.n, s.n, to[o], indices[o]);
                else
                    arg_reduce_columns(largest, from + o * s.n * s.inner, s, 0, s.inner,
                                       to + o * s.inner, indices + o * s.inner);
            }
        });
    });
}

void cumsum(const View& x, int dim, const View& out) {
    const Slab s = slab_of(x, dim);
    if (!s.size()) return;
    with_type(x.type, [&](auto element) {
        using T = decltype(element);
        if constexpr (!std::is_same_v<T, bool>) running_sums(x.as<T>(), s, out.as<T>());
    });
}

}  // namespace tapegrad
