// bindings/onednn/matmul.cpp -- products of matrices on NumPy arrays.
#include "onednn/matmul.h"

#include <algorithm>
#include <vector>

#include "arrays.h"
#include "functions.h"

namespace tapegrad::bindings {
namespace {

using onednn::Matmul;

[[noreturn]] void raise_mismatch(const nb::object& a, const nb::object& b) {
    raise("ShapeError",
          "matmul: expected a (..., m, k) and b (..., k, n) with batch sizes that are equal, 1 or "
          "missing, got a " +
              shape_text(array_of(a)) + " and b " + shape_text(array_of(b)));
}

/// Size of the batch dimension `d` of `dims`, counted so that the last ones of all operands match.
std::int64_t batch_size(const nb::object& array, int d, int dims) {
    const int own = d - dims + PyArray_NDIM(array_of(array)) - 2;
    return own < 0 ? 1 : size(array, own);
}

/// A batch of a times one matrix b is one product with more rows.
bool one_product(const Matrices& a, const Matrices& b) {
    return PyArray_NDIM(array_of(b.array)) == 2 && !a.transposed;
}

Matmul problem(const Matrices& a, const Matrices& b) {
    const int a_dims = PyArray_NDIM(array_of(a.array)), b_dims = PyArray_NDIM(array_of(b.array));
    Matmul p{.m = size(a.array, a_dims - 2),
             .k = size(a.array, a_dims - 1),
             .n = size(b.array, b_dims - 1),
             .a_transposed = a.transposed,
             .b_transposed = b.transposed};
    if (size(b.array, b_dims - 2) != p.k) raise_mismatch(a.array, b.array);
    if (one_product(a, b)) {
        for (int d = 0; d < a_dims - 2; ++d) p.m *= size(a.array, d);
        return p;
    }
    const int dims = std::max(a_dims, b_dims) - 2;
    if (dims > Matmul::max_batch_dims)
        raise("ShapeError", "matmul: expected at most " + std::to_string(Matmul::max_batch_dims) +
                                " batch dimensions, got " + std::to_string(dims) +
                                "; join some of them by reshape");
    p.batch_dims = dims;
    for (int d = 0; d < dims; ++d) {
        const auto place = static_cast<std::size_t>(d);
        p.a_batch[place] = batch_size(a.array, d, dims);
        p.b_batch[place] = batch_size(b.array, d, dims);
        if (p.a_batch[place] != p.b_batch[place] && p.a_batch[place] != 1 && p.b_batch[place] != 1)
            raise_mismatch(a.array, b.array);
    }
    return p;
}

/// The result's shape: the batch of both, then (m, n).
nb::object result(const Matrices& a, const Matrices& b, const Matmul& p) {
    std::vector<npy_intp> sizes;
    const int a_dims = PyArray_NDIM(array_of(a.array));
    if (one_product(a, b)) {
        sizes.assign(PyArray_DIMS(array_of(a.array)), PyArray_DIMS(array_of(a.array)) + a_dims - 1);
        sizes.push_back(p.n);
    } else {
        for (std::size_t d = 0; d < static_cast<std::size_t>(p.batch_dims); ++d)
            sizes.push_back(p.y_batch(d));
        sizes.insert(sizes.end(), {p.m, p.n});
    }
    return fresh(static_cast<int>(sizes.size()), sizes.data());
}

/// A sum of no products.
void fill_rows(const nb::object& y, const nb::object& bias, std::int64_t n) {
    if (!bias.is_valid()) return fill_zero(y);
    const npy_intp count = PyArray_SIZE(array_of(y));
    for (npy_intp i = 0; i < count; i += n) std::copy_n(data_of(bias), n, data_of(y) + i);
}

void multiply(const Matmul& p, const nb::object& a, const nb::object& b, const nb::object& bias,
              const nb::object& y, onednn::WeightKey key) {
    if (PyArray_SIZE(array_of(y)) == 0) return;
    if (p.k == 0) return fill_rows(y, bias, p.n);
    const Unlocked unlocked(is_long(p.flops()));
    onednn::matmul(p, data_of(a), data_of(b), data_of(bias), data_of(y), key);
}

nb::object matmul(nb::handle a_given, nb::handle b_given, nb::handle bias_given) {
    const Matrices a = matrices("matmul a", a_given), b = matrices("matmul b", b_given);
    const Matmul p = problem(a, b);
    const nb::object bias = bias_array("matmul bias", bias_given, p.n);
    const nb::object y = result(a, b, p);
    multiply(p, a.array, b.array, bias, y, {});
    return y;
}

/// x (..., k) as rows: two dimensions may be swapped in memory, more may not, one is a row.
Matrices rows(nb::handle given) {
    const nb::object x = float_array("linear x", given);
    const int ndim = PyArray_NDIM(array_of(x));
    if (ndim == 2) return matrices("linear x", x);
    return {contiguous("linear x", x, ndim), false};
}

nb::object linear(nb::handle x_given, nb::handle w_given, nb::handle bias_given, nb::handle key) {
    const Matrices x = rows(x_given), w = matrices("linear w", w_given);
    const int ndim = PyArray_NDIM(array_of(x.array));
    if (ndim < 1 || PyArray_NDIM(array_of(w.array)) != 2 ||
        size(x.array, ndim - 1) != size(w.array, 1))
        raise("ShapeError", "linear: expected x (..., k) and w (n, k), got x " +
                                shape_text(array_of(x.array)) + " and w " +
                                shape_text(array_of(w.array)));
    std::vector<npy_intp> sizes(PyArray_DIMS(array_of(x.array)),
                                PyArray_DIMS(array_of(x.array)) + ndim);
    Matmul p{.m = 1,
             .k = sizes.back(),
             .n = size(w.array, 0),
             .a_transposed = x.transposed,
             .b_transposed = !w.transposed};
    sizes.back() = p.n;
    for (int d = 0; d < ndim - 1; ++d) p.m *= sizes[static_cast<std::size_t>(d)];
    const nb::object bias = bias_array("linear bias", bias_given, p.n);
    const nb::object y = fresh(ndim, sizes.data());
    multiply(p, x.array, w.array, bias, y, weight_key(key, w.array, w_given));
    return y;
}

}  // namespace

void bind_matmul(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "matmul", &matmul, "a"_a.none(), "b"_a.none(), "bias"_a = nb::none(),
        nb::sig("def matmul(a: numpy.typing.NDArray[numpy.float32], b: "
                "numpy.typing.NDArray[numpy.float32], bias: numpy.typing.NDArray[numpy.float32] | "
                "None = None) -> numpy.typing.NDArray[numpy.float32]"),
        "The product of matrices, or of batches of them; their last two dimensions may be "
        "swapped in memory.");
    m.def(
        "linear", &linear, "x"_a.none(), "w"_a.none(), "bias"_a = nb::none(), "key"_a = nb::none(),
        nb::sig("def linear(x: numpy.typing.NDArray[numpy.float32], w: "
                "numpy.typing.NDArray[numpy.float32], bias: numpy.typing.NDArray[numpy.float32] | "
                "None = None, key: tuple[Weight, int] | None = None) -> "
                "numpy.typing.NDArray[numpy.float32]"),
        "x (..., k) times the transpose of w (n, k), plus the bias. With a key, (Weight, "
        "version), its packed form is kept until the version changes, where that pays.");
}

}  // namespace tapegrad::bindings
