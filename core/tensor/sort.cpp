// core/tensor/sort.cpp -- where the smallest or largest elements along a dimension are, in order.
#include "sort.h"

#include <algorithm>
#include <vector>

#include "threads.h"

namespace tapegrad {
namespace {

template <class T>
struct Placed {
    T value;
    std::int64_t place;
};

/// NaN is larger than all numbers, and equal to itself.
template <class T>
bool below(T a, T b) {
    return a < b || (b != b && a == a);
}

template <class T>
void order_row(Placed<T>* row, Size n, bool descending, Size count) {
    const auto before = [descending](const Placed<T>& a, const Placed<T>& b) {
        if (below(a.value, b.value)) return !descending;
        if (below(b.value, a.value)) return descending;
        return a.place < b.place;
    };
    if (count < n / 4)  // a heap of so few takes less time than to sort all
        std::partial_sort(row, row + count, row + n, before);
    else
        std::sort(row, row + n, before);
}

template <class T>
void order_elements(const T* x, const Slab& slab, bool descending, Size count,
                    std::int64_t* places) {
    const Size rows = slab.outer * slab.inner, n = slab.n;
    const int parts = parts_of(rows, 8 * slab.size());  // an element takes some 10 comparisons
    std::vector<Placed<T>> room(static_cast<std::size_t>(n * parts));
    in_parts(rows, parts, [&](int part, Size low, Size high) {
        Placed<T>* own = room.data() + n * part;
        for (Size row = low; row < high; ++row) {
            const Size outer = row / slab.inner, inner = row % slab.inner;
            const T* from = x + outer * n * slab.inner + inner;
            for (Size i = 0; i < n; ++i) own[i] = {from[i * slab.inner], i};
            order_row(own, n, descending, count);
            std::int64_t* to = places + outer * count * slab.inner + inner;
            for (Size i = 0; i < count; ++i) to[i * slab.inner] = own[i].place;
        }
    });
}

}  // namespace

void order(const View& x, const Slab& slab, bool descending, Size count, std::int64_t* places) {
    if (slab.size() == 0 || count == 0) return;
    with_type(x.type, [&](auto type) {
        order_elements(x.as<decltype(type)>(), slab, descending, count, places);
    });
}

}  // namespace tapegrad
