// bindings/text.cpp -- arrays as messages show them.
#include "text.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace tapegrad::bindings {

namespace nb = nanobind;

std::string shape_text(int ndim, const npy_intp* sizes) {
    std::string text = "(";
    for (int d = 0; d < ndim; ++d) text += (d ? ", " : "") + std::to_string(sizes[d]);
    return text + (ndim == 1 ? ",)" : ")");
}

std::string shape_text(PyArrayObject* array) {
    return shape_text(PyArray_NDIM(array), PyArray_DIMS(array));
}

std::string dtype_text(PyArrayObject* array) {
    return nb::cast<std::string>(
        nb::str(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array)))));
}

}  // namespace tapegrad::bindings
