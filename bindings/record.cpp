// bindings/record.cpp -- the state of tensors and of the record of gradients, as plain objects.
//
// An eager operation on a small tensor takes as long as its bookkeeping: a result, a node, what the
// node saves. Here that is some 0.2 us; with Python objects it was 2 us. What is done with this
// state is written in Python (tapegrad/tensors/base.py, autograd.py).
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>
#include <string>

#include "numpy.h"
#include "python.h"

namespace tapegrad::bindings {
namespace {

// ---- state ------------------------------------------------------------------------------------

struct TensorState {
    PyObject_HEAD PyObject *array, *device, *node, *cell, *hooks, *accumulated, *grad, *weak;
    int index;
    /// Of a view: the epoch of its memory's history when it was taken; else -1.
    int seen;
    char requires_grad;
};

struct NodeState {
    PyObject_HEAD PyObject *op, *edges, *operands, *results, *cells, *shapes, *dtypes, *attrs,
        *device, *hooks;
    long long stamp, number;
    int count;
};

#define TENSOR_OBJECTS(X) X(array) X(device) X(node) X(cell) X(hooks) X(accumulated) X(grad)
#define NODE_OBJECTS(X) \
    X(op) X(edges) X(operands) X(results) X(cells) X(shapes) X(dtypes) X(attrs) X(device) X(hooks)

int traverse_tensor(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<TensorState*>(object);
    Py_VISIT(Py_TYPE(object));
#define X(name) Py_VISIT(self->name);
    TENSOR_OBJECTS(X)
#undef X
    return 0;
}

int clear_tensor(PyObject* object) {
    auto* self = reinterpret_cast<TensorState*>(object);
#define X(name) Py_CLEAR(self->name);
    TENSOR_OBJECTS(X)
#undef X
    return 0;
}

int traverse_node(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<NodeState*>(object);
    Py_VISIT(Py_TYPE(object));
#define X(name) Py_VISIT(self->name);
    NODE_OBJECTS(X)
#undef X
    return 0;
}

int clear_node(PyObject* object) {
    auto* self = reinterpret_cast<NodeState*>(object);
#define X(name) Py_CLEAR(self->name);
    NODE_OBJECTS(X)
#undef X
    return 0;
}

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

PyObject* new_tensor(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* object = type->tp_alloc(type, 0);
    if (object) reinterpret_cast<TensorState*>(object)->seen = -1;
    return object;
}

void dealloc_tensor(PyObject* object) {
    if (reinterpret_cast<TensorState*>(object)->weak) PyObject_ClearWeakRefs(object);
    dealloc<clear_tensor>(object);
}

#define OBJECT(state, python, field) {python, T_OBJECT, offsetof(state, field), 0, nullptr}
PyMemberDef tensor_members[] = {
    OBJECT(TensorState, "_array", array),
    OBJECT(TensorState, "_device", device),
    OBJECT(TensorState, "_node", node),
    OBJECT(TensorState, "_cell", cell),
    OBJECT(TensorState, "_hooks", hooks),
    OBJECT(TensorState, "_accumulated", accumulated),
    OBJECT(TensorState, "grad", grad),
    {"_index", T_INT, offsetof(TensorState, index), 0, nullptr},
    {"_seen", T_INT, offsetof(TensorState, seen), 0, nullptr},
    {"_requires_grad", T_BOOL, offsetof(TensorState, requires_grad), 0, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorState, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMemberDef node_members[] = {OBJECT(NodeState, "op", op),
                              OBJECT(NodeState, "edges", edges),
                              OBJECT(NodeState, "_operands", operands),
                              OBJECT(NodeState, "_results", results),
                              OBJECT(NodeState, "_cells", cells),
                              OBJECT(NodeState, "shapes", shapes),
                              OBJECT(NodeState, "dtypes", dtypes),
                              OBJECT(NodeState, "attrs", attrs),
                              OBJECT(NodeState, "device", device),
                              OBJECT(NodeState, "hooks", hooks),
                              {"_stamp", T_LONGLONG, offsetof(NodeState, stamp), 0, nullptr},
                              {"number", T_LONGLONG, offsetof(NodeState, number), 0, nullptr},
                              {"count", T_INT, offsetof(NodeState, count), 0, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
#undef OBJECT

PyType_Slot tensor_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_tensor)},
                              {Py_tp_traverse, reinterpret_cast<void*>(traverse_tensor)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_tensor)},
                              {Py_tp_members, tensor_members},
                              {Py_tp_doc, const_cast<char*>("What a tensor is made of.")},
                              {0, nullptr}};
PyType_Slot node_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<clear_node>)},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse_node)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_node)},
                            {Py_tp_members, node_members},
                            {Py_tp_doc, const_cast<char*>("What a recorded operation is made of.")},
                            {0, nullptr}};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
