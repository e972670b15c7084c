// bindings/record.cpp -- the state of tensors and of the record of gradients, as plain objects.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "python.h"
#include "state.h"

namespace tapegrad::bindings {

thread_local bool recording = true;

namespace {

/// Whether this thread is in inference mode, where nothing is recorded; and how many threads are,
/// which is known sooner.
thread_local bool inferring = false;
int inferring_threads = 0;

bool made_in_inference() { return inferring_threads && inferring; }

// ---- state ------------------------------------------------------------------------------------

#define TENSOR_OBJECTS(X) X(array) X(device) X(node) X(cell) X(hooks) X(accumulated) X(grad) X(base)
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

PyObject* new_tensor(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<TensorState*>(object);
    self->array = Py_NewRef(Py_None);
    self->device = Py_NewRef(Py_None);
    self->inference = made_in_inference();
    return object;
}

/// Takes a tensor out of its ring.
void leave(TensorState* tensor) {
    if (!tensor->after) return;
    tensor->before->after = tensor->after;
    tensor->after->before = tensor->before;
    tensor->before = tensor->after = nullptr;
}

void dealloc_tensor(PyObject* object) {
    leave(reinterpret_cast<TensorState*>(object));
    if (reinterpret_cast<TensorState*>(object)->weak) PyObject_ClearWeakRefs(object);
    dealloc<clear_tensor>(object);
}

#define OBJECT(state, python, field) {python, T_OBJECT, offsetof(state, field), 0, nullptr}
#define FIXED(python, field) {python, T_OBJECT, offsetof(NodeState, field), READONLY, nullptr}
PyMemberDef tensor_members[] = {
    OBJECT(TensorState, "_array", array),
    OBJECT(TensorState, "_device", device),
    OBJECT(TensorState, "_node", node),
    OBJECT(TensorState, "_cell", cell),
    OBJECT(TensorState, "_hooks", hooks),
    OBJECT(TensorState, "_accumulated", accumulated),
    OBJECT(TensorState, "_grad", grad),
    {"_base", T_OBJECT, offsetof(TensorState, base), READONLY, nullptr},
    {"_index", T_INT, offsetof(TensorState, index), 0, nullptr},
    {"_requires_grad", T_BOOL, offsetof(TensorState, requires_grad), 0, nullptr},
    {"_inference", T_BOOL, offsetof(TensorState, inference), 0, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorState, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMemberDef node_members[] = {
    FIXED("op", op),
    FIXED("edges", edges),
    OBJECT(NodeState, "_operands", operands),
    OBJECT(NodeState, "_results", results),
    OBJECT(NodeState, "_cells", cells),
    FIXED("shapes", shapes),
    FIXED("dtypes", dtypes),
    FIXED("attrs", attrs),
    FIXED("device", device),
    OBJECT(NodeState, "hooks", hooks),
    {"_stamp", T_LONGLONG, offsetof(NodeState, stamp), 0, nullptr},
    {"number", T_LONGLONG, offsetof(NodeState, number), READONLY, nullptr},
    {"wanted", T_ULONGLONG, offsetof(NodeState, wanted), READONLY, nullptr},
    {"count", T_INT, offsetof(NodeState, count), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
#undef OBJECT
#undef FIXED

PyType_Slot tensor_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_tensor)},
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

PyType_Spec tensor_spec = {"tapegrad._core.TensorState", sizeof(TensorState), 0, state_flags,
                           tensor_slots};
PyType_Spec node_spec = {"tapegrad._core.NodeState", sizeof(NodeState), 0, state_flags, node_slots};

// ---- results ----------------------------------------------------------------------------------

PyTypeObject *tensor_state, *node_state, *tensor_type, *node_type;
long long made = 0;  ///< nodes so far; under the interpreter's lock

void set_types(nb::handle tensor, nb::handle node) {
    const auto set = [](PyTypeObject*& type, nb::handle given) {
        PyTypeObject* before = type;
        type = reinterpret_cast<PyTypeObject*>(given.inc_ref().ptr());
        Py_XDECREF(before);
    };
    set(tensor_type, tensor);
    set(node_type, node);
}

// ---- changes in place -------------------------------------------------------------------------

// A tensor's memory has a cell, shared by all its views: how often the elements were changed in
// place, and what the device keeps of them (see Backend.keeps).
constexpr Py_ssize_t version = 0, kept = 1;

long long version_of(PyObject* cell) {
    return is_none(cell) ? 0 : PyLong_AsLongLong(PyList_GET_ITEM(cell, version));
}

/// Where the elements of an array lie: from the first byte to behind the last.
struct Reach {
    std::intptr_t low = 0, high = 0;

    explicit Reach(PyArrayObject* array) {
        low = high = reinterpret_cast<std::intptr_t>(PyArray_DATA(array));
        for (int d = 0; d < PyArray_NDIM(array); ++d) {
            const npy_intp most = (PyArray_DIM(array, d) - 1) * PyArray_STRIDE(array, d);
            (most < 0 ? low : high) += most;
        }
        high = PyArray_SIZE(array) ? high + PyArray_ITEMSIZE(array) : low;
    }
};

/// Whether two arrays may have an element in common.
bool overlap(PyObject* a, PyObject* b) {
    if (!PyArray_Check(a) || !PyArray_Check(b)) return true;
    const Reach first(reinterpret_cast<PyArrayObject*>(a)),
        second(reinterpret_cast<PyArrayObject*>(b));
    return first.low < second.high && second.low < first.high;
}

/// Calls a body with each view of a base; one that is about to end has no references left.
template <class Body>
void for_views(TensorState* base, Body body) {
    if (!base->after) return;
    for (TensorState *each = base->after, *next; each != base; each = next) {
        next = each->after;
        auto* view = reinterpret_cast<PyObject*>(each);
        if (Py_REFCNT(view) > 0 && each->base == reinterpret_cast<PyObject*>(base)) body(each);
    }
}

/// The other views that a change of a tensor shows in, or of its base: whose elements it may be,
/// and all that have no history yet or are leaves. Those of others on the memory, as of what was
/// detached, are not among them.
nb::list touched_by(nb::handle object) {
    if (!is_tensor(object.ptr())) raise("DTypeError", "touched_by: expected a tensor");
    TensorState* tensor = tensor_of(object.ptr());
    nb::list out;
    for_views(tensor->base ? tensor_of(tensor->base) : tensor, [&](TensorState* view) {
        if (view == tensor) return;
        const bool plain = !view->requires_grad || is_none(view->node);
        if (plain || overlap(view->array, tensor->array))
            out.append(nb::borrow(reinterpret_cast<PyObject*>(view)));
    });
    return out;
}

/// Ends that a tensor is a view, or has views: it will lie on other memory.
void part(nb::handle object) {
    if (!is_tensor(object.ptr())) raise("DTypeError", "part: expected a tensor");
    TensorState* tensor = tensor_of(object.ptr());
    for_views(tensor, [](TensorState* view) {
        leave(view);
        Py_CLEAR(view->base);
    });
    leave(tensor);
    Py_CLEAR(tensor->base);
}

/// What a view looks at; none for what is no view. A base that only this view holds is nobody's
/// any more, and the view is none from here on.
nb::object base_of(nb::handle object) {
    if (!is_tensor(object.ptr())) raise("DTypeError", "base_of: expected a tensor");
    TensorState* tensor = tensor_of(object.ptr());
    if (!tensor->base) return nb::none();
    if (Py_REFCNT(tensor->base) == 1) {
        leave(tensor);
        Py_CLEAR(tensor->base);
        return nb::none();
    }
    return nb::borrow(tensor->base);
}

// ---- recording --------------------------------------------------------------------------------

/// Operands that a plan can name.
constexpr Py_ssize_t most = 64;

/// What to save, for a set of operands that want gradients: bits of operands and of results.
struct Plan {
    unsigned long long saves, keeps;
};

/// Bits of operands to save: fixed, or a tuple of what each operand's gradient looks at.
unsigned long long saves_for(PyObject* saves, unsigned long long needs) {
    if (!PyTuple_Check(saves)) return PyLong_AsUnsignedLongLong(saves);
    unsigned long long out = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(saves); ++i)
        if (needs >> i & 1) out |= PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(saves, i));
    return out;
}

Plan plan_for(PyObject* op, PyObject* plans, unsigned long long needs, Py_ssize_t count) {
    nb::object pair = nb::borrow(plans);
    if (PyDict_Check(plans)) {
        if (count > most)
            raise("ShapeError", "elementwise: expected at most " + std::to_string(most) +
                                    " operands where gradients are recorded, got " +
                                    std::to_string(count));
        const nb::object key = owned(PyLong_FromUnsignedLongLong(needs));
        PyObject* found = PyDict_GetItemWithError(plans, key.ptr());
        if (!found && PyErr_Occurred()) throw nb::python_error();
        pair = found ? nb::borrow(found) : nb::object(nb::handle(op).attr("plan")(key));
    }
    return {saves_for(PyTuple_GET_ITEM(pair.ptr(), 0), needs),
            PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(pair.ptr(), 1))};
}

PyObject* dtype_of(PyObject* array) {
    static PyObject* name = name_of("dtype");
    if (!PyArray_Check(array)) return get(array, name).release().ptr();
    return Py_NewRef(
        reinterpret_cast<PyObject*>(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array))));
}

