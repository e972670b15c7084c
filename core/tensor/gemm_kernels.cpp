// core/tensor/gemm_kernels.cpp -- products of matrices, blocked for caches and registers.
//
// Compiled once per instruction set and number type. A tile of the result, tile_rows rows by
// tile_vectors vectors, lives in registers while k runs. The right matrix is packed into panels as
// wide as a tile, whatever its strides; the left one is read where it lies if few panels use it,
// and packed if many do.
#include "kernels.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// AVX-512 and NEON have 32 registers, the others 16.
constexpr bool many_registers = TG_AVX512 || (has_fma && !TG_AVX2);
constexpr int tile_rows = many_registers ? 8 : 4;
constexpr int tile_vectors = has_fma ? 3 : 2;
constexpr Size tile_columns = tile_vectors * native;

/// Blocks: k and rows of the left matrix for the second-level cache, columns for the third.
constexpr Size block_k = 256;
constexpr Size block_rows = 12 * tile_rows;
constexpr Size block_columns = 32 * tile_columns;
/// So many panels must share a packed left block for the packing to pay.
constexpr Size pack_from_panels = 5;

/// Panels of `width` columns: [panel][k][width], filled up with zeros.
template <int width>
TG_INLINE void pack(Matrix<Real> m, Size k, Size columns, Real* to) {
    for (Size first = 0; first < columns; first += width, to += k * width) {
        const Real* from = m.data + first * m.column_stride;
        const Size count = smaller_of(width, columns - first);
        if (count == width && m.column_stride == 1) {
            for (Size i = 0; i < k; ++i)
                memcpy(to + i * width, from + i * m.row_stride, width * sizeof(Real));
            continue;
        }
        for (Size c = 0; c < count; ++c)
            for (Size i = 0; i < k; ++i)
                to[i * width + c] = from[i * m.row_stride + c * m.column_stride];
        for (Size c = count; c < width; ++c)
            for (Size i = 0; i < k; ++i) to[i * width + c] = 0;
    }
}

/// Where a tile of the result goes: `rows` of the tile's rows, `columns` of its columns.
struct Target {
    Real* c;
    Size stride, columns;
    bool add;
};

/// R rows by V vectors; the left matrix has elements a[r row_stride + i k_stride].
template <int R, int V>
TG_INLINE void tile(const Real* a, Size row_stride, Size k_stride, const Real* b, Size k,
                    const Target& to) {
    Vec acc[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) acc[r][v] = 0;
    for (Size i = 0; i < k; ++i, a += k_stride, b += tile_columns) {
        Vec right[V];
        for (int v = 0; v < V; ++v) right[v] = Vec::load(b + v * native);
        for (int r = 0; r < R; ++r) {
            const Vec left = a[r * row_stride];
            for (int v = 0; v < V; ++v) acc[r][v] = fma(left, right[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) {
            Real* at = to.c + r * to.stride + v * native;
            const Size left = to.columns - v * native;
            if (to.add) acc[r][v] = acc[r][v] + load_up_to(at, left, 0);
            store_up_to(acc[r][v], at, left);
        }
}

/// Rows [0, rows) in tiles of R, then of half as many.
template <int R, int V>
TG_INLINE void tile_column(const Real* a, Size row_stride, Size k_stride, const Real* b, Size k,
                           Size rows, Target to) {
    for (; rows >= R; rows -= R, a += R * row_stride, to.c += R * to.stride)
        tile<R, V>(a, row_stride, k_stride, b, k, to);
    if constexpr (R > 1)
        if (rows) tile_column<R / 2, V>(a, row_stride, k_stride, b, k, rows, to);
}

/// A packed left block has panels of tile_rows; the last one is filled up, and taken in part.
template <int V>
TG_INLINE void packed_column(const Real* a, const Real* b, Size k, Size rows, Target to) {
    for (; rows > 0; rows -= tile_rows, a += k * tile_rows, to.c += tile_rows * to.stride) {
        if (rows >= tile_rows)
            tile<tile_rows, V>(a, 1, tile_rows, b, k, to);
        else
            tile_column<tile_rows / 2, V>(a, 1, tile_rows, b, k, rows, to);
    }
}

template <int V>
TG_INLINE void column(Matrix<Real> a, const Real* packed, const Real* b, Size k, Size rows,
                      Target to) {
    if (packed)
        packed_column<V>(packed, b, k, rows, to);
    else
        tile_column<tile_rows, V>(a.data, a.row_stride, a.column_stride, b, k, rows, to);
}

/// One block of rows and k against all packed panels.
TG_INLINE void block(Matrix<Real> a, const Real* packed, const Real* b, Size k, Size rows,
                     Size columns, Target to) {
    for (Size j = 0; j < columns; j += tile_columns, b += k * tile_columns) {
        to.columns = smaller_of(tile_columns, columns - j);
        if (tile_vectors == 3 && to.columns > 2 * native)
            column<tile_vectors>(a, packed, b, k, rows, to);
        else if (to.columns > native)
            column<2>(a, packed, b, k, rows, to);
        else
            column<1>(a, packed, b, k, rows, to);
        to.c += tile_columns;
    }
}

bool packs_left(Size n) { return n > pack_from_panels * tile_columns; }

Size scratch(Size, Size n, Size k) {
    const Size panels = (smaller_of(n, block_columns) + tile_columns - 1) / tile_columns;
    const Size deep = smaller_of(k, block_k);
    return deep * (panels * tile_columns + (packs_left(n) ? block_rows : 0));
}

void multiply(const Product<Real>& p, Real* memory) {
    const bool packs = packs_left(p.n);
    for (Size j = 0; j < p.n; j += block_columns) {
        const Size columns = smaller_of(block_columns, p.n - j);
        for (Size l = 0; l < p.k || l == 0; l += block_k) {
            const Size deep = smaller_of(block_k, p.k - l);
            Real* right = memory + (packs ? deep * block_rows : 0);
            pack<tile_columns>(p.b.rows_from(l).columns_from(j), deep, columns, right);
            for (Size i = 0; i < p.m; i += block_rows) {
                const Size rows = smaller_of(block_rows, p.m - i);
                const Matrix<Real> left = p.a.rows_from(i).columns_from(l);
                if (packs) pack<tile_rows>(left.transposed(), deep, rows, memory);
                block(left, packs ? memory : nullptr, right, deep, rows, columns,
                      {p.c + i * p.stride + j, p.stride, 0, p.add || l > 0});
            }
        }
    }
}

}  // namespace

extern const GemmKernels<Real> TG_TABLE(gemm_);
const GemmKernels<Real> TG_TABLE(gemm_) = {scratch, multiply};

}  // namespace TG_ISA
}  // namespace tapegrad
