// core/scalar/sums.h -- sums over rows, in an order that does not depend on who adds them.
#pragma once

#include <cstddef>

namespace tapegrad {

/// Rows that are summed as one piece, and partial sums within a piece.
constexpr std::size_t sum_piece = 1024;
constexpr std::size_t sum_lanes = 16;

/// Sum by halves, in index order, of `count` numbers `stride` apart.
template <class T>
T pairwise_sum(const T* values, std::size_t count, std::size_t stride) {
    if (count == 0) return T(0);
    if (count == 1) return values[0];
    const std::size_t half = count / 2;
    return pairwise_sum(values, half, stride) +
           pairwise_sum(values + half * stride, count - half, stride);
}

/// Adds term(l) of every row first + l to the partial sum that this row has.
template <class T, class Term>
void add_terms(std::size_t first, std::size_t rows, T* sums, Term term) {
    std::size_t l = 0;
    if (first % sum_lanes == 0 && rows >= sum_lanes) {
        T local[sum_lanes];  // in registers
        for (std::size_t k = 0; k < sum_lanes; ++k) local[k] = sums[k];
        for (; l + sum_lanes <= rows; l += sum_lanes)
            for (std::size_t k = 0; k < sum_lanes; ++k) local[k] += term(l + k);
        for (std::size_t k = 0; k < sum_lanes; ++k) sums[k] = local[k];
    }
    for (; l < rows; ++l) sums[(first + l) % sum_lanes] += term(l);
}

template <class T>
void add_rows(const T* slot, std::size_t first, std::size_t rows, T* sums) {
    add_terms(first, rows, sums, [slot](std::size_t l) { return slot[l]; });
}

template <class T>
void add_products(const T* a, const T* b, std::size_t first, std::size_t rows, T* sums) {
    add_terms(first, rows, sums, [a, b](std::size_t l) { return a[l] * b[l]; });
}

/// The same of several pairs of slots. Each row adds all of its products at once: the order does
/// not depend on how rows are cut into blocks.
template <class T>
void add_products(const T* const* a, const T* const* b, std::size_t pairs, std::size_t first,
                  std::size_t rows, T* sums) {
    if (pairs == 1) return add_products(*a, *b, first, rows, sums);
    std::size_t l = 0;
    if (first % sum_lanes == 0)
        for (; l + sum_lanes <= rows; l += sum_lanes) {
            T local[sum_lanes];
            for (std::size_t k = 0; k < sum_lanes; ++k) local[k] = sums[k];
            for (std::size_t i = 0; i < pairs; ++i)
                for (std::size_t k = 0; k < sum_lanes; ++k) local[k] += a[i][l + k] * b[i][l + k];
            for (std::size_t k = 0; k < sum_lanes; ++k) sums[k] = local[k];
        }
    for (; l < rows; ++l)
        for (std::size_t i = 0; i < pairs; ++i) sums[(first + l) % sum_lanes] += a[i][l] * b[i][l];
}

}  // namespace tapegrad
