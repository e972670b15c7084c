// core/tensor/copy.cpp -- elements from one array to another, with casts and any strides.
//
// Dimensions are ordered by the destination's strides and joined where both arrays allow it. What
// is left is a loop over one dimension within loops over the others. A source that is contiguous
// along another dimension than the destination (a transposed one) is copied in tiles, so that each
// cache line is used whole.
#include "copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "items.h"
#include "threads.h"

namespace tapegrad {
namespace {

struct Dim {
    Size size, to, from;  ///< strides in bytes
};

struct Dims {
    int count = 0;
    Dim dims[max_dims + 1];

    void add(Dim dim) {
        if (dim.size == 1) return;
        if (count) {
            Dim& last = dims[count - 1];
            if (last.to == dim.size * dim.to && last.from == dim.size * dim.from) {
                last = {last.size * dim.size, dim.to, dim.from};
                return;
            }
        }
        dims[count++] = dim;
    }
};

Dims ordered_dims(const View& dst, const View& src) {
    Dim all[max_dims];
    for (int d = 0; d < dst.ndim; ++d) all[d] = {dst.shape[d], dst.strides[d], src.strides[d]};
    std::stable_sort(all, all + dst.ndim,
                     [](const Dim& a, const Dim& b) { return std::abs(a.to) > std::abs(b.to); });
    Dims out;
    for (int d = 0; d < dst.ndim; ++d) out.add(all[d]);
    if (!out.count) out.dims[out.count++] = {1, 0, 0};
    return out;
}

/// Puts a dimension in which the source is contiguous next to the innermost one.
bool bring_source_near(Dims& loop, Size from_itemsize) {
    if (loop.count < 2 || std::abs(loop.dims[loop.count - 1].from) <= from_itemsize) return false;
    for (int d = loop.count - 2; d >= 0; --d)
        if (std::abs(loop.dims[d].from) == from_itemsize) {
            std::rotate(loop.dims + d, loop.dims + d + 1, loop.dims + loop.count - 1);
            return true;
        }
    return false;
}

template <class D, class S>
void run(char* to, const char* from, const Dim& dim) {
    if constexpr (std::is_same_v<D, S>)
        if (dim.to == Size(sizeof(D)) && dim.from == Size(sizeof(S))) {
            std::memcpy(to, from, static_cast<std::size_t>(dim.size) * sizeof(D));
            return;
        }
    if (dim.to == Size(sizeof(D)) && dim.from == Size(sizeof(S))) {
        D* out = reinterpret_cast<D*>(to);
        const S* in = reinterpret_cast<const S*>(from);
        for (Size i = 0; i < dim.size; ++i) out[i] = static_cast<D>(in[i]);
        return;
    }
    if (dim.from == 0) {
        const D value = static_cast<D>(*reinterpret_cast<const S*>(from));
        if (dim.to == Size(sizeof(D))) {
            std::fill_n(reinterpret_cast<D*>(to), dim.size, value);
            return;
        }
        for (Size i = 0; i < dim.size; ++i) *reinterpret_cast<D*>(to + i * dim.to) = value;
        return;
    }
    for (Size i = 0; i < dim.size; ++i)
        *reinterpret_cast<D*>(to + i * dim.to) =
            static_cast<D>(*reinterpret_cast<const S*>(from + i * dim.from));
}

/// A tile of up to tile_side by tile_side elements, read along `outer` and written along `inner`.
constexpr Size tile_side = 16;

template <class D, class S>
void run_tile(char* to, const char* from, const Dim& outer, const Dim& inner) {
    D tile[tile_side][tile_side];
    for (Size j = 0; j < inner.size; ++j)
        for (Size i = 0; i < outer.size; ++i)
            tile[i][j] =
                static_cast<D>(*reinterpret_cast<const S*>(from + i * outer.from + j * inner.from));
    for (Size i = 0; i < outer.size; ++i)
        for (Size j = 0; j < inner.size; ++j)
            *reinterpret_cast<D*>(to + i * outer.to + j * inner.to) = tile[i][j];
}

/// Calls body(i, j, height, width) for squares that cover two dimensions.
template <class Body>
void over_squares(Size outer, Size inner, Size side, Body body) {
    for (Size i = 0; i < outer; i += side)
        for (Size j = 0; j < inner; j += side)
            body(i, j, std::min(side, outer - i), std::min(side, inner - j));
}

/// Two dimensions of which `outer` is contiguous in the source: tiles within squares, each of which
/// touches few pages.
template <class D, class S>
void run_tiles(char* to, const char* from, const Dim& outer, const Dim& inner) {
    constexpr Size square = 4 * tile_side;
    over_squares(outer.size, inner.size, square, [&](Size i0, Size j0, Size h, Size w) {
        over_squares(h, w, tile_side, [&](Size i, Size j, Size height, Size width) {
            run_tile<D, S>(to + (i0 + i) * outer.to + (j0 + j) * inner.to,
                           from + (i0 + i) * outer.from + (j0 + j) * inner.from,
                           {height, outer.to, outer.from}, {width, inner.to, inner.from});
        });
    });
}

template <class D, class S>
void walk(char* to, const char* from, const Dim* dims, int count, bool tiles) {
    if (count == 1) return run<D, S>(to, from, dims[0]);
    if (count == 2 && tiles) return run_tiles<D, S>(to, from, dims[0], dims[1]);
    for (Size i = 0; i < dims[0].size; ++i)
        walk<D, S>(to + i * dims[0].to, from + i * dims[0].from, dims + 1, count - 1, tiles);
}

template <class D, class S>
void copy_as(const View& dst, const View& src) {
    const Size total = dst.size();
    if (!total) return;
    Dims loop = ordered_dims(dst, src);
    const bool tiles = bring_source_near(loop, sizeof(S));
    in_parallel(loop.dims[0].size, total, [&](Size low, Size high) {
        Dims part = loop;
        part.dims[0].size = high - low;
        walk<D, S>(dst.data + low * loop.dims[0].to, src.data + low * loop.dims[0].from, part.dims,
                   part.count, tiles);
    });
}

}  // namespace

void copy(const View& dst, const View& src) {
    with_type(dst.type, [&](auto d) {
        with_type(src.type, [&](auto s) { copy_as<decltype(d), decltype(s)>(dst, src); });
    });
}

void copy_items(const View& dst, const View& src) {
    with_item(dst.itemsize, [&](auto item) { copy_as<decltype(item), decltype(item)>(dst, src); });
}

}  // namespace tapegrad
