// core/tensor/blocks.h -- blocks of elements of strided, broadcast arrays, read and written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "pointwise.h"

namespace tapegrad {

/// Elements computed at a time: three operands of doubles stay in the first-level cache.
constexpr std::int64_t block_size = 1024;

inline std::size_t block_count(std::int64_t total, std::int64_t size) {
    return static_cast<std::size_t>((total + size - 1) / size);
}

/// Calls body(first, count) for blocks [low, high) of those that make up [0, total).
template <class Body>
void each_block(std::size_t low, std::size_t high, std::int64_t size, std::int64_t total,
                Body body) {
    for (auto first = static_cast<std::int64_t>(low) * size; low < high; ++low, first += size)
        body(first, std::min(size, total - first));
}

/// Dimensions that lie behind one another in every operand are one: fewer, longer rows.
struct Merged {
    Extent extent;
    std::vector<Strided> arrays;
};

inline Merged merge(const Extent& extent, std::span<const Strided> operands,
                    std::span<const Strided> results) {
    Merged out;
    out.arrays.assign(operands.begin(), operands.end());
    out.arrays.insert(out.arrays.end(), results.begin(), results.end());
    int last = -1;  // the dimension that the next one may join
    for (int d = 0; d < extent.ndim; ++d) {
        const std::int64_t size = extent.sizes[d];
        if (size == 1) continue;
        const bool joins =
            last >= 0 && std::all_of(out.arrays.begin(), out.arrays.end(), [&](const Strided& a) {
                return a.strides[last] == a.strides[d] * size;
            });
        const int to = joins ? last : ++last;
        for (Strided& array : out.arrays) array.strides[to] = array.strides[d];
        out.extent.sizes[to] = joins ? out.extent.sizes[to] * size : size;
    }
    out.extent.ndim = last + 1;
    return out;
}

/// Whether the array's elements lie in the order of the result without gaps.
inline bool is_dense(const Extent& extent, const Strided& array) {
    auto stride = static_cast<std::int64_t>(size_of(array.type));
    for (int d = extent.ndim; d-- > 0; stride *= extent.sizes[d])
        if (array.strides[d] != stride) return false;
    return true;
}

/// Whether all elements are one and the same.
inline bool is_single(const Extent& extent, const Strided& array) {
    return std::all_of(array.strides, array.strides + extent.ndim,
                       [](std::int64_t stride) { return stride == 0; });
}

/// Calls body(data, stride, count, done) for the rows and parts of rows of elements
/// [first, first + count); `done` elements came before.
template <class Body>
void each_row(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
              Body body) {
    if (extent.ndim == 0) return body(array.data, std::int64_t{0}, count, std::int64_t{0});
    const int inner = extent.ndim - 1;
    std::int64_t index[max_dims], rest = first;
    char* data = array.data;
    for (int d = inner; d >= 0; --d) {
        index[d] = rest % extent.sizes[d];
        rest /= extent.sizes[d];
        data += index[d] * array.strides[d];
    }
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t n = std::min(extent.sizes[inner] - index[inner], count - done);
        body(data, array.strides[inner], n, done);
        done += n;
        index[inner] += n;
        data += n * array.strides[inner];
        for (int d = inner; d > 0 && index[d] == extent.sizes[d]; --d) {
            data += array.strides[d - 1] - index[d] * array.strides[d];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

/// Unaligned where a foreign array is.
template <class S>
S read(const char* at) {
    S value;
    std::memcpy(&value, at, sizeof(S));
    return value;
}

template <class T>
void gather(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
            T* to) {
    with_type(array.type, [&](auto type) {
        using S = decltype(type);
        using Stored = std::conditional_t<std::is_same_v<S, bool>, std::uint8_t, S>;
        const auto cast = [](Stored value) {
            if constexpr (std::is_same_v<S, bool>) return static_cast<T>(value != 0);
            return static_cast<T>(value);
        };
        each_row(extent, array, first, count,
                 [&](const char* data, std::int64_t stride, std::int64_t n, std::int64_t done) {
                     T* out = to + done;
                     if (stride == 0) return void(std::fill_n(out, n, cast(read<Stored>(data))));
                     if (stride == sizeof(Stored)) {
                         if constexpr (std::is_same_v<S, T>)
                             return void(std::memcpy(out, data, sizeof(T) * std::size_t(n)));
                         for (std::int64_t i = 0; i < n; ++i)
                             out[i] = cast(read<Stored>(data + i * std::int64_t(sizeof(Stored))));
                         return;
                     }
                     for (std::int64_t i = 0; i < n; ++i)
                         out[i] = cast(read<Stored>(data + i * stride));
                 });
    });
}

template <class T>
void scatter(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
             const T* from) {
    with_type(array.type, [&](auto type) {
        using S = decltype(type);
        each_row(
            extent, array, first, count,
            [&](char* data, std::int64_t stride, std::int64_t n, std::int64_t done) {
                if constexpr (std::is_same_v<S, T>)
                    if (stride == sizeof(S))
                        return void(std::memcpy(data, from + done, sizeof(T) * std::size_t(n)));
                for (std::int64_t i = 0; i < n; ++i) {
                    const auto value = std::is_same_v<S, bool>
                                           ? static_cast<S>(from[done + i] != T(0))
                                           : static_cast<S>(from[done + i]);
                    std::memcpy(data + i * stride, &value, sizeof(S));
                }
            });
    });
}

}  // namespace tapegrad
