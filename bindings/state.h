// bindings/state.h -- what tensors, recorded operations and operations are made of.
//
// An eager operation on a small tensor takes as long as its bookkeeping, so that is native from the
// call of an operation to the end of the walk back: state and record (record.cpp), operations
// (apply.cpp), the walk (walk.cpp). What operations do and what their gradients are is Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <new>

#include "interpreter.h"
#include "numpy.h"

namespace tapegrad::bindings {

struct TensorState {
    PyObject_HEAD PyObject *array, *device, *node, *cell, *hooks, *accumulated, *grad, *weak;
    /// What a view looks at, which is no view itself; null for what is none.
    PyObject* base;
    /// Its neighbours in the ring of a base and its views, none of which the ring holds; null for
    /// one without views.
    TensorState *before, *after;
    int index;
    /// Set while a walk changes `grad` (walk.cpp).
    int turn;
    char requires_grad;
    /// Whether it was made in inference mode, and may not take part in what is recorded.
    char inference;
};

struct NodeState {
    PyObject_HEAD PyObject *op, *edges, *operands, *results, *cells, *shapes, *dtypes, *attrs,
        *device, *hooks;
    long long stamp, number;
    /// Bits of the operands that want a gradient, the first 64.
    unsigned long long wanted;
    int count;
};

struct OpState {
    PyObject_HEAD vectorcallfunc call;
    PyObject *name, *rule, *vjp, *plans;
    /// The device that it was applied on last, and its kernel there.
    PyObject *device, *kernel;
    /// The operand of which that kernel keeps something; -1 if it keeps nothing.
    Py_ssize_t kept;
    /// Results, and how many of them (the first) have gradients.
    int results, tied;
    /// Whether the result may lie on the memory of the operand.
    char view;
};

/// Whether operations are recorded in this thread.
extern thread_local bool recording;

/// Sets `recording` while it lives.
class Recording {
   public:
    explicit Recording(bool enabled) : before_(recording) { recording = enabled; }
    ~Recording() { recording = before_; }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    bool before_;
};

bool is_tensor(PyObject* object);
bool is_node(PyObject* object);
inline TensorState* tensor_of(PyObject* object) { return reinterpret_cast<TensorState*>(object); }
inline NodeState* node_of(PyObject* object) { return reinterpret_cast<NodeState*>(object); }
inline bool is_none(PyObject* object) { return !object || object == Py_None; }

/// A tensor on an array.
nb::object wrap(PyObject* array, PyObject* device);
/// Tensors on a tuple of arrays.
nb::object wrapped_tuple(PyObject* arrays, PyObject* device);
/// Where a tensor's gradient goes: itself if it is a leaf, else its node and which result it is.
PyObject* edge_of(TensorState* tensor);
/// The counter of changes in place, made when first needed.
PyObject* cell_of(TensorState* tensor);
/// Notes a change in place.
void changed(TensorState* tensor);
/// Whether an array lies on memory that somebody else holds, too.
bool is_view(PyObject* array);
/// Makes a view one of what it looks at, or of the base of that: with its cell, and in its ring.
void join(TensorState* view, TensorState* base);
/// Whether nothing that a node saved was changed in place since.
bool unchanged(const NodeState* node);
PyObject* shape_of(PyObject* array);

/// Operands and results of an operation.
struct Items {
    PyObject* const* items;
    Py_ssize_t count;
};
/// Makes a node of an operation and its operands; `tied` results come from it. `plans` is a pair of
/// bits of the operands and of the results to save, the first also as a tuple of those that each
/// operand's gradient looks at; or a dict of such pairs, from the bits of the operands that want a
/// gradient, and what it lacks is asked of op.plan(bits).
nb::object record(PyObject* op, PyObject* plans, Items inputs, Items outs, PyObject* attrs,
                  PyObject* device, int tied);

// What the types share.

/// A chain of nodes of any length is let go without recursion: the trashcan sees to that.
template <int (*clear)(PyObject*)>
void dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_TRASHCAN_BEGIN(object, dealloc<clear>) clear(object);
    type->tp_free(object);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

constexpr unsigned state_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;

/// A name of Python's, made once.
inline PyObject* name_of(const char* text) { return PyUnicode_InternFromString(text); }

/// Takes a new reference, and raises where there is none.
inline nb::object owned(PyObject* made) {
    if (!made) throw nb::python_error();
    return nb::steal(made);
}

inline nb::object get(PyObject* object, PyObject* name) {
    return owned(PyObject_GetAttr(object, name));
}

inline nb::object call(PyObject* function, Items arguments, PyObject* names = nullptr) {
    return owned(PyObject_Vectorcall(function, arguments.items,
                                     static_cast<std::size_t>(arguments.count), names));
}

/// Calls a body for Python: its errors become Python's.
template <class Body>
PyObject* as_python(Body body) {
    try {
        return body().release().ptr();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

[[noreturn]] inline void raise_not_set_up() {
    PyErr_SetString(PyExc_TypeError, "an operation must be set up before it is applied");
    throw nb::python_error();
}

/// Python 3.11 gives a class the quick way of being called only if it has no base in C; later ones
/// do so by themselves. A class with a __call__ of its own has another tp_call.
inline void call_quickly(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
}

inline PyObject* new_tuple(Py_ssize_t size) { return owned(PyTuple_New(size)).release().ptr(); }

}  // namespace tapegrad::bindings
