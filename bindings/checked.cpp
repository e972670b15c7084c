// bindings/checked.cpp -- functions of tensors that ask whether they were given some.
//
// Users call all operations through one of these, so the question costs them no call of Python's;
// see tapegrad/tensors/arguments.py.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>

#include "python.h"
#include "state.h"

namespace tapegrad::bindings {
namespace {

struct CheckedState {
    PyObject_HEAD vectorcallfunc call;
    /// What is called; the name of its first argument, "" where that need not be a tensor.
    PyObject *function, *first;
    /// refuse(function, args, kwargs) raises for what is no tensor; explain(..., error) what an
    /// error came from, if the arguments were the reason.
    PyObject *refuse, *explain;
    PyObject *dict, *weak;
};

#define CHECKED_OBJECTS(X) X(function) X(first) X(refuse) X(explain) X(dict)

CheckedState* checked_of(PyObject* object) { return reinterpret_cast<CheckedState*>(object); }

/// Arguments as Python takes them apart, for messages.
struct Given {
    nb::object args, kwargs;

    Given(Items placed, PyObject* names)
        : args(nb::steal(new_tuple(placed.count))), kwargs(owned(PyDict_New())) {
        for (Py_ssize_t i = 0; i < placed.count; ++i)
            PyTuple_SET_ITEM(args.ptr(), i, Py_NewRef(placed.items[i]));
        for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
            if (PyDict_SetItem(kwargs.ptr(), PyTuple_GET_ITEM(names, i),
                               placed.items[placed.count + i]) < 0)
                throw nb::python_error();
    }
};

/// Whether the first argument, by place or by name, is a tensor.
bool begins_with_tensor(const CheckedState* self, Items placed, PyObject* names) {
    if (placed.count) return is_tensor(placed.items[0]);
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), self->first) == 0)
            return is_tensor(placed.items[i]);
    return false;
}

/// Raises again what was raised, or what it came from.
[[noreturn]] void explain_error(const CheckedState* self, Items placed, PyObject* names) {
    nb::python_error error;
    const Given given(placed, names);
    const nb::object value = nb::borrow(error.value());
    PyObject* arguments[] = {self->function, given.args.ptr(), given.kwargs.ptr(), value.ptr()};
    call(self->explain, {arguments, 4});
    throw error;
}

PyObject* call_checked(PyObject* object, PyObject* const* arguments, std::size_t count,
                       PyObject* names) {
    CheckedState* self = checked_of(object);
    const Items placed{arguments, PyVectorcall_NARGS(count)};
    return as_python([&] {
        if (PyUnicode_GET_LENGTH(self->first) && !begins_with_tensor(self, placed, names)) {
            const Given given(placed, names);
            PyObject* all[] = {self->function, given.args.ptr(), given.kwargs.ptr()};
            call(self->refuse, {all, 3});
        }
        PyObject* found = PyObject_Vectorcall(self->function, arguments, count, names);
        if (!found) explain_error(self, placed, names);
        return nb::steal(found);
    });
}

// ---- the type ---------------------------------------------------------------------------------

int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
#define X(name) Py_VISIT(checked_of(object)->name);
    CHECKED_OBJECTS(X)
#undef X
    return 0;
}

int clear(PyObject* object) {
#define X(name) Py_CLEAR(checked_of(object)->name);
    CHECKED_OBJECTS(X)
#undef X
    return 0;
}

void dealloc_checked(PyObject* object) {
    if (checked_of(object)->weak) PyObject_ClearWeakRefs(object);
    dealloc<clear>(object);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* named) {
    static const char* names[] = {"function", "first", "refuse", "explain", nullptr};
    PyObject *function, *first, *refuse, *explain;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "OUOO", const_cast<char**>(names), &function,
                                     &first, &refuse, &explain))
        return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    CheckedState* self = checked_of(object);
    self->call = call_checked;
    self->function = Py_NewRef(function);
    self->first = Py_NewRef(first);
    self->refuse = Py_NewRef(refuse);
    self->explain = Py_NewRef(explain);
    return object;
}

/// As a method of a class it gets `self`, like any function.
PyObject* bind(PyObject* function, PyObject* object, PyObject*) {
    return object && object != Py_None ? PyMethod_New(function, object) : Py_NewRef(function);
}

PyObject* text(PyObject* object) {
    return PyUnicode_FromFormat("<checked %R>", checked_of(object)->function);
}

/// Known by its name, like any function.
PyObject* reduce(PyObject* object, PyObject*) {
    return PyObject_GetAttrString(object, "__qualname__");
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CheckedState, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CheckedState, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CheckedState, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_checked)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                       {Py_tp_repr, reinterpret_cast<void*>(text)},
                       {Py_tp_members, members},
                       {Py_tp_getset, properties},
                       {Py_tp_methods, methods},
                       {Py_tp_doc, const_cast<char*>("A function that refuses what is no tensor.")},
                       {0, nullptr}};
PyType_Spec spec = {"tapegrad._core.Checked", sizeof(CheckedState), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

void bind_checked(nb::module_& m) { m.attr("Checked") = owned(PyType_FromSpec(&spec)); }

}  // namespace tapegrad::bindings
