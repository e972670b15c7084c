// bindings/arrays.cpp -- arguments and results of programs as NumPy arrays; names and numbers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>

#include "compiled.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

[[noreturn]] void raise_var(const char* what) {
    raise("DTypeError",
          std::string(what) + ": expected numbers, got a Var; combine Vars before tg.compile");
}

/// An array of Python objects may hold real numbers only.
void check_elements(const char* what, nb::handle array) {
    for (nb::handle element : array.attr("flat")) {
        Operand operand;
        if (!to_operand(element.ptr(), operand))
            raise("DTypeError", std::string(what) + ": expected real numbers, got a " +
                                    type_name(element.ptr()) + " among them");
        if (operand.var) raise_var(what);
    }
}

}  // namespace

std::optional<std::string> name_of(nb::handle name, const char* what) {
    if (name.is_none()) return std::nullopt;
    if (!PyUnicode_Check(name.ptr()))
        raise("DTypeError",
              std::string(what) + ": expected name as a string, got " + type_name(name.ptr()));
    return utf8(name.ptr());
}

std::string utf8(PyObject* text) {
    Py_ssize_t length = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (!bytes) throw nb::python_error();  // halves of characters
    return {bytes, static_cast<std::size_t>(length)};
}

double real_of(nb::handle value, const char* what) {
    const double number = PyFloat_AsDouble(value.ptr());  // of a Var it is an error, too
    if (number != -1.0 || !PyErr_Occurred()) return number;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    raise("DTypeError", std::string(what) + ": expected a number, got " + type_name(value.ptr()));
}

void check_unmasked(const char* what, PyObject* object) {
    if (PyArray_Check(object) && !PyArray_CheckExact(object) &&
        PyObject_HasAttrString(object, "mask"))
        raise("DTypeError",
              std::string(what) + ": expected a plain array, got a masked one; fill it first");
}

nb::object input_array(const Compiled& c, const char* what, PyObject* object, int ndim) {
    nb::object array;
    if (PyArray_Check(object)) {
        array = nb::borrow(object);
    } else {
        if (as_var(object)) raise_var(what);
        array = nb::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
        if (!array.is_valid()) throw nb::python_error();
    }
    const int got = PyArray_NDIM(array_of(array));
    if (got != ndim)
        raise("ShapeError", std::string(what) + ": expected an array of " + std::to_string(ndim) +
                                " dimension" + (ndim == 1 ? "" : "s") + ", got shape " +
                                shape_text(array_of(array)) +
                                (ndim == 1 && got == 2   ? "; program.batch takes one point a row"
                                 : ndim == 2 && got == 1 ? "; program(x) takes a single point"
                                                         : ""));
    check_unmasked(what, array.ptr());
    const int type = PyArray_TYPE(array_of(array));
    if (type == c.typenum() && PyArray_ISBEHAVED_RO(array_of(array))) return array;
    if (!(PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type) || PyTypeNum_ISBOOL(type) ||
          PyTypeNum_ISOBJECT(type)))
        raise("DTypeError", std::string(what) + ": expected real numbers, got dtype " +
                                dtype_text(array_of(array)));
    if (PyTypeNum_ISOBJECT(type)) check_elements(what, array);
    nb::object converted = nb::steal(
        PyArray_FromAny(array.ptr(), PyArray_DescrFromType(c.typenum()), 0, 0,
                        NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST, nullptr));
    if (!converted.is_valid()) throw nb::python_error();
    return converted;
}

nb::object output_array(const Compiled& c, const char* what, PyObject* given,
                        std::initializer_list<npy_intp> shape) {
    if (!given) {
        nb::object fresh = nb::steal(PyArray_SimpleNew(
            static_cast<int>(shape.size()), const_cast<npy_intp*>(shape.begin()), c.typenum()));
        if (!fresh.is_valid()) throw nb::python_error();
        return fresh;
    }
    const std::string prefix = std::string(what) + ": ";
    if (!PyArray_Check(given))
        raise("DTypeError", prefix + "expected a NumPy array, got " + type_name(given));
    PyArrayObject* array = array_of(given);
    if (PyArray_TYPE(array) != c.typenum())
        raise("DTypeError", prefix + "expected dtype " + c.dtype() + ", got " + dtype_text(array));
    if (PyArray_NDIM(array) != static_cast<int>(shape.size()) ||
        !std::equal(shape.begin(), shape.end(), PyArray_DIMS(array)))
        raise("ShapeError", prefix + "expected shape " +
                                shape_text(static_cast<int>(shape.size()), shape.begin()) +
                                ", got " + shape_text(array));
    if (!PyArray_ISCARRAY(array))
        raise("ShapeError", prefix + "expected a writable C-contiguous array, got one that is " +
                                (!PyArray_ISWRITEABLE(array)       ? "read-only"
                                 : !PyArray_IS_C_CONTIGUOUS(array) ? "not contiguous"
                                                                   : "unaligned or byte-swapped") +
                                "; make it with numpy.empty");
    return nb::borrow(given);
}

void check_inputs(const Compiled& c, const char* what, npy_intp got) {
    if (static_cast<std::size_t>(got) != c.inputs())
        raise("ShapeError", std::string(what) + ": the program has " + std::to_string(c.inputs()) +
                                " inputs, got " + std::to_string(got) + " values");
}

int checked_threads(nb::handle threads) {
    if (threads.is_none()) return 0;
    int count = 0;
    if (!nb::try_cast(threads, count) || count < 1)
        raise("OptionError",
              "threads: expected a positive whole number or None for all cores, got " +
                  std::string(nb::repr(threads).c_str()));
    return count;
}

}  // namespace tapegrad::bindings
