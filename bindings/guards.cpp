// bindings/guards.cpp -- frozen branches of programs, and what is raised where one changes.
#include "guards.h"

#include <nanobind/stl/string.h>

namespace tapegrad::bindings {

void raise_branch_changed(const Compiled& c, nb::handle points, const Shared& shared) {
    nb::module_ branches = nb::module_::import_("tapegrad.scalar.branches");
    nb::dict values;
    for (std::size_t i = 0; i < shared.is.size(); ++i)
        if (shared.is[i]) values[nb::int_(i)] = shared.values[i];
    nb::object error = branches.attr("changed")(nb::find(c), points, values);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

nb::list branches(const Compiled& c) {
    nb::list out;
    for (const Guard& guard : c.program->guards())
        out.append(nb::make_tuple(decoded(guard.text), guard.taken, decoded(guard.place)));
    return out;
}

Compiled* guard_program(const Compiled& c) {
    auto program = c.program->guard_program();
    return new Compiled{make_runner(program, c.is_double()), program, false, false, {}};
}

}  // namespace tapegrad::bindings
