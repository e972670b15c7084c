// core/tensor/view.h -- arrays as the kernels see them: a pointer, sizes and strides in bytes.
#pragma once

#include <cstdint>

namespace tapegrad {

using Size = std::int64_t;

/// The element types of tensors.
enum class DType { f32, f64, i32, i64, b8 };

constexpr int max_dims = 32;

struct View {
    char* data = nullptr;
    DType type = DType::f32;
    Size itemsize = 0;
    int ndim = 0;
    Size shape[max_dims];
    Size strides[max_dims];

    Size size() const { return size_between(0, ndim); }
    /// The product of the sizes of dimensions [first, last).
    Size size_between(int first, int last) const {
        Size product = 1;
        for (int d = first; d < last; ++d) product *= shape[d];
        return product;
    }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data);
    }
};

/// A contiguous array seen as [outer, n, inner]: what lies before a dimension, it, what follows.
struct Slab {
    Size outer, n, inner;
    Size size() const { return outer * n * inner; }
};

inline Slab slab_of(const View& view, int dim) {
    return {view.size_between(0, dim), view.shape[dim], view.size_between(dim + 1, view.ndim)};
}

/// Calls body(T{}) with the element type.
template <class Body>
decltype(auto) with_type(DType type, Body body) {
    switch (type) {
        case DType::f32:
            return body(float{});
        case DType::f64:
            return body(double{});
        case DType::i32:
            return body(std::int32_t{});
        case DType::i64:
            return body(std::int64_t{});
        default:
            return body(bool{});
    }
}

/// The same for those that are floating point numbers.
template <class Body>
decltype(auto) with_real(DType type, Body body) {
    return type == DType::f64 ? body(double{}) : body(float{});
}

}  // namespace tapegrad
