// core/scalar/tiles.cpp -- transposes tiles; compiled once per instruction set and number type.
//
// The rows that come next are asked for while a tile is turned: a row is too short for the
// processor to see by itself that it is read or written to its end (12 % of a batch with 1,000
// inputs and outputs).
#include "tiles.h"

#include "lanes.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

using Real = TG_REAL;
constexpr int native = native_lanes<Real>;
using L = Lanes<Real, native>;

/// Exchanges the blocks of `half` lanes off the diagonal of every two blocks.
template <int half, int... I>
TG_INLINE void exchange(L& a, L& b, Indices<I...>) {
    using Index = Register<typename Format<Real>::Int, native>;
    const L::V first = a.v, second = b.v;
    a.v = __builtin_shuffle(first, second, Index{(I & half ? native + I - half : I)...});
    b.v = __builtin_shuffle(first, second, Index{(I & half ? native + I : I + half)...});
}

template <int half = 1>
TG_INLINE void transpose(L (&tile)[native]) {
    for (int i = 0; i < native; ++i)
        if (!(i & half)) exchange<half>(tile[i], tile[i + half], UpTo<native>());
    if constexpr (2 * half < native) transpose<2 * half>(tile);
}

void to_slots(const Tiled& given, const Real* matrix, Real* slots) {
    const Tiled tiled = given;  // what is written could be a part of the one given
    L tile[native];
    for (std::size_t at = 0; at < tiled.columns; at += native) {
        for (int k = 0; k < native; ++k) tile[k] = L::load(matrix + at + k * tiled.stride);
        for (int k = 0; k < native; ++k)
            __builtin_prefetch(matrix + at + (native + k) * tiled.stride, 0, 2);
        transpose(tile);
        for (int k = 0; k < native; ++k)
            tile[k].store(slots + tiled.slots[at + std::size_t(k)] * tiled.slot_lanes);
    }
}

/// Rows of the columns from `at` on.
TG_INLINE void load_columns(const Tiled& tiled, const Real* slots, std::size_t at,
                            L (&tile)[native]) {
    for (int k = 0; k < native; ++k)
        tile[k] = L::load(slots + tiled.slots[at + std::size_t(k)] * tiled.slot_lanes);
    transpose(tile);
}

void to_matrix(const Tiled& given, const Real* slots, Real* matrix) {
    const Tiled tiled = given;
    L tile[native];
    for (std::size_t at = 0; at < tiled.columns; at += native) {
        load_columns(tiled, slots, at, tile);
        for (int k = 0; k < native; ++k)
            __builtin_prefetch(matrix + at + (native + k) * tiled.stride, 1, 2);
        for (int k = 0; k < native; ++k) tile[k].store(matrix + at + k * tiled.stride);
    }
}

}  // namespace

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
extern const Tiles<Real> TG_EXPAND(tiles_, TG_REAL);
constinit const Tiles<Real> TG_EXPAND(tiles_, TG_REAL) = {native, to_slots, to_matrix};

}  // namespace TG_ISA
}  // namespace tapegrad
