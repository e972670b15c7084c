// bindings/onednn/arrays.cpp -- arguments and results of the oneDNN functions as NumPy arrays.
#include "arrays.h"

#include <cstring>

namespace tapegrad::bindings {
namespace {

/// Results from this size on come from the pool of tapegrad._tensor, whose pages are mapped.
constexpr npy_intp pooled_bytes = 64 * 1024;

nb::object checked(PyObject* fresh) {
    if (!fresh) throw nb::python_error();
    return nb::steal(fresh);
}

bool is_contiguous(PyArrayObject* array) {
    return PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISBEHAVED_RO(array);
}

/// Contiguous once its last two dimensions are swapped; dimensions of size 1 have any stride.
bool is_transposed(PyArrayObject* array) {
    const int ndim = PyArray_NDIM(array);
    if (!PyArray_ISBEHAVED_RO(array)) return false;
    npy_intp step = PyArray_ITEMSIZE(array);
    for (int place = ndim - 1; place >= 0; --place) {
        const int d = place == ndim - 1 ? ndim - 2 : place == ndim - 2 ? ndim - 1 : place;
        if (PyArray_DIM(array, d) != 1 && PyArray_STRIDE(array, d) != step) return false;
        step *= PyArray_DIM(array, d);
    }
    return true;
}

/// tapegrad._tensor.empty and copy_to, or null where that module is not built.
PyObject *empty = nullptr, *copy_to = nullptr;

nb::object call(PyObject* function, const nb::object& first, const nb::object& second) {
    PyObject* arguments[] = {first.ptr(), second.ptr()};
    return checked(PyObject_Vectorcall(function, arguments, 2, nullptr));
}

nb::object from_pool(int ndim, const npy_intp* sizes) {
    nb::object shape = checked(PyTuple_New(ndim));
    for (int d = 0; d < ndim; ++d)
        PyTuple_SET_ITEM(shape.ptr(), d, checked(PyLong_FromSsize_t(sizes[d])).release().ptr());
    return call(empty, shape,
                nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_FLOAT))));
}

/// A contiguous copy. Large ones are _tensor's, on several threads.
nb::object copied(const nb::object& array) {
    nb::object out = fresh(PyArray_NDIM(array_of(array)), PyArray_DIMS(array_of(array)));
    if (PyArray_NBYTES(array_of(out)) >= pooled_bytes && copy_to &&
        PyArray_ISBEHAVED_RO(array_of(array)))
        call(copy_to, out, array);
    else if (PyArray_CopyInto(array_of(out), array_of(array)) < 0)
        throw nb::python_error();
    return out;
}

}  // namespace

void find_tensor_functions() {
    nb::object module = nb::steal(PyImport_ImportModule("tapegrad._tensor"));
    if (!module.is_valid()) return PyErr_Clear();
    empty = module.attr("empty").inc_ref().ptr();
    copy_to = module.attr("copy_to").inc_ref().ptr();
}

nb::object float_array(const char* what, nb::handle object) {
    if (!PyArray_Check(object.ptr()))
        raise("DTypeError", std::string(what) + ": expected a NumPy array of float32, got a " +
                                type_name(object.ptr()) +
                                "; numpy.asarray(x, 'float32') makes one");
    nb::object array = nb::borrow(object);
    if (PyArray_TYPE(array_of(array)) != NPY_FLOAT)
        raise("DTypeError", std::string(what) + ": expected dtype float32, got " +
                                dtype_text(array_of(array)) + "; convert it with astype");
    return array;
}

nb::object contiguous(const char* what, nb::handle object, int ndim) {
    nb::object array = float_array(what, object);
    if (PyArray_NDIM(array_of(array)) != ndim)
        raise("ShapeError", std::string(what) + ": expected " + std::to_string(ndim) +
                                " dimensions, got shape " + shape_text(array_of(array)));
    return is_contiguous(array_of(array)) ? array : copied(array);
}

Matrices matrices(const char* what, nb::handle object) {
    nb::object array = float_array(what, object);
    if (PyArray_NDIM(array_of(array)) < 2)
        raise("ShapeError", std::string(what) + ": expected 2 or more dimensions, got shape " +
                                shape_text(array_of(array)) + "; give a vector a dimension of 1");
    if (is_contiguous(array_of(array))) return {array, false};
    if (is_transposed(array_of(array))) return {array, true};
    return {copied(array), false};
}

nb::object bias_array(const char* what, nb::handle object, npy_intp n) {
    if (object.is_none()) return {};
    nb::object bias = contiguous(what, object, 1);
    if (size(bias, 0) != n)
        raise("ShapeError", std::string(what) + ": expected one number per output feature, (" +
                                std::to_string(n) + ",), got shape " + shape_text(array_of(bias)));
    return bias;
}

nb::object fresh(int ndim, const npy_intp* sizes) {
    npy_intp bytes = sizeof(float);
    for (int d = 0; d < ndim; ++d)
        if (__builtin_mul_overflow(bytes, sizes[d], &bytes)) bytes = 0;  // NumPy says so
    if (bytes >= pooled_bytes && empty) return from_pool(ndim, sizes);
    return checked(PyArray_SimpleNew(ndim, const_cast<npy_intp*>(sizes), NPY_FLOAT));
}

nb::object fresh(std::initializer_list<npy_intp> sizes) {
    return fresh(static_cast<int>(sizes.size()), sizes.begin());
}

void fill_zero(const nb::object& array) {
    std::memset(data_of(array), 0, static_cast<std::size_t>(PyArray_NBYTES(array_of(array))));
}

}  // namespace tapegrad::bindings
