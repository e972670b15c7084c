// bindings/fused.cpp -- scalar programs over tensors, as callables.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>
#include <string>

#include "python.h"
#include "state.h"

namespace tapegrad::bindings {
namespace {

/// The device of the operands, and whether one of them is of float64; numbers have neither.
PyObject* place_of(Items operands, bool& wide, bool& wanted) {
    static PyObject *dtype = name_of("dtype"), *character = name_of("char");
    PyObject* device = nullptr;
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        if (!is_tensor(operands.items[i])) continue;
        TensorState* tensor = tensor_of(operands.items[i]);
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
nb::object program_of(PyObject* op, bool wide) {
    static PyObject *programs = name_of("programs"), *float32 = name_of("float32"),
                    *float64 = name_of("float64");
    PyObject* type = wide ? float64 : float32;
    PyObject* known = PyDict_GetItemWithError(get(op, programs).ptr(), type);
    return known ? nb::borrow(known) : nb::object(nb::handle(op).attr("program")(nb::handle(type)));
}

[[noreturn]] void raise_places(PyObject* op, Items operands) {
    nb::list listed;
    for (Py_ssize_t i = 0; i < operands.count; ++i) listed.append(nb::handle(operands.items[i]));
    nb::handle(op).attr("explain")(listed);
    raise("DTypeError", "expected tensors of one device");
}

/// Applies a scalar program to tensors and numbers: a tensor per output.
nb::object apply_program(PyObject* op, Items operands) {
    static PyObject *map_program = name_of("map_program"), *plans = name_of("plans");
    bool wide = false, wanted = false;
    PyObject* device = place_of(operands, wide, wanted);
    if (!device) raise_places(op, operands);
    const nb::object arrays = nb::steal(new_tuple(operands.count));
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        PyObject* each = operands.items[i];
        PyTuple_SET_ITEM(arrays.ptr(), i,
                         Py_NewRef(is_tensor(each) ? tensor_of(each)->array : each));
    }
    const nb::object compiled = program_of(op, wide);
    PyObject* arguments[] = {compiled.ptr(), arrays.ptr()};
    nb::object outs =
        wrapped_tuple(call(get(device, map_program).ptr(), {arguments, 2}).ptr(), device);
    const Items results{&PyTuple_GET_ITEM(outs.ptr(), 0), PyTuple_GET_SIZE(outs.ptr())};
    if (wanted && recording)
        record(op, get(op, plans).ptr(), operands, results, Py_None, device,
               static_cast<int>(results.count));
    return outs;
}

// ---- the type ---------------------------------------------------------------------------------

/// A function of tensors that is one program: see FusedFunction in tapegrad/tensors/fused.py.
struct FusedState {
    PyObject_HEAD vectorcallfunc call;
    PyObject* op;
    /// How many operands without names are all; -1 if some have to be named.
    int complete;
    /// Whether the program's only output is the result, and no tuple of it.
    char single;
};

FusedState* fused_of(PyObject* object) { return reinterpret_cast<FusedState*>(object); }

/// What Python calls; names, defaults and results that are given are its own matter.
PyObject* call_fused(PyObject* object, PyObject* const* arguments, std::size_t count,
                     PyObject* names) {
    static PyObject* other_way = name_of("_called");
    const FusedState* self = fused_of(object);
    const Items given{arguments, PyVectorcall_NARGS(count)};
    return as_python([&] {
        if (!self->op) raise_not_set_up();
        if (names || given.count != self->complete)
            return owned(PyObject_Vectorcall(get(object, other_way).ptr(), arguments,
                                             static_cast<std::size_t>(given.count), names));
        const nb::object found = apply_program(self->op, given);
        return self->single ? nb::borrow(PyTuple_GET_ITEM(found.ptr(), 0)) : found;
    });
}

int traverse_fused(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(fused_of(object)->op);
    return 0;
}

int clear_fused(PyObject* object) {
    Py_CLEAR(fused_of(object)->op);
    return 0;
}

PyObject* new_fused(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* object = type->tp_alloc(type, 0);
    if (object) fused_of(object)->call = call_fused;
    return object;
}

PyObject* set_up_fused(PyObject* self, PyObject* arguments, PyObject* named) {
    static const char* names[] = {"op", "complete", "single", nullptr};
    PyObject* op;
    int complete, single;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "Oip", const_cast<char**>(names), &op,
                                     &complete, &single))
        return nullptr;
    Py_XSETREF(fused_of(self)->op, Py_NewRef(op));
    fused_of(self)->complete = complete;
    fused_of(self)->single = static_cast<char>(single);
    call_quickly(self);
    Py_RETURN_NONE;
}

PyMemberDef fused_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FusedState, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef fused_methods[] = {
    {"_set_up", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_up_fused)),
     METH_VARARGS | METH_KEYWORDS,
     "The program, how many operands it has, whether it has one result."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot fused_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_fused)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<clear_fused>)},
                             {Py_tp_traverse, reinterpret_cast<void*>(traverse_fused)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_fused)},
                             {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                             {Py_tp_members, fused_members},
                             {Py_tp_methods, fused_methods},
                             {Py_tp_doc, const_cast<char*>("A program that can be applied.")},
                             {0, nullptr}};
PyType_Spec fused_spec = {"tapegrad._core.FusedState", sizeof(FusedState), 0,
                          state_flags | Py_TPFLAGS_HAVE_VECTORCALL, fused_slots};

}  // namespace

void bind_fused(nb::module_& m) {
    m.attr("FusedState") = owned(PyType_FromSpec(&fused_spec));
    m.def(
        "apply_program",
        [](nb::handle op, const nb::tuple& operands) {
            return apply_program(op.ptr(), {&PyTuple_GET_ITEM(operands.ptr(), 0),
                                            static_cast<Py_ssize_t>(operands.size())});
        },
        nb::arg("op"), nb::arg("operands"),
        nb::sig("def apply_program(op: typing.Any, operands: tuple[typing.Any, ...]) -> "
                "tuple[typing.Any, ...]"),
        "Applies a scalar program to tensors and numbers, and records that.");
}

}  // namespace tapegrad::bindings