PyType_Spec tensor_spec = {"tapegrad._core.TensorState", sizeof(TensorState), 0, flags,
                           tensor_slots};
PyType_Spec node_spec = {"tapegrad._core.NodeState", sizeof(NodeState), 0, flags, node_slots};

// ---- results ----------------------------------------------------------------------------------

PyTypeObject *tensor_state, *tensor_type, *node_type;
long long made = 0;  ///< nodes so far; under the interpreter's lock

void set_types(nb::handle tensor, nb::handle node) {
    Py_XSETREF(*reinterpret_cast<PyObject**>(&tensor_type), nb::borrow(tensor).release().ptr());
    Py_XSETREF(*reinterpret_cast<PyObject**>(&node_type), nb::borrow(node).release().ptr());
}

bool is_state(PyObject* object) { return PyObject_TypeCheck(object, tensor_state); }

PyObject* wrap(nb::handle array, nb::handle device) {
    auto* self = reinterpret_cast<TensorState*>(tensor_type->tp_alloc(tensor_type, 0));
    if (!self) throw nb::python_error();
    self->seen = -1;
    self->array = nb::borrow(array).release().ptr();
    self->device = nb::borrow(device).release().ptr();
    return reinterpret_cast<PyObject*>(self);
}

// ---- recording --------------------------------------------------------------------------------

// A tensor's memory has a cell, shared by all its views: how often the elements were changed in
// place, and in which epoch of its history they are, which begins anew when such a change is
// recorded.
constexpr Py_ssize_t version = 0, epoch = 1;

long long count_in(PyObject* cell, Py_ssize_t place) {
    if (!cell || cell == Py_None) return 0;
    return PyLong_AsLongLong(PyList_GET_ITEM(cell, place));
}

/// A view whose base has got another history since has the wrong one.
void check_view(const TensorState* tensor) {
    if (tensor->seen >= 0 && count_in(tensor->cell, epoch) != tensor->seen)
        raise("GradError",
              "a view was taken before what it looks at was changed in place, and has its gradient "
              "no longer; take the view after the change");
}

/// Where a tensor's gradient goes: itself if it is a leaf, else its node and which result it is.
PyObject* edge_of(TensorState* tensor) {
    if (!tensor->requires_grad) return Py_NewRef(Py_None);
    check_view(tensor);
    if (!tensor->node || tensor->node == Py_None)
        return Py_NewRef(reinterpret_cast<PyObject*>(tensor));
    return Py_BuildValue("(Oi)", tensor->node, tensor->index);
}

long long version_of(PyObject* cell) { return count_in(cell, version); }

/// The counter of changes in place, made when first needed.
PyObject* cell_of(TensorState* tensor) {
    if (!tensor->cell || tensor->cell == Py_None) {
        PyObject* cell = Py_BuildValue("[ii]", 0, 0);
        if (!cell) throw nb::python_error();
        Py_XSETREF(tensor->cell, cell);
    }
    return tensor->cell;
}

