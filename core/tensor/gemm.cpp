// core/tensor/gemm.cpp -- products of matrices in threads.
#include "gemm.h"

#include <algorithm>
#include <type_traits>

#include "kernels.h"
#include "pool.h"
#include "threads.h"
#include "work.h"

namespace tapegrad {
namespace {

/// Threads take rows or columns in multiples of this.
constexpr Size grain = 48;

/// A range of rows, or of columns, of the result.
template <class T>
Product<T> part_of(const Product<T>& p, bool rows, Size low, Size high) {
    Product<T> part = p;
    if (rows) {
        part.m = high - low;
        part.a = p.a.rows_from(low);
        part.c = p.c + low * p.stride;
    } else {
        part.n = high - low;
        part.b = p.b.columns_from(low);
        part.c = p.c + low;
    }
    return part;
}

/// Rows [low, high) of a product of whole numbers, which wraps around.
template <class T>
void multiply_rows(const Product<T>& p, Size low, Size high) {
    using Bits = std::make_unsigned_t<T>;
    for (Size i = low; i < high; ++i) {
        T* row = p.c + i * p.stride;
        if (!p.add) std::fill_n(row, p.n, T(0));
        for (Size l = 0; l < p.k; ++l) {
            const Bits left = Bits(p.a.data[i * p.a.row_stride + l * p.a.column_stride]);
            const T* right = p.b.data + l * p.b.row_stride;
            for (Size j = 0; j < p.n; ++j)
                row[j] = T(Bits(row[j]) + left * Bits(right[j * p.b.column_stride]));
        }
    }
}

template <class T>
Product<T> product_at(const Batch<T>& batch, Size i) {
    Product<T> one = batch.first;
    one.a.data += batch.a_steps[i];
    one.b.data += batch.b_steps[i];
    one.c += i * batch.c_step;
    return one;
}

}  // namespace

template <class T>
void multiply_whole(const Batch<T>& batch) {
    const Product<T>& p = batch.first;
    const Size work = p.m * p.n * std::max<Size>(p.k, 1);
    for (Size i = 0; i < batch.count; ++i)
        in_parallel(p.m, work,
                    [&](Size low, Size high) { multiply_rows(product_at(batch, i), low, high); });
}

template <class T>
bool multiply(const Product<T>& p) {
    if (p.m == 0 || p.n == 0) return true;
    const auto& kernels = *tensor_kernels<T>().gemm;
    const bool rows = p.m >= p.n;
    const Size length = rows ? p.m : p.n, pieces = (length + grain - 1) / grain;
    const int parts = parts_of(pieces, p.m * p.n * std::max<Size>(p.k, 1) / products_per_element);
    const Size each = kernels.scratch(p.m, p.n, p.k);
    Scratch<T> scratch(static_cast<std::size_t>(parts * each));
    if (!scratch.data()) return false;
    in_parts(pieces, parts, [&](int part, Size low, Size high) {
        kernels.multiply(part_of(p, rows, low * grain, std::min(high * grain, length)),
                         scratch.data() + part * each);
    });
    return true;
}

template <class T>
bool multiply_all(const Batch<T>& batch) {
    const Product<T>& p = batch.first;
    if (batch.count == 0 || p.m == 0 || p.n == 0) return true;
    const auto& kernels = *tensor_kernels<T>().gemm;
    const Size work = p.m * p.n * std::max<Size>(p.k, 1) / products_per_element;
    if (batch.count < threads()) {
        for (Size i = 0; i < batch.count; ++i)
            if (!multiply(product_at(batch, i))) return false;
        return true;
    }
    const int parts = parts_of(batch.count, batch.count * std::max<Size>(work, 1));
    const Size each = kernels.scratch(p.m, p.n, p.k);
    Scratch<T> scratch(static_cast<std::size_t>(parts * each));
    if (!scratch.data()) return false;
    in_parts(batch.count, parts, [&](int part, Size low, Size high) {
        for (Size i = low; i < high; ++i)
            kernels.multiply(product_at(batch, i), scratch.data() + part * each);
    });
    return true;
}

#define TG_INSTANTIATE(T)                      \
    template bool multiply(const Product<T>&); \
    template bool multiply_all(const Batch<T>&);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE
template void multiply_whole(const Batch<std::int32_t>&);
template void multiply_whole(const Batch<std::int64_t>&);

}  // namespace tapegrad
