// bindings/tensor/matmul.cpp -- products of matrices and of batches of them.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "tensor/gemm.h"

namespace tapegrad::bindings {
namespace {

[[noreturn]] void raise_shapes(const View& a, const View& b) {
    raise(
        "ShapeError",
        "matmul: expected [..., m, k] and [..., k, n] with batch dimensions that broadcast, got " +
            text_of(Shape(a)) + " and " + text_of(Shape(b)));
}

/// Size of the batch dimension d, counted from the last one, or 1 if there is none.
Size batch_size(const View& v, int d) { return d < v.ndim - 2 ? v.shape[v.ndim - 3 - d] : 1; }
Size batch_stride(const View& v, int d) {
    return batch_size(v, d) == 1 ? 0 : v.strides[v.ndim - 3 - d] / v.itemsize;
}

Shape result_shape(const View& a, const View& b) {
    if (a.ndim < 2 || b.ndim < 2 || a.shape[a.ndim - 1] != b.shape[b.ndim - 2]) raise_shapes(a, b);
    const int dims = std::max(a.ndim, b.ndim) - 2;
    Shape shape;
    for (int d = dims - 1; d >= 0; --d) {
        const Size p = batch_size(a, d), q = batch_size(b, d);
        if (p != q && p != 1 && q != 1) raise_shapes(a, b);
        shape.append(p == 1 ? q : p);
    }
    shape.append(a.shape[a.ndim - 2]);
    shape.append(b.shape[b.ndim - 1]);
    return shape;
}

/// Where the matrices of a batch start.
std::vector<Size> offsets(const View& v, const View& result, Size count) {
    std::vector<Size> out(static_cast<std::size_t>(count));
    for (Size i = 0; i < count; ++i) {
        Size rest = i, offset = 0;
        for (int d = 0; d < result.ndim - 2; ++d) {
            const Size size = result.shape[result.ndim - 3 - d];
            offset += rest % size * batch_stride(v, d);
            rest /= size;
        }
        out[static_cast<std::size_t>(i)] = offset;
    }
    return out;
}

template <class T>
Matrix<T> matrix_of(const View& v) {
    return {v.as<T>(), v.strides[v.ndim - 2] / v.itemsize, v.strides[v.ndim - 1] / v.itemsize};
}

/// Whether all matrices of a are rows of one, and b is a single matrix: one product serves all.
bool is_one_product(const View& a, const View& b) {
    if (b.size_between(0, b.ndim - 2) != 1) return false;
    for (int d = 0; d + 2 < a.ndim; ++d)
        if (a.strides[d] != a.strides[d + 1] * a.shape[d + 1]) return false;
    return true;
}

template <class T>
bool multiply_arrays(const View& a, const View& b, const View& c) {
    const Size m = c.shape[c.ndim - 2], n = c.shape[c.ndim - 1], k = a.shape[a.ndim - 1];
    const Size count = c.size_between(0, c.ndim - 2);
    if (count == 0) return true;
    Product<T> product{m, n, k, matrix_of<T>(a), matrix_of<T>(b), c.as<T>(), n, false};
    const Size work = c.size() * std::max<Size>(k, 1) / 8;
    const bool single = count == 1 || is_one_product(a, b);
    if (single) product.m = count * m;
    if constexpr (!std::is_integral_v<T>)
        if (single) return unlocked(work, [&] { return multiply(product); });
    const Size left = single ? 1 : count;
    const std::vector<Size> a_steps = offsets(a, c, left), b_steps = offsets(b, c, left);
    const Batch<T> batch{product, left, a_steps.data(), b_steps.data(), m * n};
    return unlocked(work, [&] {
        if constexpr (std::is_integral_v<T>)
            return multiply_whole(batch), true;
        else
            return multiply_all(batch);
    });
}

/// Calls body(T{}) with the type of numbers.
template <class Body>
bool with_number(DType type, Body body) {
    if (type == DType::i32) return body(std::int32_t{});
    if (type == DType::i64) return body(std::int64_t{});
    return with_real(type, body);
}

nb::object matmul(nb::handle left, nb::handle right) {
    const Array a = input("matmul: a", left, numbers);
    const Array b = input("matmul: b", right, 1u << int(a.view.type));
    const Array c = fresh(result_shape(a.view, b.view), a.view.type);
    const bool done = with_number(a.view.type, [&](auto number) {
        return multiply_arrays<decltype(number)>(a.view, b.view, c.view);
    });
    if (!done) raise_memory("matmul");
    return c.object;
}

}  // namespace

void bind_matmul(nb::module_& m) {
    m.def("matmul", &matmul, nb::arg("a"), nb::arg("b"),
          nb::sig("def matmul(a: " ARRAY ", b: " ARRAY ") -> " ARRAY),
          "Products of the matrices in the last two dimensions; batch dimensions broadcast.");
}

}  // namespace tapegrad::bindings
