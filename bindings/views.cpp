// bindings/views.cpp -- arrays seen in another way, without a copy where that is possible.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "numpy.h"
#include "python.h"
#include "state.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

constexpr int most_dims = 32;

PyArrayObject* array_of(nb::handle object) {
    return reinterpret_cast<PyArrayObject*>(object.ptr());
}

PyArrayObject* array_in(const char* op, nb::handle object) {
    if (!PyArray_Check(object.ptr()))
        raise("DTypeError",
              std::string(op) + ": expected an array, got " + type_name(object.ptr()));
    return array_of(object);
}

/// Sizes or dimensions, as NumPy takes them.
struct Numbers {
    npy_intp items[most_dims];
    PyArray_Dims dims{items, 0};

    Numbers(const char* op, const nb::tuple& given) {
        if (given.size() > most_dims)
            raise("ShapeError", std::string(op) + ": expected at most " +
                                    std::to_string(most_dims) + " dimensions, got " +
                                    std::to_string(given.size()));
        for (nb::handle each : given) items[dims.len++] = nb::cast<npy_intp>(each);
    }
};

nb::object reshape(nb::handle object, const nb::tuple& shape) {
    Numbers sizes("reshape", shape);
    return owned(PyArray_Newshape(array_in("reshape", object), &sizes.dims, NPY_CORDER));
}

nb::object permute(nb::handle object, const nb::tuple& order) {
    Numbers dims("permute", order);
    return owned(PyArray_Transpose(array_in("permute", object), &dims.dims));
}

nb::object slice(nb::handle object, nb::handle index) {
    array_in("x[...]", object);
    return owned(PyObject_GetItem(object.ptr(), index.ptr()));
}

/// A view with dimensions of one element repeated; some 2 us quicker than NumPy's own. Nobody may
/// write there, where one element stands for several.
nb::object expand(nb::handle object, const nb::tuple& shape) {
    PyArrayObject* array = array_in("expand", object);
    const int ndim = PyArray_NDIM(array), extra = static_cast<int>(shape.size()) - ndim;
    if (extra < 0 || shape.size() > most_dims)
        raise("ShapeError", "expand: expected from " + std::to_string(ndim) + " to " +
                                std::to_string(most_dims) + " sizes, got " +
                                std::to_string(shape.size()));
    npy_intp sizes[most_dims], strides[most_dims];
    for (int d = 0; d < ndim + extra; ++d) {
        sizes[d] = nb::cast<npy_intp>(shape[static_cast<std::size_t>(d)]);
        const npy_intp have = d < extra ? 1 : PyArray_DIM(array, d - extra);
        if (sizes[d] < 0 || (have != 1 && have != sizes[d]))
            raise("ShapeError", "expand: shape " + shape_text(array) + " does not expand to " +
                                    nb::cast<std::string>(nb::str(shape)));
        strides[d] = have == 1 ? 0 : PyArray_STRIDE(array, d - extra);
    }
    PyArray_Descr* descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    nb::object out = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, ndim + extra, sizes,
                                                    strides, PyArray_DATA(array), 0, nullptr));
    if (!out.is_valid()) throw nb::python_error();
    if (PyArray_SetBaseObject(array_of(out), nb::borrow(object).release().ptr()) < 0)
        throw nb::python_error();
    return out;
}

}  // namespace

void bind_views(nb::module_& m) {
    nb::module_ v = m.def_submodule("views", "Arrays seen in another way.");
#define ANY_ARRAY "numpy.typing.NDArray[typing.Any]"
    v.def("reshape", &reshape, nb::arg("x"), nb::arg("shape"),
          nb::sig("def reshape(x: " ANY_ARRAY ", shape: tuple[int, ...]) -> " ANY_ARRAY),
          "The same elements in another shape.");
    v.def("permute", &permute, nb::arg("x"), nb::arg("order"),
          nb::sig("def permute(x: " ANY_ARRAY ", order: tuple[int, ...]) -> " ANY_ARRAY),
          "The dimensions in another order.");
    v.def("slice", &slice, nb::arg("x"), nb::arg("index"),
          nb::sig("def slice(x: " ANY_ARRAY ", index: typing.Any) -> " ANY_ARRAY), "x[index].");
    v.def("expand", &expand, nb::arg("x"), nb::arg("shape"),
          nb::sig("def expand(x: " ANY_ARRAY ", shape: tuple[int, ...]) -> " ANY_ARRAY),
          "A view with dimensions of one element repeated.");
#undef ANY_ARRAY
}

}  // namespace tapegrad::bindings