/// Notes where the gradients of the operands go, and which operands want one.
void note_operands(NodeState* node, Items inputs) {
    node->edges = new_tuple(inputs.count);
    node->shapes = new_tuple(inputs.count);
    node->dtypes = new_tuple(inputs.count);
    for (Py_ssize_t i = 0; i < inputs.count; ++i) {
        PyObject* input = inputs.items[i];
        TensorState* tensor = is_tensor(input) ? tensor_of(input) : nullptr;
        PyObject* edge = tensor ? edge_of(tensor) : Py_NewRef(Py_None);
        if (edge != Py_None && i < most) node->wanted |= 1ull << i;
        PyTuple_SET_ITEM(node->edges, i, edge);
        PyTuple_SET_ITEM(node->shapes, i, tensor ? shape_of(tensor->array) : Py_NewRef(Py_None));
        PyTuple_SET_ITEM(node->dtypes, i, tensor ? dtype_of(tensor->array) : Py_NewRef(Py_None));
    }
}

[[noreturn]] void raise_inference(PyObject* op) {
    nb::module_::import_("tapegrad.tensors.autograd").attr("refuse_saving")(nb::handle(op));
    throw nb::python_error();
}

void save_operands(NodeState* node, Items inputs, unsigned long long saves) {
    node->operands = new_tuple(inputs.count);
    for (Py_ssize_t i = 0; i < inputs.count; ++i) {
        PyObject* input = inputs.items[i];
        const bool saved = i < most && saves >> i & 1;
        PyTuple_SET_ITEM(node->operands, i, Py_NewRef(saved ? input : Py_None));
        if (!saved || !is_tensor(input)) continue;
        if (tensor_of(input)->inference) raise_inference(node->op);
        node->stamp += version_of(tensor_of(input)->cell);
    }
}

