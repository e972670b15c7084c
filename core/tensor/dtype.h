// core/tensor/dtype.h -- the number types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tapegrad {

/// In the order of promotion: two of them give the later one.
enum class DType : std::uint8_t { boolean, int32, int64, float32, float64 };

constexpr std::size_t size_of(DType type) {
    constexpr std::size_t sizes[] = {1, 4, 8, 4, 8};
    return sizes[static_cast<std::size_t>(type)];
}
constexpr bool is_floating(DType type) { return type >= DType::float32; }

/// The type behind a C++ type.
template <class T>
constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, double>) return DType::float64;
    if constexpr (std::is_same_v<T, float>) return DType::float32;
    if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
    if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
    return DType::boolean;
}

/// Calls body with a value of the C++ type behind `type`.
template <class Body>
decltype(auto) with_type(DType type, Body&& body) {
    switch (type) {
        case DType::boolean:
            return body(bool{});
        case DType::int32:
            return body(std::int32_t{});
        case DType::int64:
            return body(std::int64_t{});
        case DType::float32:
            return body(float{});
        default:
            return body(double{});
    }
}

}  // namespace tapegrad
