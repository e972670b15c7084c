// bindings/subscripts.cpp -- what arrays of Vars say where a condition is used as an index.
//
// The slots of VarArray are replaced here, as a method in Python would make every x[i] three times
// as slow.
#include <nanobind/nanobind.h>

#include "errors.h"
#include "numpy.h"
#include "python.h"

namespace tapegrad::bindings {
namespace {

/// Whether an index has Vars in it: a Var, an array of objects, or a tuple with such.
bool has_vars(PyObject* key) {
    if (PyTuple_Check(key)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
            if (has_vars(PyTuple_GET_ITEM(key, i))) return true;
        return false;
    }
    if (!PyArray_Check(key)) return as_var(key);
    return PyArray_TYPE(reinterpret_cast<PyArrayObject*>(key)) == NPY_OBJECT;
}

/// Says more than NumPy's IndexError, if that is the error.
void explain(PyObject* key) {
    if (!PyErr_ExceptionMatches(PyExc_IndexError) || !has_vars(key)) return;
    PyErr_Clear();
    PyErr_SetString(error_class("DTypeError").ptr(),
                    "x[condition] does not work on Vars: which entries there are must not depend "
                    "on values; write np.where(condition, x, 0), or index with numbers");
}

PyObject* subscript(PyObject* array, PyObject* key) {
    PyObject* found = PyArray_Type.tp_as_mapping->mp_subscript(array, key);
    if (!found) explain(key);
    return found;
}

int assign(PyObject* array, PyObject* key, PyObject* value) {
    const int failed = PyArray_Type.tp_as_mapping->mp_ass_subscript(array, key, value);
    if (failed) explain(key);
    return failed;
}

void explain_subscripts(nb::type_object type) {
    PyMappingMethods* slots = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_as_mapping;
    slots->mp_subscript = subscript;
    slots->mp_ass_subscript = assign;
}

}  // namespace

void bind_subscripts(nb::module_& m) {
    m.def("explain_subscripts", &explain_subscripts, nb::arg("type"),
          nb::sig("def explain_subscripts(type: type) -> None"),
          "Lets a class of arrays say why conditions are no indices.");
}

}  // namespace tapegrad::bindings
