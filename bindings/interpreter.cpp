// bindings/interpreter.cpp -- the errors of tapegrad, raised from C++.
#include "interpreter.h"

namespace tapegrad::bindings {

nb::object error_class(const char* name) {
    return nb::module_::import_("tapegrad.errors").attr(name);
}

void raise(const char* name, const std::string& message) {
    PyErr_SetString(error_class(name).ptr(), message.c_str());
    throw nb::python_error();
}

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

}  // namespace tapegrad::bindings
