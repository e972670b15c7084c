// bindings/guards.cpp -- frozen branches of programs, and what is raised where one changes.
#include "guards.h"

#include <nanobind/stl/string.h>

namespace tapegrad::bindings {
namespace {

nb::module_ branch_errors() { return nb::module_::import_("tapegrad.scalar.branches"); }

[[noreturn]] void raise_error(const nb::object& error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

}  // namespace

void raise_branch_changed(const Compiled& c, const char* what, nb::handle points,
                          const Shared& shared) {
    nb::dict values;
    for (std::size_t i = 0; i < shared.is.size(); ++i)
        if (shared.is[i]) values[nb::int_(i)] = shared.values[i];
    raise_error(branch_errors().attr("changed")(nb::find(c), points, values, what));
}

void raise_branch_changed(const Compiled& c, const BranchChanged& changed, nb::handle points,
                          nb::handle starts) {
    raise_error(
        branch_errors().attr("changed_at")(nb::find(c), points, decoded(changed.what()), starts));
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