/// Arrays alone: a result that held its own node would never be let go.
void save_results(NodeState* node, Items outs, unsigned long long keeps) {
    node->results = new_tuple(outs.count);
    node->cells = owned(PyList_New(0)).release().ptr();
    for (Py_ssize_t i = 0; i < outs.count; ++i) {
        TensorState* out = tensor_of(outs.items[i]);
        const bool kept = i < most && keeps >> i & 1;
        PyTuple_SET_ITEM(node->results, i, Py_NewRef(kept ? out->array : Py_None));
        if (!kept) continue;
        node->stamp += version_of(out->cell);
        if (PyList_Append(node->cells, cell_of(out)) < 0) throw nb::python_error();
    }
}

}  // namespace

bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, tensor_state); }
bool is_node(PyObject* object) { return PyObject_TypeCheck(object, node_state); }

nb::object wrap(PyObject* array, PyObject* device) {
    nb::object made = owned(tensor_type->tp_alloc(tensor_type, 0));
    TensorState* self = tensor_of(made.ptr());
    self->array = Py_NewRef(array);
    self->device = Py_NewRef(device);
    self->inference = made_in_inference();
    return made;
}

nb::object wrapped_tuple(PyObject* arrays, PyObject* device) {
    const Py_ssize_t count = PyTuple_Check(arrays) ? PyTuple_GET_SIZE(arrays) : 0;
    nb::object outs = nb::steal(new_tuple(count));
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(outs.ptr(), i, wrap(PyTuple_GET_ITEM(arrays, i), device).release().ptr());
    return outs;
}

