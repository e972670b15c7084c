// bindings/apply.cpp -- operations of the table, as callables.
//
// A call op(x, y, dim=0) comes in as an array of pointers and leaves for the rule and the device's
// kernel as one: no tuple and no dict is made of it unless it is recorded.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>
#include <vector>

#include "python.h"
#include "state.h"

namespace tapegrad::bindings {
namespace {

OpState* op_of(PyObject* object) { return reinterpret_cast<OpState*>(object); }

// ---- applying ---------------------------------------------------------------------------------

/// The arguments of a call: operands, then attributes by name.
struct Call {
    Items operands;
    PyObject* names;

    Py_ssize_t attributes() const { return names ? PyTuple_GET_SIZE(names) : 0; }
    PyObject* attribute(Py_ssize_t i) const { return operands.items[operands.count + i]; }
};

/// The common device of the operands; nothing where they are not tensors of one, which the caller
/// then explains. `wanted` tells whether one of them requires gradients.
PyObject* device_of(Items operands, bool& wanted) {
    PyObject* device = nullptr;
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        PyObject* each = operands.items[i];
        if (each == Py_None) continue;
        if (!is_tensor(each)) return nullptr;
        TensorState* tensor = tensor_of(each);
        if (device && tensor->device != device) return nullptr;
        device = tensor->device;
        wanted = wanted || tensor->requires_grad;
    }
    return device;
}

[[noreturn]] void raise_devices(const OpState* op, Items operands) {
    nb::list listed;
    for (Py_ssize_t i = 0; i < operands.count; ++i) listed.append(nb::handle(operands.items[i]));
    nb::module_::import_("tapegrad.tensors.registry")
        .attr("common_device")(nb::handle(op->name), listed);
    raise("DTypeError", "expected tensors of one device");
}

/// Finds the kernel of a device, which is remembered: a device's kernels do not change.
void find_kernel(OpState* op, PyObject* device) {
    static PyObject *kernels = name_of("kernels"), *keeps = name_of("keeps");
    nb::object kernel = owned(PyObject_GetItem(get(device, kernels).ptr(), op->name));
    PyObject* place = PyDict_GetItemWithError(get(device, keeps).ptr(), op->name);
    if (!place && PyErr_Occurred()) throw nb::python_error();
    op->kept = place ? PyLong_AsSsize_t(place) : -1;
    Py_XSETREF(op->kernel, kernel.release().ptr());
    Py_XSETREF(op->device, Py_NewRef(device));
}

/// The cell of the operand of which the device's kernel keeps something; null if it keeps nothing.
PyObject* kept_cell(const OpState* op, Items operands) {
    if (op->kept < 0) return nullptr;
    PyObject* weight = op->kept < operands.count ? operands.items[op->kept] : Py_None;
    return is_tensor(weight) ? cell_of(tensor_of(weight)) : Py_None;
}

/// What the kernel makes of the operands' arrays, and of a cell behind them.
nb::object run(OpState* op, const Call& given, PyObject* device) {
    if (op->device != device) find_kernel(op, device);
    const nb::object kernel = nb::borrow(op->kernel);  // another thread may meet another device
    PyObject* few[16];
    std::vector<PyObject*> many;
    PyObject* cell = kept_cell(op, given.operands);
    const Py_ssize_t operands = given.operands.count, count = operands + (cell ? 1 : 0);
    const Py_ssize_t all = count + given.attributes();
    PyObject** arguments = few;
    if (all > 16) {
        many.resize(static_cast<std::size_t>(all));
        arguments = many.data();
    }
    for (Py_ssize_t i = 0; i < operands; ++i) {
        PyObject* each = given.operands.items[i];
        arguments[i] = each == Py_None ? each : tensor_of(each)->array;
    }
    if (cell) arguments[operands] = cell;
    for (Py_ssize_t i = count; i < all; ++i) arguments[i] = given.attribute(i - count);
    return call(kernel.ptr(), {arguments, count}, given.names);
}

nb::object attributes_of(const Call& given) {
    static PyObject* none = PyDict_New();
    if (!given.attributes()) return nb::borrow(none);
    nb::object out = owned(PyDict_New());
    for (Py_ssize_t i = 0; i < given.attributes(); ++i)
        if (PyDict_SetItem(out.ptr(), PyTuple_GET_ITEM(given.names, i), given.attribute(i)) < 0)
            throw nb::python_error();
    return out;
}

void note(OpState* op, const Call& given, Items outs, PyObject* device) {
    record(reinterpret_cast<PyObject*>(op), op->plans, given.operands, outs,
           attributes_of(given).ptr(), device, op->tied);
}

nb::object apply(OpState* op, const Call& given) {
    bool wanted = false;
    PyObject* device = device_of(given.operands, wanted);
    if (!device) raise_devices(op, given.operands);
    if (op->rule != Py_None) call(op->rule, given.operands, given.names);
    const nb::object found = run(op, given, device);
    const bool recorded = wanted && recording && op->vjp != Py_None;
    if (op->results != 1) {
        nb::object outs = wrapped_tuple(found.ptr(), device);
        if (recorded)
            note(op, given, {&PyTuple_GET_ITEM(outs.ptr(), 0), PyTuple_GET_SIZE(outs.ptr())},
                 device);
        return outs;
    }
    nb::object out = wrap(found.ptr(), device);
    PyObject* only = out.ptr();
    if (op->view && is_view(found.ptr())) join(tensor_of(only), tensor_of(given.operands.items[0]));
    if (recorded) note(op, given, {&only, 1}, device);
    return out;
}

// ---- the type ---------------------------------------------------------------------------------

/// What Python calls; errors become its own here.
PyObject* call_op(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const Call given{{arguments, PyVectorcall_NARGS(count)}, names};
    return as_python([&] {
        if (!op_of(self)->name) raise_not_set_up();
        return apply(op_of(self), given);
    });
}

int traverse_op(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(op_of(object)->name);
    Py_VISIT(op_of(object)->rule);
    Py_VISIT(op_of(object)->vjp);
    Py_VISIT(op_of(object)->plans);
    Py_VISIT(op_of(object)->device);
    Py_VISIT(op_of(object)->kernel);
    return 0;
}

int clear_op(PyObject* object) {
    Py_CLEAR(op_of(object)->name);
    Py_CLEAR(op_of(object)->rule);
    Py_CLEAR(op_of(object)->vjp);
    Py_CLEAR(op_of(object)->plans);
    Py_CLEAR(op_of(object)->device);
    Py_CLEAR(op_of(object)->kernel);
    return 0;
}

PyObject* new_op(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* object = type->tp_alloc(type, 0);
    if (object) op_of(object)->call = call_op;
    return object;
}

PyObject* set_up(PyObject* self, PyObject* arguments, PyObject* named) {
    static const char* names[] = {"name",    "rule", "vjp",  "plans",
                                  "results", "tied", "view", nullptr};
    PyObject *name, *rule, *vjp, *plans;
    int results, tied, view;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "UOOOiip", const_cast<char**>(names), &name,
                                     &rule, &vjp, &plans, &results, &tied, &view))
        return nullptr;
    OpState* op = op_of(self);
    Py_XSETREF(op->name, Py_NewRef(name));
    Py_XSETREF(op->rule, Py_NewRef(rule));
    Py_XSETREF(op->vjp, Py_NewRef(vjp));
    Py_XSETREF(op->plans, Py_NewRef(plans));
    op->results = results;
    op->tied = tied;
    op->view = static_cast<char>(view);
    call_quickly(self);
    Py_RETURN_NONE;
}

PyMemberDef op_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpState, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef op_methods[] = {
    {"_set_up", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_up)),
     METH_VARARGS | METH_KEYWORDS, "What applying it takes; a rule of None checks nothing."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot op_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_op)},
                          {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<clear_op>)},
                          {Py_tp_traverse, reinterpret_cast<void*>(traverse_op)},
                          {Py_tp_clear, reinterpret_cast<void*>(clear_op)},
                          {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                          {Py_tp_members, op_members},
                          {Py_tp_methods, op_methods},
                          {Py_tp_doc, const_cast<char*>("An operation that can be applied.")},
                          {0, nullptr}};
PyType_Spec op_spec = {"tapegrad._core.OpState", sizeof(OpState), 0,
                       state_flags | Py_TPFLAGS_HAVE_VECTORCALL, op_slots};

}  // namespace

void bind_apply(nb::module_& m) { m.attr("OpState") = owned(PyType_FromSpec(&op_spec)); }

}  // namespace tapegrad::bindings
