// bindings/tensor/sort.cpp -- where the smallest or largest elements along a dimension are.
#include "tensor/sort.h"

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

nb::object order_array(nb::handle object, Size dim, bool descending, Size count) {
    const Array x = contiguous("order: x", object, all_types);
    const int d = dim_argument("order: dim", dim, x.view.ndim);
    if (count < 0 || count > x.size(d))
        raise("ShapeError", "order: expected a count from 0 to " + std::to_string(x.size(d)) +
                                ", got " + std::to_string(count));
    Shape shape(x.view);
    shape.sizes[d] = count;
    const Array places = fresh(shape, DType::i64);
    unlocked(8 * x.view.size(), [&] {
        order(x.view, slab_of(x.view, d), descending, count, places.as<std::int64_t>());
    });
    return places.object;
}

}  // namespace

void bind_sort(nb::module_& m) {
    m.def("order", &order_array, nb::arg("x"), nb::arg("dim"), nb::arg("descending"),
          nb::arg("count"),
          nb::sig("def order(x: " ARRAY ", dim: int, descending: bool, count: int) -> " ARRAY),
          "Where the `count` smallest, or largest, elements along dim are, in order; of equal ones "
          "the first comes first.");
}

}  // namespace tapegrad::bindings