PyObject* shape_of(PyObject* array) {
    static PyObject* name = name_of("shape");
    if (!PyArray_Check(array)) return get(array, name).release().ptr();
    auto* plain = reinterpret_cast<PyArrayObject*>(array);
    PyObject* shape = new_tuple(PyArray_NDIM(plain));
    for (int d = 0; d < PyArray_NDIM(plain); ++d)
        PyTuple_SET_ITEM(shape, d, PyLong_FromSsize_t(PyArray_DIM(plain, d)));
    return shape;
}

PyObject* edge_of(TensorState* tensor) {
    if (!tensor->requires_grad) return Py_NewRef(Py_None);
    if (is_none(tensor->node)) return Py_NewRef(reinterpret_cast<PyObject*>(tensor));
    PyObject* edge = new_tuple(2);
    PyTuple_SET_ITEM(edge, 0, Py_NewRef(tensor->node));
    PyTuple_SET_ITEM(edge, 1, PyLong_FromLong(tensor->index));
    return edge;
}

PyObject* cell_of(TensorState* tensor) {
    if (is_none(tensor->cell)) {
        PyObject* cell = owned(PyList_New(2)).release().ptr();
        PyList_SET_ITEM(cell, version, PyLong_FromLong(0));
        PyList_SET_ITEM(cell, kept, Py_NewRef(Py_None));
        Py_XSETREF(tensor->cell, cell);
    }
    return tensor->cell;
}

void changed(TensorState* tensor) {
    PyObject* cell = cell_of(tensor);
    PyObject* next = owned(PyLong_FromLongLong(version_of(cell) + 1)).release().ptr();
    PyList_SetItem(cell, version, next);
}

bool is_view(PyObject* array) {
    static PyObject* name = name_of("base");
    if (PyArray_Check(array)) {
        PyObject* base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(array));
        return base && PyArray_Check(base) && Py_REFCNT(base) > 1;
    }
    const nb::object base = get(array, name);
    return PyObject_TypeCheck(base.ptr(), Py_TYPE(array)) && Py_REFCNT(base.ptr()) > 2;
}

void join(TensorState* view, TensorState* base) {
    if (base->base) base = tensor_of(base->base);
    Py_XSETREF(view->cell, Py_NewRef(cell_of(base)));
    Py_XSETREF(view->base, Py_NewRef(reinterpret_cast<PyObject*>(base)));
    view->inference = base->inference;
    if (!base->after) base->before = base->after = base;
    view->before = base;
    view->after = base->after;
    base->after->before = view;
    base->after = view;
}

nb::object record(PyObject* op, PyObject* plans, Items inputs, Items outs, PyObject* attrs,
                  PyObject* device, int tied) {
    nb::object made_node = owned(node_type->tp_alloc(node_type, 0));
    NodeState* node = node_of(made_node.ptr());
    node->number = made++;
    node->op = Py_NewRef(op);
    node->attrs = Py_NewRef(attrs);
    node->device = Py_NewRef(device);
    node->count = static_cast<int>(outs.count);
    note_operands(node, inputs);
    const Plan plan = plan_for(op, plans, node->wanted, inputs.count);
    save_operands(node, inputs, plan.saves);
    if (plan.keeps) save_results(node, outs, plan.keeps);
    for (int i = 0; i < tied && i < node->count; ++i) {
        TensorState* out = tensor_of(outs.items[i]);
        out->requires_grad = 1;
        out->index = i;
        Py_XSETREF(out->node, Py_NewRef(made_node.ptr()));
    }
    return made_node;
}

