// bindings/apply.cpp -- operations of the table, as callables.
//
// A call op(x, y, dim=0) comes in as an array of pointers and leaves for the rule and the device's
// kernel as one: no tuple and no dict is made of it unless it is recorded.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>
#include <exception>
#include <new>
#include <string>
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

nb::object kernel_of(const OpState* op, PyObject* device) {
    static PyObject* kernels = name_of("kernels");
    return owned(PyObject_GetItem(get(device, kernels).ptr(), op->name));
}

/// The cell of the operand of which the device's kernel keeps something; null if it keeps nothing.
PyObject* kept_cell(const OpState* op, Items operands, PyObject* device) {
    static PyObject* keeps = name_of("keeps");
    PyObject* place = PyDict_GetItemWithError(get(device, keeps).ptr(), op->name);
    if (!place && PyErr_Occurred()) throw nb::python_error();
    if (!place) return nullptr;
    PyObject* weight = operands.items[PyLong_AsSsize_t(place)];
    return is_tensor(weight) ? cell_of(tensor_of(weight)) : Py_None;
}

/// What the kernel makes of the operands' arrays, and of a cell behind them.
nb::object run(const OpState* op, const Call& given, PyObject* device) {
    PyObject* few[16];
    std::vector<PyObject*> many;
    PyObject* cell = kept_cell(op, given.operands, device);
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
    return call(kernel_of(op, device).ptr(), {arguments, count}, given.names);
}

nb::object attributes_of(const Call& given) {
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

nb::object wrapped_tuple(PyObject* arrays, PyObject* device) {
    const Py_ssize_t count = PyTuple_Check(arrays) ? PyTuple_GET_SIZE(arrays) : 0;
    nb::object outs = nb::steal(new_tuple(count));
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(outs.ptr(), i, wrap(PyTuple_GET_ITEM(arrays, i), device).release().ptr());
    return outs;
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
    if (op->view && is_view(found.ptr()))
        share_cell(tensor_of(only), tensor_of(given.operands.items[0]));
    if (recorded) note(op, given, {&only, 1}, device);
    return out;
}

// ---- scalar programs --------------------------------------------------------------------------

/// The device of the operands, and whether one of them is of float64; numbers have neither.
PyObject* place_of(const nb::tuple& operands, bool& wide, bool& wanted) {
    static PyObject *dtype = name_of("dtype"), *character = name_of("char");
    PyObject* device = nullptr;
    for (nb::handle each : operands) {
        if (!is_tensor(each.ptr())) continue;
        TensorState* tensor = tensor_of(each.ptr());
        if (device && tensor->device != device) return nullptr;
        device = tensor->device;
        wanted = wanted || tensor->requires_grad;
        if (PyArray_Check(tensor->array))
            wide =
                wide || PyArray_TYPE(reinterpret_cast<PyArrayObject*>(tensor->array)) == NPY_DOUBLE;
        else
            wide = wide ||
                   nb::cast<std::string>(get(get(tensor->array, dtype).ptr(), character)) == "d";
    }
    return device;
}

/// The program for a number type, which `op` compiles when it is first needed.
nb::object program_of(nb::handle op, bool wide) {
    static PyObject *programs = name_of("programs"), *float32 = name_of("float32"),
                    *float64 = name_of("float64");
    PyObject* type = wide ? float64 : float32;
    PyObject* known = PyDict_GetItemWithError(get(op.ptr(), programs).ptr(), type);
    return known ? nb::borrow(known) : nb::object(op.attr("program")(nb::handle(type)));
}

/// Applies a scalar program to tensors and numbers: a tensor per output.
nb::object apply_program(nb::handle op, const nb::tuple& operands) {
    static PyObject *map_program = name_of("map_program"), *plans = name_of("plans");
    bool wide = false, wanted = false;
    PyObject* device = place_of(operands, wide, wanted);
    if (!device) {
        op.attr("explain")(operands);
        raise("DTypeError", "expected tensors of one device");
    }
    nb::object arrays = nb::steal(new_tuple(static_cast<Py_ssize_t>(operands.size())));
    for (std::size_t i = 0; i < operands.size(); ++i) {
        PyObject* each = operands[i].ptr();
        PyTuple_SET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i),
                         Py_NewRef(is_tensor(each) ? tensor_of(each)->array : each));
    }
    const nb::object compiled = program_of(op, wide);
    PyObject* arguments[] = {compiled.ptr(), arrays.ptr()};
    nb::object outs =
        wrapped_tuple(call(get(device, map_program).ptr(), {arguments, 2}).ptr(), device);
    const Items results{&PyTuple_GET_ITEM(outs.ptr(), 0), PyTuple_GET_SIZE(outs.ptr())};
    if (wanted && recording)
        record(op.ptr(), get(op.ptr(), plans).ptr(),
               {&PyTuple_GET_ITEM(operands.ptr(), 0), PyTuple_GET_SIZE(operands.ptr())}, results,
               Py_None, device, static_cast<int>(results.count));
    return outs;
}

// ---- the type ---------------------------------------------------------------------------------

/// What Python calls; errors become its own here.
PyObject* call_op(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const Call given{{arguments, PyVectorcall_NARGS(count)}, names};
    try {
        if (op_of(self)->name) return apply(op_of(self), given).release().ptr();
        PyErr_SetString(PyExc_TypeError, "an operation must be set up before it is applied");
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

int traverse_op(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(op_of(object)->name);
    Py_VISIT(op_of(object)->rule);
    Py_VISIT(op_of(object)->vjp);
    Py_VISIT(op_of(object)->plans);
    return 0;
}

int clear_op(PyObject* object) {
    Py_CLEAR(op_of(object)->name);
    Py_CLEAR(op_of(object)->rule);
    Py_CLEAR(op_of(object)->vjp);
    Py_CLEAR(op_of(object)->plans);
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
    // Python 3.11 gives a class the quick way of being called only if it has no base in C; later
    // ones do so by themselves. A class with a __call__ of its own has another tp_call.
    PyTypeObject* type = Py_TYPE(self);
    if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
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

void bind_apply(nb::module_& m) {
    m.attr("OpState") = owned(PyType_FromSpec(&op_spec));
    m.def("apply_program", &apply_program, nb::arg("op"), nb::arg("operands"),
          nb::sig("def apply_program(op: typing.Any, operands: tuple[typing.Any, ...]) -> "
                  "tuple[typing.Any, ...]"),
          "Applies a scalar program to tensors and numbers, and records that.");
}

}  // namespace tapegrad::bindings