nb::object attribute(PyObject* object, const char* name) {
    nb::object found = nb::steal(PyObject_GetAttrString(object, name));
    if (!found.is_valid()) throw nb::python_error();
    return found;
}

PyObject* new_tuple(Py_ssize_t size) {
    PyObject* out = PyTuple_New(size);
    if (!out) throw nb::python_error();
    return out;
}

/// Operands that a plan can name.
constexpr Py_ssize_t most = 64;

/// What to save, for a set of operands that want gradients: bits of operands and of results.
struct Plan {
    unsigned long long saves, keeps;
};

/// `plans` is one pair for all cases, or a dict from the bits of the operands that want a gradient;
/// what it lacks is asked of op.plan(bits).
Plan plan_for(nb::handle op, nb::handle plans, unsigned long long needs) {
    nb::object pair = nb::borrow(plans);
    if (PyDict_Check(plans.ptr())) {
        nb::object key = nb::steal(PyLong_FromUnsignedLongLong(needs));
        PyObject* found = PyDict_GetItemWithError(plans.ptr(), key.ptr());
        if (!found && PyErr_Occurred()) throw nb::python_error();
        pair = found ? nb::borrow(found) : nb::object(op.attr("plan")(key));
    }
    return {PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(pair.ptr(), 0)),
            PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(pair.ptr(), 1))};
}

PyObject* shape_of(PyObject* array) {
    if (!PyArray_Check(array)) return attribute(array, "shape").release().ptr();
    auto* plain = reinterpret_cast<PyArrayObject*>(array);
    PyObject* shape = new_tuple(PyArray_NDIM(plain));
    for (int d = 0; d < PyArray_NDIM(plain); ++d)
        PyTuple_SET_ITEM(shape, d, PyLong_FromSsize_t(PyArray_DIM(plain, d)));
    return shape;
}

PyObject* dtype_of(PyObject* array) {
    if (!PyArray_Check(array)) return attribute(array, "dtype").release().ptr();
    return Py_NewRef(
        reinterpret_cast<PyObject*>(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array))));
}

/// Makes a node of an operation and its operands; `tied` results come from it.
nb::object record(nb::handle op, nb::handle plans, const nb::tuple& inputs, const nb::tuple& outs,
                  nb::handle attrs, nb::handle device, int tied) {
    const auto count = static_cast<Py_ssize_t>(inputs.size());
    auto* node = reinterpret_cast<NodeState*>(node_type->tp_alloc(node_type, 0));
    if (!node) throw nb::python_error();
    nb::object keep = nb::steal(reinterpret_cast<PyObject*>(node));
    node->number = made++;
    node->op = nb::borrow(op).release().ptr();
    node->attrs = nb::borrow(attrs).release().ptr();
    node->device = nb::borrow(device).release().ptr();
    node->count = static_cast<int>(outs.size());
    node->edges = new_tuple(count);
    node->operands = new_tuple(count);
    node->shapes = new_tuple(count);
    node->dtypes = new_tuple(count);
    unsigned long long needs = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* input = PyTuple_GET_ITEM(inputs.ptr(), i);
        const bool tensor = is_state(input);
        auto* state = reinterpret_cast<TensorState*>(input);
        PyObject* edge = tensor ? edge_of(state) : Py_NewRef(Py_None);
        if (edge != Py_None && i < most) needs |= 1ull << i;
        PyTuple_SET_ITEM(node->edges, i, edge);
        PyTuple_SET_ITEM(node->shapes, i, tensor ? shape_of(state->array) : Py_NewRef(Py_None));
        PyTuple_SET_ITEM(node->dtypes, i, tensor ? dtype_of(state->array) : Py_NewRef(Py_None));
    }
    const Plan plan = plan_for(op, plans, needs);
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* input = PyTuple_GET_ITEM(inputs.ptr(), i);
        const bool saved = i < most && plan.saves >> i & 1;
        PyTuple_SET_ITEM(node->operands, i, Py_NewRef(saved ? input : Py_None));
        if (saved && is_state(input))
            node->stamp += version_of(reinterpret_cast<TensorState*>(input)->cell);
    }
    if (plan.keeps) {
        node->results = new_tuple(static_cast<Py_ssize_t>(outs.size()));
        node->cells = PyList_New(0);
        for (std::size_t i = 0; i < outs.size(); ++i) {
            auto* out = reinterpret_cast<TensorState*>(outs[i].ptr());
            const bool kept = plan.keeps >> i & 1;
            PyTuple_SET_ITEM(node->results, static_cast<Py_ssize_t>(i),
                             Py_NewRef(kept ? out->array : Py_None));
            if (!kept) continue;
            node->stamp += version_of(out->cell);
            PyList_Append(node->cells, cell_of(out));
        }
    }
    for (int i = 0; i < tied && i < node->count; ++i) {
        auto* out = reinterpret_cast<TensorState*>(outs[static_cast<std::size_t>(i)].ptr());
        out->requires_grad = 1;
        out->index = i;
        Py_XSETREF(out->node, nb::borrow(keep).release().ptr());
    }
    return keep;
}

