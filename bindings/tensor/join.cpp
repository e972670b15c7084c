// bindings/tensor/join.cpp -- arrays one behind the other, or side by side.
#include <algorithm>
#include <vector>

#include "arrays.h"
#include "tensor/copy.h"

namespace tapegrad::bindings {
namespace {

/// bool, whole numbers, floating point; the wider of two of one kind.
DType wider(DType a, DType b) {
    constexpr DType order[] = {DType::b8, DType::i32, DType::i64, DType::f32, DType::f64};
    return *std::max(std::find(order, order + 5, a), std::find(order, order + 5, b));
}

/// A view with a dimension of one element more.
void insert_dim(View& view, int dim) {
    std::copy_backward(view.shape + dim, view.shape + view.ndim, view.shape + view.ndim + 1);
    std::copy_backward(view.strides + dim, view.strides + view.ndim, view.strides + view.ndim + 1);
    view.shape[dim] = 1;
    view.strides[dim] = 0;
    ++view.ndim;
}

bool agree(const View& a, const View& b, int dim) {
    bool same = a.ndim == b.ndim;
    for (int d = 0; same && d < a.ndim; ++d) same = d == dim || a.shape[d] == b.shape[d];
    return same;
}

nb::object joined(const std::string& what, const nb::tuple& given, Size along, bool side_by_side) {
    if (!given.size()) raise("ShapeError", what + ": expected at least one array, got none");
    std::vector<Array> parts;
    for (nb::handle each : given) parts.push_back(input(what.c_str(), each, all_types));
    const int ndim = parts[0].view.ndim + (side_by_side ? 1 : 0);
    if (ndim > max_dims)
        raise("ShapeError", what + ": expected at most " + std::to_string(max_dims) +
                                " dimensions, got " + std::to_string(ndim));
    const int dim = dim_argument(what.c_str(), along, ndim);
    DType type = parts[0].view.type;
    Size total = 0;
    for (Array& part : parts) {
        if (side_by_side && part.view.ndim == ndim - 1) insert_dim(part.view, dim);
        if (!agree(part.view, parts[0].view, dim))
            raise("ShapeError", what + ": expected arrays that agree in all dimensions but " +
                                    std::to_string(dim) + ", got " + text_of(Shape(parts[0].view)) +
                                    " and " + text_of(Shape(part.view)));
        type = wider(type, part.view.type);
        total += part.size(dim);
    }
    Shape shape(parts[0].view);
    shape.sizes[dim] = total;
    const Array out = fresh(shape, type);
    unlocked(out.view.size(), [&] {
        View place = out.view;
        for (const Array& part : parts) {
            place.shape[dim] = part.view.shape[dim];
            copy(place, part.view);
            place.data += place.shape[dim] * place.strides[dim];
        }
    });
    return out.object;
}

}  // namespace

void bind_join(nb::module_& m) {
#define ARGUMENTS "(arrays: tuple[" ARRAY ", ...], dim: int) -> " ARRAY
    m.def(
        "cat", [](const nb::tuple& arrays, Size dim) { return joined("cat", arrays, dim, false); },
        nb::arg("arrays"), nb::arg("dim"), nb::sig("def cat" ARGUMENTS),
        "Arrays one behind the other along a dimension, in the widest of their types.");
    m.def(
        "stack",
        [](const nb::tuple& arrays, Size dim) { return joined("stack", arrays, dim, true); },
        nb::arg("arrays"), nb::arg("dim"), nb::sig("def stack" ARGUMENTS),
        "Arrays side by side along a new dimension, in the widest of their types.");
#undef ARGUMENTS
}

}  // namespace tapegrad::bindings