bool unchanged(const NodeState* node) {
    long long stamp = 0;
    if (node->operands && PyTuple_Check(node->operands))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->operands); ++i) {
            PyObject* each = PyTuple_GET_ITEM(node->operands, i);
            if (is_tensor(each)) stamp += version_of(tensor_of(each)->cell);
        }
    if (node->cells && PyList_Check(node->cells))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(node->cells); ++i)
            stamp += version_of(PyList_GET_ITEM(node->cells, i));
    return stamp == node->stamp;
}

namespace {

Items items_of(const nb::tuple& tuple) {
    return {&PyTuple_GET_ITEM(tuple.ptr(), 0), static_cast<Py_ssize_t>(tuple.size())};
}

nb::object record_all(nb::handle op, nb::handle plans, const nb::tuple& inputs,
                      const nb::tuple& outs, nb::handle attrs, nb::handle device, int tied) {
    for (nb::handle each : outs)
        if (!is_tensor(each.ptr()))
            raise("DTypeError",
                  "record: expected tensors as results, got " + type_name(each.ptr()));
    return record(op.ptr(), plans.ptr(), items_of(inputs), items_of(outs), attrs.ptr(),
                  device.ptr(), tied);
}

struct Mode {};

/// A seed, and how many random numbers were drawn; the interpreter's lock keeps draws apart.
struct Stream {
    std::uint64_t seed = 0, drawn = 0;
};

}  // namespace