// ---- applying ---------------------------------------------------------------------------------

/// Names of attributes, made once.
PyObject* name_of(const char* text) { return PyUnicode_InternFromString(text); }

nb::object get(nb::handle object, PyObject* name) {
    nb::object found = nb::steal(PyObject_GetAttr(object.ptr(), name));
    if (!found.is_valid()) throw nb::python_error();
    return found;
}

/// The common device of the operands; nothing where they are not tensors of one, which the caller
/// then explains. `wanted` tells whether one of them requires gradients.
PyObject* device_of(const nb::tuple& inputs, bool& wanted) {
    PyObject* device = nullptr;
    for (nb::handle each : inputs) {
        if (each.is_none()) continue;
        if (!is_state(each.ptr())) return nullptr;
        auto* state = reinterpret_cast<TensorState*>(each.ptr());
        if (device && state->device != device) return nullptr;
        device = state->device;
        wanted = wanted || state->requires_grad;
    }
    return device;
}

/// Applies an operation of the table: its rule, the device's kernel, the record.
nb::object apply(nb::handle op, const nb::tuple& inputs, const nb::dict& attrs, bool enabled) {
    static PyObject *name = name_of("name"), *rule = name_of("rule"), *vjp = name_of("vjp"),
                    *kernels = name_of("kernels"), *plans = name_of("plans"),
                    *results = name_of("results"), *tied = name_of("differentiable"),
                    *total = name_of("total");
    bool wanted = false;
    PyObject* device = device_of(inputs, wanted);
    if (!device) {
        nb::module_::import_("tapegrad.tensors.registry")
            .attr("common_device")(get(op, name), inputs);
        raise("DTypeError", "expected tensors of one device");
    }
    if (get(op, total).is(nb::bool_(false))) {
        nb::object shape = nb::steal(PyObject_Call(get(op, rule).ptr(), inputs.ptr(), attrs.ptr()));
        if (!shape.is_valid()) throw nb::python_error();
    }
    nb::object kernel =
        nb::steal(PyObject_GetItem(get(device, kernels).ptr(), get(op, name).ptr()));
    if (!kernel.is_valid()) throw nb::python_error();
    nb::object arrays = nb::steal(new_tuple(static_cast<Py_ssize_t>(inputs.size())));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        PyObject* each = inputs[i].ptr();
        PyObject* array = each == Py_None ? each : reinterpret_cast<TensorState*>(each)->array;
        PyTuple_SET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(array));
    }
    nb::object found = nb::steal(PyObject_Call(kernel.ptr(), arrays.ptr(), attrs.ptr()));
    if (!found.is_valid()) throw nb::python_error();
    const bool single = PyLong_AsLong(get(op, results).ptr()) == 1;
    nb::object outs;
    if (single) {
        outs = nb::steal(new_tuple(1));
        PyTuple_SET_ITEM(outs.ptr(), 0, wrap(found, device));
    } else {
        const auto count =
            static_cast<Py_ssize_t>(PyTuple_Check(found.ptr()) ? PyTuple_GET_SIZE(found.ptr()) : 0);
        outs = nb::steal(new_tuple(count));
        for (Py_ssize_t i = 0; i < count; ++i)
            PyTuple_SET_ITEM(outs.ptr(), i, wrap(PyTuple_GET_ITEM(found.ptr(), i), device));
    }
    if (wanted && enabled && !get(op, vjp).is_none())
        record(op, get(op, plans), inputs, nb::borrow<nb::tuple>(outs), attrs, device,
               static_cast<int>(PyLong_AsLong(get(op, tied).ptr())));
    return single ? nb::borrow(PyTuple_GET_ITEM(outs.ptr(), 0)) : outs;
}

