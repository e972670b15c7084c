// core/tensor/index.cpp -- elements and rows by index: gather, scatter, select and their adjoints.
#include "index.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "items.h"
#include "threads.h"

namespace tapegrad {
namespace {

bool outside(std::int64_t index, Size size) {
    return static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(size);
}

/// The smallest position that any thread reports.
class FirstBad {
   public:
    void report(Size position) {
        Size known = position_.load();
        while ((known == no_position || position < known) &&
               !position_.compare_exchange_weak(known, position)) {
        }
    }
    Size position() const { return position_.load(); }

   private:
    std::atomic<Size> position_{no_position};
};

/// For each row (all but the last dimension) of the shape of `index`, the offset of its start in
/// an array with these strides, `dim` left out.
Size row_offset(const View& index, Size row, const Size* strides, int dim) {
    Size offset = 0;
    for (int d = index.ndim - 2; d >= 0; --d) {
        if (d != dim) offset += row % index.shape[d] * strides[d];
        row /= index.shape[d];
    }
    return offset;
}

/// n elements of a contiguous row; returns how many indices are in range before the first that is
/// not.
template <class T>
Size gather_row(const T* from, Size size, const std::int64_t* at, Size n, T* to) {
    for (Size i = 0; i < n; ++i) {
        const std::int64_t k = at[i];
        if (outside(k, size)) return i;
        to[i] = from[k];
    }
    return n;
}

/// The same with any strides: element i lies i steps on.
template <class T>
Size gather_across(const char* from, Size step, Size stride, Size size, const std::int64_t* at,
                   Size n, T* to) {
    for (Size i = 0; i < n; ++i) {
        const std::int64_t k = at[i];
        if (outside(k, size)) return i;
        to[i] = *reinterpret_cast<const T*>(from + i * step + k * stride);
    }
    return n;
}

template <class T>
Size gather_items(const View& x, int dim, const View& index, const View& out) {
    const Size n = index.shape[index.ndim - 1], rows = index.size() / n;
    const Size step = dim == index.ndim - 1 ? 0 : x.strides[index.ndim - 1];
    const Size size = x.shape[dim], stride = x.strides[dim];
    const bool in_row = step == 0 && stride == Size(sizeof(T));
    FirstBad bad;
    in_parallel(rows, rows * n, [&](Size low, Size high) {
        for (Size row = low; row < high; ++row) {
            const char* from = x.data + row_offset(index, row, x.strides, dim);
            const std::int64_t* at = index.as<std::int64_t>() + row * n;
            T* to = out.as<T>() + row * n;
            const Size done = in_row ? gather_row(reinterpret_cast<const T*>(from), size, at, n, to)
                                     : gather_across(from, step, stride, size, at, n, to);
            if (done < n) return bad.report(row * n + done);
        }
    });
    return bad.position();
}

/// A row of bytes; single numbers are copied without a call.
void copy_row(char* to, const char* from, Size bytes) {
    if (bytes == 4)
        std::memcpy(to, from, 4);
    else if (bytes == 8)
        std::memcpy(to, from, 8);
    else
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

template <class T>
T added(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
        return a | b;
    else if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                              static_cast<std::make_unsigned_t<T>>(b));
    else
        return a + b;
}

/// Rows [low, high) of the index.
template <class T>
Size scatter_range(const View& out, int dim, const View& index, const View& src, Size low,
                   Size high) {
    const int last = index.ndim - 1;
    const Size n = index.shape[last];
    const Size step = dim == last ? 0 : out.strides[last];
    for (Size row = low; row < high; ++row) {
        char* to = out.data + row_offset(index, row, out.strides, dim);
        // in src, dim is a dimension as any other
        const T* from =
            reinterpret_cast<const T*>(src.data + row_offset(index, row, src.strides, no_position));
        const std::int64_t* at = index.as<std::int64_t>() + row * n;
        for (Size i = 0; i < n; ++i) {
            const std::int64_t k = at[i];
            if (outside(k, out.shape[dim])) return row * n + i;
            T& target = *reinterpret_cast<T*>(to + i * step + k * out.strides[dim]);
            target = added(target, from[i]);
        }
    }
    return no_position;
}

}  // namespace

Size gather(const View& x, int dim, const View& index, const View& out) {
    if (!index.size()) return no_position;
    return with_item(x.itemsize,
                     [&](auto item) { return gather_items<decltype(item)>(x, dim, index, out); });
}

Size scatter_add(const View& out, int dim, const View& index, const View& src) {
    if (!index.size()) return no_position;
    const Size rows = index.size() / index.shape[index.ndim - 1];
    const Size first = index.ndim > 1 ? index.shape[0] : 1;
    FirstBad bad;
    with_type(out.type, [&](auto element) {
        using T = decltype(element);
        // Entries of different first dimensions do not meet, unless it is the one of the indices.
        in_parallel(dim == 0 ? 1 : first, index.size(), [&](Size low, Size high) {
            if (dim == 0) low = 0, high = first;
            const Size at =
                scatter_range<T>(out, dim, index, src, low * (rows / first), high * (rows / first));
            if (at != no_position) bad.report(at);
        });
    });
    return bad.position();
}

Size select_rows(const char* x, const Slab& s, const std::int64_t* index, Size count, char* out) {
    if (!count) return no_position;
    FirstBad bad;
    in_parallel(s.outer * count, s.outer * count * std::max<Size>(s.inner / 4, 1),
                [&](Size low, Size high) {
                    Size o = low / count, i = low % count;
                    for (Size row = low; row < high; ++row) {
                        const std::int64_t k = index[i];
                        if (outside(k, s.n)) return bad.report(i);
                        copy_row(out + row * s.inner, x + (o * s.n + k) * s.inner, s.inner);
                        if (++i == count) i = 0, ++o;
                    }
                });
    return bad.position();
}

Size add_rows(const View& out, const Slab& s, const std::int64_t* index, Size count,
              const View& src, Size skipped) {
    FirstBad bad;
    with_type(out.type, [&](auto element) {
        using T = decltype(element);
        // Each thread has rows of the result and looks at all indices: no two threads meet, and
        // sums are taken in the order of the indices whatever the number of threads.
        in_parallel(s.n, s.outer * count * s.inner, [&](Size low, Size high) {
            for (Size o = 0; o < s.outer; ++o)
                for (Size i = 0; i < count; ++i) {
                    const std::int64_t k = index[i];
                    if (outside(k, s.n)) return bad.report(i);
                    if (k < low || k >= high || k == skipped) continue;
                    T* to = out.as<T>() + (o * s.n + k) * s.inner;
                    const T* from = src.as<T>() + (o * count + i) * s.inner;
                    for (Size c = 0; c < s.inner; ++c) to[c] = added(to[c], from[c]);
                }
        });
    });
    return bad.position();
}

}  // namespace tapegrad