void bind_record(nb::module_& m) {
    tensor_state = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&tensor_spec));
    node_state = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&node_spec));
    if (!tensor_state || !node_state) throw nb::python_error();
    m.attr("TensorState") = nb::borrow(reinterpret_cast<PyObject*>(tensor_state));
    m.attr("NodeState") = nb::borrow(reinterpret_cast<PyObject*>(node_state));
    nb::class_<Mode>(m, "Mode", "Whether operations are recorded; each thread has its own.")
        .def(nb::init<>())
        .def_prop_rw(
            "enabled", [](const Mode&) { return recording; },
            [](Mode&, bool enabled) { recording = enabled && !inferring; })
        .def_prop_rw(
            "inference", [](const Mode&) { return inferring; },
            [](Mode&, bool inference) {
                inferring_threads += inference - inferring;
                inferring = inference;
                recording = recording && !inference;
            });
    nb::class_<Stream>(m, "Stream", "A seed, and a count of numbers drawn.")
        .def(nb::init<>())
        .def_rw("_seed", &Stream::seed)
        .def_rw("_drawn", &Stream::drawn)
        .def(
            "take",
            [](Stream& self, std::uint64_t count) {
                const std::uint64_t first = self.drawn;
                self.drawn += count;
                return nb::make_tuple(self.seed, first);
            },
            nb::arg("count"), nb::sig("def take(self, count: int) -> tuple[int, int]"),
            "Seed and first number of `count` that belong to the caller.");
    m.def("set_types", &set_types, nb::arg("tensor"), nb::arg("node"),
          "The classes of what wrap() and record() make.");
    m.def(
        "wrap", [](nb::handle array, nb::handle device) { return wrap(array.ptr(), device.ptr()); },
        nb::arg("array"), nb::arg("device"),
        nb::sig("def wrap(array: typing.Any, device: typing.Any) -> typing.Any"),
        "A tensor on an array.");
    m.def("record", &record_all, nb::arg("op"), nb::arg("plans"), nb::arg("inputs"),
          nb::arg("outs"), nb::arg("attrs").none(), nb::arg("device"), nb::arg("tied"),
          nb::sig("def record(op: typing.Any, plans: typing.Any, inputs: tuple[typing.Any, ...], "
                  "outs: tuple[typing.Any, ...], attrs: typing.Any, device: typing.Any, tied: int) "
                  "-> typing.Any"),
          "Notes that an operation made results of operands, for the way back.");
    m.def(
        "nodes_made", [] { return made; },
        "How many operations were recorded so far: the number of the next node.");
    m.def(
        "edge_of",
        [](nb::handle tensor) {
            if (!is_tensor(tensor.ptr())) raise("DTypeError", "edge_of: expected a tensor");
            return nb::steal(edge_of(tensor_of(tensor.ptr())));
        },
        nb::arg("tensor"), nb::sig("def edge_of(tensor: TensorState) -> typing.Any"),
        "Where a tensor's gradient goes: itself if it is a leaf, else its node and which result it "
        "is; None if it has none.");
    m.def(
        "detached",
        [](nb::handle object) {
            if (!is_tensor(object.ptr())) raise("DTypeError", "detach: expected a tensor");
            TensorState* tensor = tensor_of(object.ptr());
            nb::object out = wrap(tensor->array, tensor->device);
            tensor_of(out.ptr())->cell = Py_NewRef(cell_of(tensor));
            tensor_of(out.ptr())->inference = tensor->inference;
            return out;
        },
        nb::arg("tensor"), nb::sig("def detached(tensor: TensorState) -> typing.Any"),
        "A tensor on the same memory, without history.");
    m.def(
        "is_view", [](nb::handle array) { return is_view(array.ptr()); }, nb::arg("array"),
        nb::sig("def is_view(array: typing.Any) -> bool"),
        "Whether an array lies on memory that somebody else holds, too.");
    m.def(
        "has_history",
        [](nb::handle object) {
            if (!is_tensor(object.ptr())) raise("DTypeError", "has_history: expected a tensor");
            const TensorState* tensor = tensor_of(object.ptr());
            return tensor->requires_grad ||
                   (tensor->base && tensor_of(tensor->base)->requires_grad);
        },
        nb::arg("tensor"), nb::sig("def has_history(tensor: TensorState) -> bool"),
        "Whether a tensor, or the base that it is a view of, requires gradients.");
    m.def(
        "changed",
        [](nb::handle tensor) {
            if (!is_tensor(tensor.ptr())) raise("DTypeError", "changed: expected a tensor");
            changed(tensor_of(tensor.ptr()));
        },
        nb::arg("tensor"), nb::sig("def changed(tensor: TensorState) -> None"),
        "Notes a change in place.");
    m.def("touched_by", &touched_by, nb::arg("tensor"),
          nb::sig("def touched_by(tensor: TensorState) -> list[typing.Any]"),
          "The other views whose history changes with that of a tensor that is changed.");
    m.def("base_of", &base_of, nb::arg("tensor"),
          nb::sig("def base_of(tensor: TensorState) -> typing.Any"),
          "What a view looks at, if anybody else can see it; None for what is no view.");
    m.def("part", &part, nb::arg("tensor"), nb::sig("def part(tensor: TensorState) -> None"),
          "Ends that a tensor is a view, or has views: it will lie on other memory.");
    m.def(
        "join",
        [](nb::handle view, nb::handle base) {
            if (!is_tensor(view.ptr()) || !is_tensor(base.ptr()))
                raise("DTypeError", "join: expected tensors");
            if (tensor_of(view.ptr())->after) raise("OptionError", "join: expected a new view");
            join(tensor_of(view.ptr()), tensor_of(base.ptr()));
        },
        nb::arg("view"), nb::arg("base"),
        nb::sig("def join(view: TensorState, base: TensorState) -> None"),
        "Makes a tensor that was just made a view of another.");
    m.def(
        "unchanged",
        [](nb::handle node) { return is_node(node.ptr()) && unchanged(node_of(node.ptr())); },
        nb::arg("node"), "Whether nothing that a node saved was changed in place since.");
}

}  // namespace tapegrad::bindings