/// Whether nothing that a node saved was changed in place since.
bool unchanged(nb::handle object) {
    auto* node = reinterpret_cast<NodeState*>(object.ptr());
    long long stamp = 0;
    if (node->operands && PyTuple_Check(node->operands))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->operands); ++i) {
            PyObject* each = PyTuple_GET_ITEM(node->operands, i);
            if (is_state(each)) stamp += version_of(reinterpret_cast<TensorState*>(each)->cell);
        }
    if (node->cells && PyList_Check(node->cells))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(node->cells); ++i)
            stamp += version_of(PyList_GET_ITEM(node->cells, i));
    return stamp == node->stamp;
}

}  // namespace

void bind_record(nb::module_& m) {
    tensor_state = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&tensor_spec));
    PyObject* node_state = PyType_FromSpec(&node_spec);
    if (!tensor_state || !node_state) throw nb::python_error();
    m.attr("TensorState") = nb::borrow(reinterpret_cast<PyObject*>(tensor_state));
    m.attr("NodeState") = nb::steal(node_state);
    m.def("set_types", &set_types, nb::arg("tensor"), nb::arg("node"),
          "The classes of what wrap() and record() make.");
    m.def(
        "wrap", [](nb::handle array, nb::handle device) { return nb::steal(wrap(array, device)); },
        nb::arg("array"), nb::arg("device"),
        nb::sig("def wrap(array: typing.Any, device: typing.Any) -> typing.Any"),
        "A tensor on an array.");
    m.def("record", &record, nb::arg("op"), nb::arg("plans"), nb::arg("inputs"), nb::arg("outs"),
          nb::arg("attrs").none(), nb::arg("device"), nb::arg("tied"),
          nb::sig("def record(op: typing.Any, plans: typing.Any, inputs: tuple[typing.Any, ...], "
                  "outs: tuple[typing.Any, ...], attrs: typing.Any, device: typing.Any, tied: int) "
                  "-> typing.Any"),
          "Notes that an operation made results of operands, for the way back.");
    m.def("apply", &apply, nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"), nb::arg("enabled"),
          nb::sig("def apply(op: typing.Any, inputs: tuple[typing.Any, ...], attrs: dict[str, "
                  "typing.Any], enabled: bool) -> typing.Any"),
          "Applies an operation of the table: its rule, the device's kernel, the record.");
    m.def(
        "edge_of",
        [](nb::handle tensor) {
            if (!is_state(tensor.ptr())) raise("DTypeError", "edge_of: expected a tensor");
            return nb::steal(edge_of(reinterpret_cast<TensorState*>(tensor.ptr())));
        },
        nb::arg("tensor"), nb::sig("def edge_of(tensor: TensorState) -> typing.Any"),
        "Where a tensor's gradient goes: itself if it is a leaf, else its node and which result it "
        "is; None if it has none.");
    m.def("unchanged", &unchanged, nb::arg("node"),
          "Whether nothing that a node saved was changed in place since.");
}

}  // namespace tapegrad::bindings
