// bindings/tensor/index.cpp -- elements and rows by index.
#include "tensor/index.h"

#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "tensor/copy.h"

namespace tapegrad::bindings {
namespace {

void check_indices(const char* what, Size bad, const Array& index, Size size) {
    if (bad == no_position) return;
    PyErr_SetString(PyExc_IndexError, (std::string(what) + ": index " +
                                       std::to_string(index.as<std::int64_t>()[bad]) +
                                       " is out of range for size " + std::to_string(size) +
                                       " (position " + std::to_string(bad) + " of the indices)")
                                          .c_str());
    throw nb::python_error();
}

/// Indices for elements: as many dimensions as `x`, and no larger outside of `dim`.
void check_element_indices(const char* what, const View& index, const View& x, int dim) {
    bool fits = index.ndim == x.ndim;
    for (int d = 0; fits && d < x.ndim; ++d) fits = d == dim || index.shape[d] <= x.shape[d];
    if (!fits)
        raise("ShapeError", std::string(what) + ": expected an index no larger than " +
                                text_of(Shape(x)) + " outside of dimension " + std::to_string(dim) +
                                ", got shape " + text_of(Shape(index)));
}

nb::object gather_array(nb::handle object, Size dim, nb::handle index_object) {
    const Array x = items("gather: x", object), index = indices("gather: index", index_object);
    const int d = dim_argument("gather: dim", dim, x.view.ndim);
    check_element_indices("gather", index.view, x.view, d);
    const Array out = fresh_items(Shape(index.view), x);
    const Size bad =
        unlocked(index.view.size(), [&] { return gather(x.view, d, index.view, out.view); });
    check_indices("gather", bad, index, x.size(d));
    return out.object;
}

nb::object scatter_add_array(nb::handle object, Size dim, nb::handle index_object,
                             nb::handle src_object) {
    const Array x = input("scatter_add: x", object, all_types);
    const Array index = indices("scatter_add: index", index_object);
    const Array src = contiguous("scatter_add: src", src_object, 1u << int(x.view.type));
    const int d = dim_argument("scatter_add: dim", dim, x.view.ndim);
    check_element_indices("scatter_add: x", index.view, x.view, d);
    check_element_indices("scatter_add: src", index.view, src.view, -1);
    const Array out = copied(x);
    const Size bad =
        unlocked(index.view.size(), [&] { return scatter_add(out.view, d, index.view, src.view); });
    check_indices("scatter_add", bad, index, x.size(d));
    return out.object;
}

/// x with `count` in the place of dimension `dim`.
Shape with_size(const View& x, int dim, Size count) {
    Shape shape(x);
    shape.sizes[dim] = count;
    return shape;
}

/// Writes the slices of x along dim that an index names, one behind the other.
void select_into(const Array& x, int dim, const Array& index, const Array& out) {
    Slab slab = slab_of(x.view, dim);
    slab.inner *= x.view.itemsize;
    const Size bad = unlocked(out.view.size(), [&] {
        return select_rows(x.view.data, slab, index.as<std::int64_t>(), index.view.size(),
                           out.view.data);
    });
    check_indices("index_select", bad, index, x.size(dim));
}

nb::object index_select_array(nb::handle object, Size dim, nb::handle index_object) {
    const Array x = contiguous_items("index_select: x", object);
    const Array index = indices("index_select: index", index_object);
    const int d = dim_argument("index_select: dim", dim, x.view.ndim);
    const Size count = index.view.size();
    const Array out = fresh_items(with_size(x.view, d, count), x);
    select_into(x, d, index, out);
    return out.object;
}

/// Places counted from the first; -1 is the last. Those that are outside stay there.
Array from_first(Array index, Size size) {
    const Size count = index.view.size();
    const auto* given = index.as<std::int64_t>();
    if (std::none_of(given, given + count, [](std::int64_t i) { return i < 0; })) return index;
    Array out = fresh_like(index.view);
    std::transform(given, given + count, out.as<std::int64_t>(),
                   [&](std::int64_t i) { return i < 0 && i >= -size ? i + size : i; });
    return out;
}

nb::object take_rows_array(nb::handle object, Size dim, nb::handle index_object) {
    const Array x = contiguous_items("x[...]", object);
    const int d = dim_argument("x[...]: dim", dim, x.view.ndim);
    const Array index = from_first(indices("x[...]: index", index_object), x.size(d));
    if (x.view.ndim - 1 + index.view.ndim > max_dims)
        raise("ShapeError",
              "x[...]: expected at most " + std::to_string(max_dims) + " dimensions as the result");
    Shape shape;
    for (int i = 0; i < d; ++i) shape.append(x.size(i));
    for (int i = 0; i < index.view.ndim; ++i) shape.append(index.size(i));
    for (int i = d + 1; i < x.view.ndim; ++i) shape.append(x.size(i));
    const Array out = fresh_items(shape, x);
    select_into(x, d, index, out);
    return out.object;
}

Array zeros(const Shape& shape, DType type) {
    Array out = fresh(shape, type);
    std::memset(
        out.view.data, 0,
        static_cast<std::size_t>(out.view.size()) * static_cast<std::size_t>(out.view.itemsize));
    return out;
}

/// A copy of x, or zeros if it is a shape.
Array start_of(const char* what, nb::handle shape_or_x, DType type) {
    if (!PyArray_Check(shape_or_x.ptr())) return zeros(shape_argument(what, shape_or_x), type);
    return copied(input(what, shape_or_x, 1u << int(type)));
}

nb::object index_add_array(nb::handle shape_or_x, Size dim, nb::handle index_object,
                           nb::handle src_object) {
    const Array src = contiguous("index_add: src", src_object, all_types);
    const Array index = indices("index_add: index", index_object);
    const Array out = start_of("index_add: x", shape_or_x, src.view.type);
    const int d = dim_argument("index_add: dim", dim, out.view.ndim);
    const Size count = index.view.size();
    const Shape expected = with_size(out.view, d, count);
    if (src.view.ndim != expected.ndim ||
        !std::equal(expected.sizes, expected.sizes + expected.ndim, src.view.shape))
        raise("ShapeError", "index_add: src: expected shape " + text_of(expected) + ", got " +
                                text_of(Shape(src.view)));
    const Size bad = unlocked(src.view.size(), [&] {
        return add_rows(out.view, slab_of(out.view, d), index.as<std::int64_t>(), count, src.view,
                        no_position);
    });
    check_indices("index_add", bad, index, out.size(d));
    return out.object;
}

nb::object embedding_backward_array(nb::handle gradient, nb::handle index_object, Size rows,
                                    Size padding_idx) {
    const Array g = contiguous("embedding_backward: g", gradient, reals);
    const Array index = indices("embedding_backward: index", index_object);
    const Size count = index.view.size();
    const View& v = g.view;
    const Size width = v.ndim ? v.shape[v.ndim - 1] : 0;
    if (rows < 0 || v.ndim == 0 || v.size_between(0, v.ndim - 1) != count)
        raise("ShapeError", "embedding_backward: expected g with a row for each of " +
                                std::to_string(count) + " indices, got shape " + text_of(Shape(v)));
    Shape shape;
    shape.append(rows);
    shape.append(width);
    const Array out = zeros(shape, v.type);
    const Size bad = unlocked(v.size(), [&] {
        return add_rows(out.view, {1, rows, width}, index.as<std::int64_t>(), count, v,
                        padding_idx);
    });
    check_indices("embedding_backward", bad, index, rows);
    return out.object;
}

nb::object index_put_add_array(nb::handle object, nb::handle index_object,
                               nb::handle values_object) {
    const Array x = input("index_put_add: x", object, all_types);
    const Array index = indices("index_put_add: index", index_object);
    const Size count = index.view.size();
    const Array values = parameter("index_put_add: values", values_object, x.view.type, count);
    const Array out = copied(x);
    const Size bad = unlocked(count, [&] {
        return add_rows(out.view, {1, out.view.size(), 1}, index.as<std::int64_t>(), count,
                        values.view, no_position);
    });
    check_indices("index_put_add", bad, index, out.view.size());
    return out.object;
}

}  // namespace

void bind_index(nb::module_& m) {
    m.def("gather", &gather_array, nb::arg("x"), nb::arg("dim"), nb::arg("index"),
          nb::sig("def gather(x: " ARRAY ", dim: int, index: " ARRAY ") -> " ARRAY),
          "Elements of x, whose places along dim the index gives.");
    m.def("scatter_add", &scatter_add_array, nb::arg("x"), nb::arg("dim"), nb::arg("index"),
          nb::arg("src"),
          nb::sig("def scatter_add(x: " ARRAY ", dim: int, index: " ARRAY ", src: " ARRAY
                  ") -> " ARRAY),
          "A copy of x, to which src is added at the places that the index gives along dim.");
    m.def("index_select", &index_select_array, nb::arg("x"), nb::arg("dim"), nb::arg("index"),
          nb::sig("def index_select(x: " ARRAY ", dim: int, index: " ARRAY ") -> " ARRAY),
          "Slices of x along dim.");
    m.def("take_rows", &take_rows_array, nb::arg("x"), nb::arg("dim"), nb::arg("index"),
          nb::sig("def take_rows(x: " ARRAY ", dim: int, index: " ARRAY ") -> " ARRAY),
          "Slices of x along dim, in the shape of the index; -1 is the last.");
    m.def("index_add", &index_add_array, nb::arg("shape_or_x"), nb::arg("dim"), nb::arg("index"),
          nb::arg("src"),
          nb::sig("def index_add(shape_or_x: " ARRAY
                  " | collections.abc.Sequence[int], dim: int, index: " ARRAY ", src: " ARRAY
                  ") -> " ARRAY),
          "A copy of x (or zeros of a shape), to whose slices along dim those of src are added.");
    m.def("embedding_backward", &embedding_backward_array, nb::arg("g"), nb::arg("index"),
          nb::arg("rows"), nb::arg("padding_idx") = -1,
          nb::sig("def embedding_backward(g: " ARRAY ", index: " ARRAY
                  ", rows: int, padding_idx: int = -1) -> " ARRAY),
          "The gradient of a table of rows from those of the rows that were looked up.");
    m.def("index_put_add", &index_put_add_array, nb::arg("x"), nb::arg("index"), nb::arg("values"),
          nb::sig("def index_put_add(x: " ARRAY ", index: " ARRAY ", values: " ARRAY ") -> " ARRAY),
          "A copy of x, to whose elements (counted in C order) values are added.");
}

}  // namespace tapegrad::bindings
