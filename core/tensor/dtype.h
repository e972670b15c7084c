// core/tensor/dtype.h -- how the number types of tensors relate.
#pragma once

#include <cstddef>
#include <type_traits>

#include "view.h"

namespace tapegrad {

/// The place in the order of promotion: two types give the higher one.
constexpr int rank_of(DType type) {
    constexpr int ranks[] = {3, 4, 1, 2, 0};
    return ranks[static_cast<std::size_t>(type)];
}
constexpr DType of_rank(int rank) {
    constexpr DType types[] = {DType::b8, DType::i32, DType::i64, DType::f32, DType::f64};
    return types[rank];
}
constexpr std::size_t size_of(DType type) {
    constexpr std::size_t sizes[] = {4, 8, 4, 8, 1};
    return sizes[static_cast<std::size_t>(type)];
}
constexpr bool is_floating(DType type) { return type == DType::f32 || type == DType::f64; }
/// 0 for bool, 1 for whole numbers, 2 for floating point.
constexpr int kind_of(DType type) { return type == DType::b8 ? 0 : is_floating(type) ? 2 : 1; }

/// The type behind a C++ type.
template <class T>
constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, double>) return DType::f64;
    if constexpr (std::is_same_v<T, float>) return DType::f32;
    if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
    if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
    return DType::b8;
}

}  // namespace tapegrad
