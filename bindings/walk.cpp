// bindings/walk.cpp -- the walk back over the record of gradients.
//
// 1. Nodes are numbered as they are made, so every user of a result has a higher number than its
//    maker. The walk takes the highest number first: when a node is reached, all that its results
//    were used for has contributed. Nothing recurses.
// 2. A node's rule gives a gradient per operand. Where an operand was broadcast the gradient is
//    summed back here, so rules need not know. What a node saved is let go when it is done.
// 3. A leaf adds to its `grad`; or the gradients that were asked for are put into a list.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "python.h"
#include "state.h"

namespace tapegrad::bindings {
namespace {

// ---- gradients --------------------------------------------------------------------------------

PyArrayObject* array_in(PyObject* tensor) {
    PyObject* array = tensor_of(tensor)->array;
    return PyArray_Check(array) ? reinterpret_cast<PyArrayObject*>(array) : nullptr;
}

bool has_shape(PyObject* tensor, PyObject* shape) {
    PyArrayObject* array = array_in(tensor);
    if (!array) {
        const nb::object own = nb::steal(shape_of(tensor_of(tensor)->array));
        return PyObject_RichCompareBool(own.ptr(), shape, Py_EQ) == 1;
    }
    if (!PyTuple_Check(shape) || PyArray_NDIM(array) != PyTuple_GET_SIZE(shape)) return false;
    for (int d = 0; d < PyArray_NDIM(array); ++d)
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d)) != PyArray_DIM(array, d)) return false;
    return true;
}

bool has_dtype(PyObject* tensor, PyObject* dtype) {
    static PyObject* name = name_of("dtype");
    if (PyArrayObject* array = array_in(tensor))
        return reinterpret_cast<PyObject*>(PyArray_DESCR(array)) == dtype;
    return get(tensor_of(tensor)->array, name).is(dtype);
}

/// Dimensions of a gradient that the operand had as one element, or had not.
nb::list broadcast_dims(PyObject* gradient, PyObject* shape) {
    const nb::object have = nb::steal(shape_of(tensor_of(gradient)->array));
    const Py_ssize_t ndim = PyTuple_GET_SIZE(have.ptr()), extra = ndim - PyTuple_GET_SIZE(shape);
    const auto size = [](PyObject* sizes, Py_ssize_t d) {
        return PyLong_AsSsize_t(PyTuple_GET_ITEM(sizes, d));
    };
    nb::list dims;
    for (Py_ssize_t d = 0; d < ndim; ++d)
        if (d < extra || (size(shape, d - extra) == 1 && size(have.ptr(), d) != 1)) dims.append(d);
    return dims;
}

/// A gradient summed over what was broadcast, in the operand's type.
nb::object fitted(nb::object gradient, PyObject* shape, PyObject* dtype) {
    if (!has_shape(gradient.ptr(), shape)) {
        const nb::list dims = broadcast_dims(gradient.ptr(), shape);
        if (dims.size()) gradient = gradient.attr("sum")(dims, true);
        gradient = gradient.attr("reshape")(nb::handle(shape));
    }
    return has_dtype(gradient.ptr(), dtype) ? gradient : gradient.attr("to")(nb::handle(dtype));
}

/// An elementwise operation of the device by its number.
nb::object mapped(PyObject* device, PyObject* name, std::initializer_list<PyObject*> arguments) {
    return call(get(device, name).ptr(),
                {arguments.begin(), static_cast<Py_ssize_t>(arguments.size())});
}

PyObject* map2_name() {
    static PyObject* name = name_of("map2");
    return name;
}

PyObject* add_number() {
    static PyObject* number = PyLong_FromLong(static_cast<int>(Op::add));
    return number;
}

nb::object sum_of(PyObject* a, PyObject* b) {
    TensorState *first = tensor_of(a), *second = tensor_of(b);
    if (recording || !is_tensor(b) || first->device != second->device)
        return owned(PyNumber_Add(a, b));
    return wrap(
        mapped(first->device, map2_name(), {add_number(), first->array, second->array}).ptr(),
        first->device);
}

/// Raises for what a hook may not put in the place of a gradient.
void check_hooked(PyObject* before, PyObject* changed) {
    static PyObject* name = name_of("dtype");
    const std::string what = "a hook of gradients: expected it to return ";
    if (!is_tensor(changed))
        raise("DTypeError", what + "a tensor or None, got " + type_name(changed));
    const nb::object shape = nb::steal(shape_of(tensor_of(before)->array));
    const auto text = [](const nb::object& each) { return nb::cast<std::string>(nb::str(each)); };
    if (!has_shape(changed, shape.ptr()))
        raise("ShapeError", what + "a gradient of shape " + text(shape) + ", got " +
                                text(nb::steal(shape_of(tensor_of(changed)->array))));
    const nb::object dtype = get(tensor_of(before)->array, name);
    if (!has_dtype(changed, dtype.ptr()))
        raise("DTypeError", what + "a gradient of " + text(dtype) + ", got " +
                                text(get(tensor_of(changed)->array, name)));
    if (tensor_of(changed)->device != tensor_of(before)->device) {
        const auto place = [](PyObject* tensor) {
            return nb::cast<std::string>(nb::handle(tensor_of(tensor)->device).attr("name"));
        };
        raise("DeviceError", what + "a gradient of device " + place(before) + ", got one of " +
                                 place(changed) + "; move it with .to('" + place(before) + "')");
    }
}

/// Hooks in their order; a copy, since they may remove themselves.
nb::object listed(PyObject* hooks) { return owned(PyDict_Values(hooks)); }

/// A gradient as hooks leave it.
nb::object hooked(nb::object gradient, PyObject* hooks) {
    const nb::object each = listed(hooks);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(each.ptr()); ++i) {
        PyObject* argument = gradient.ptr();
        nb::object changed = call(PyList_GET_ITEM(each.ptr(), i), {&argument, 1});
        if (changed.is_none()) continue;
        check_hooked(gradient.ptr(), changed.ptr());
        gradient = std::move(changed);
    }
    return gradient;
}

bool any(PyObject* hooks) { return !is_none(hooks) && PyObject_IsTrue(hooks) == 1; }

// ---- leaves -----------------------------------------------------------------------------------

/// How often this process is a child: what a thread was about at a fork ended there.
int forks = 1;
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { ++forks; });

/// The turn of a walk to change the `grad` of a leaf, while others wait. Kernels let go of the
/// interpreter's lock, so that does not keep threads apart.
class Turn {
   public:
    explicit Turn(TensorState* leaf) : leaf_(leaf) {
        while (leaf->turn == forks) {
            const nb::gil_scoped_release unlocked;
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        leaf->turn = forks;
    }
    ~Turn() { leaf_->turn = 0; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    TensorState* leaf_;
};

/// Adds gradients to the `grad` of leaves, which share their memory with nobody.
class Leaves {
   public:
    explicit Leaves(bool create_graph) : create_graph_(create_graph) {}

    void add(TensorState* leaf, nb::object gradient) {
        if (any(leaf->hooks)) gradient = hooked(std::move(gradient), leaf->hooks);
        accumulate(leaf, std::move(gradient));
        if (any(leaf->accumulated)) tell(leaf);
    }

   private:
    void accumulate(TensorState* leaf, nb::object gradient) {
        const Turn turn(leaf);
        const nb::object grad = nb::borrow(leaf->grad);  // a thread may set another meanwhile
        if (is_none(grad.ptr()))
            set(leaf, own(gradient));
        else if (create_graph_ || !fits(grad.ptr(), gradient.ptr()))
            set(leaf, owned(PyNumber_Add(grad.ptr(), gradient.ptr())));
        else
            add_in_place(tensor_of(grad.ptr()), tensor_of(gradient.ptr()));
    }

    static void set(TensorState* leaf, nb::object gradient) {
        Py_XSETREF(leaf->grad, gradient.release().ptr());
    }

    /// Whether a gradient can be added in place.
    static bool fits(PyObject* grad, PyObject* gradient) {
        if (!is_tensor(grad) || !is_none(tensor_of(grad)->node)) return false;
        const nb::object shape = nb::steal(shape_of(tensor_of(grad)->array));
        return has_shape(gradient, shape.ptr());
    }

    static void add_in_place(TensorState* grad, TensorState* gradient) {
        mapped(grad->device, map2_name(),
               {add_number(), grad->array, gradient->array, grad->array});
        changed(grad);
    }

    static void tell(TensorState* leaf) {
        const nb::object each = listed(leaf->accumulated);
        auto* argument = reinterpret_cast<PyObject*>(leaf);
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(each.ptr()); ++i)
            call(PyList_GET_ITEM(each.ptr(), i), {&argument, 1});
    }

    /// A gradient that is the leaf's own: a copy where somebody else holds it, too, as the walk
    /// for another operand, or a user by a hook or a function of their own.
    nb::object own(const nb::object& gradient) const {
        PyObject* array = tensor_of(gradient.ptr())->array;
        const bool held = Py_REFCNT(gradient.ptr()) > 1 || Py_REFCNT(array) > 1;
        const bool shared = held || !is_dense(gradient) || is_view(array) || is_foreign(array);
        if (shared) return gradient.attr("clone")();
        return create_graph_ ? gradient : gradient.attr("detach")();
    }

    /// Whether an array lies on memory that NumPy or the pool did not give: that of another
    /// library's array, or of a file, whose owner goes on using it.
    static bool is_foreign(PyObject* array) {
        while (array && PyArray_Check(array))
            array = PyArray_BASE(reinterpret_cast<PyArrayObject*>(array));
        return array && !PyCapsule_IsValid(array, block_name);
    }

    static bool is_dense(const nb::object& gradient) {
        if (PyArrayObject* array = array_in(gradient.ptr())) return PyArray_IS_C_CONTIGUOUS(array);
        return nb::cast<bool>(gradient.attr("is_contiguous")());
    }

    bool create_graph_;
};

// ---- the walk ---------------------------------------------------------------------------------

/// Gradients that were asked for: by leaves' identities, by (node, result); into which list; and
/// whether hooks see them.
struct Wanted {
    nb::dict leaves, results;
    nb::list found;
    bool hooks;
};

/// The nodes of a walk that does not go everywhere, and whether it goes on behind them.
using Leading = std::optional<nb::dict>;

class Walk {
   public:
    Walk(bool retain, bool create_graph, const Wanted* wanted, const nb::set* only, Leading leading)
        : retain_(retain),
          leaves_(create_graph),
          wanted_(wanted),
          only_(only),
          leading_(std::move(leading)) {}

    void begin(PyObject* edge, const nb::object& gradient) { add(edge, gradient); }

    /// Visits nodes, the latest first, until none waits.
    void run() {
        while (!waiting_.empty()) visit(waiting_.extract(waiting_.begin()).mapped());
        for (auto& [leaf, gradient] : held_) finish(tensor_of(leaf.ptr()), std::move(gradient));
    }

   private:
    struct Waiting {
        nb::object node;
        std::vector<nb::object> gradients;
    };

    /// Gives a gradient to an operand.
    void add(PyObject* edge, nb::object gradient) {
        if (is_tensor(edge)) return add_to_leaf(edge, std::move(gradient));
        PyObject* node = PyTuple_GET_ITEM(edge, 0);
        if (leading_ && !PyDict_Contains(leading_->ptr(), node)) return;
        Waiting& waiting = waiting_[node_of(node)->number];
        if (!waiting.node.is_valid()) {
            waiting.node = nb::borrow(node);
            waiting.gradients.resize(static_cast<std::size_t>(node_of(node)->count));
        }
        nb::object& place = waiting.gradients.at(PyLong_AsSize_t(PyTuple_GET_ITEM(edge, 1)));
        place = place.is_valid() ? sum_of(place.ptr(), gradient.ptr()) : std::move(gradient);
    }

    /// Hooks of leaves see the whole gradient, at the end.
    void add_to_leaf(PyObject* leaf, nb::object gradient) {
        TensorState* tensor = tensor_of(leaf);
        if (!any(tensor->hooks) && !any(tensor->accumulated))
            return finish(tensor, std::move(gradient));
        const auto [place, fresh] = places_.try_emplace(leaf, held_.size());
        if (fresh)
            held_.emplace_back(nb::borrow(leaf), std::move(gradient));
        else
            held_[place->second].second = sum_of(held_[place->second].second.ptr(), gradient.ptr());
    }

    void finish(TensorState* leaf, nb::object gradient) {
        if (wanted_) return put(leaf, std::move(gradient));
        if (only_ && !contains(*only_, leaf)) return;
        leaves_.add(leaf, std::move(gradient));
    }

    static bool contains(const nb::set& ids, const TensorState* leaf) {
        const nb::object id = owned(PyLong_FromVoidPtr(const_cast<TensorState*>(leaf)));
        return PySet_Contains(ids.ptr(), id.ptr()) == 1;
    }

    /// Adds to what is found of a leaf.
    void put(TensorState* leaf, nb::object gradient) {
        const nb::object id = owned(PyLong_FromVoidPtr(leaf));
        PyObject* place = PyDict_GetItemWithError(wanted_->leaves.ptr(), id.ptr());
        if (!place) return;
        if (wanted_->hooks && any(leaf->hooks)) gradient = hooked(std::move(gradient), leaf->hooks);
        const auto i = PyLong_AsSsize_t(place);
        const nb::object before = wanted_->found[static_cast<std::size_t>(i)];
        wanted_->found[static_cast<std::size_t>(i)] =
            before.is_none() ? gradient : owned(PyNumber_Add(before.ptr(), gradient.ptr()));
    }

    /// Notes gradients of results that were asked for.
    void put_results(PyObject* node, const std::vector<nb::object>& gradients) {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const nb::tuple key = nb::make_tuple(nb::handle(node), i);
            PyObject* place = PyDict_GetItemWithError(wanted_->results.ptr(), key.ptr());
            if (place && gradients[i].is_valid())
                wanted_->found[PyLong_AsSize_t(place)] = gradients[i];
        }
    }

    static void apply_hooks(NodeState* node, std::vector<nb::object>& gradients) {
        for (auto [index, hooks] : nb::borrow<nb::dict>(node->hooks)) {
            nb::object& gradient = gradients[nb::cast<std::size_t>(index)];
            if (gradient.is_valid()) gradient = hooked(gradient, hooks.ptr());
        }
    }

    void visit(Waiting waiting) {
        NodeState* node = node_of(waiting.node.ptr());
        const bool goes_on = is_passed(waiting.node.ptr());
        if (any(node->hooks) && (goes_on || !wanted_ || wanted_->hooks))
            apply_hooks(node, waiting.gradients);
        if (wanted_ && wanted_->results.size()) put_results(waiting.node.ptr(), waiting.gradients);
        if (!goes_on) return;
        std::vector<nb::object>& found = waiting.gradients;
        unpack(pull_back(node, found), found);  // nobody else holds what the rule made
        const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(node->edges));
        if (found.size() != count)
            raise("GradError", name_of_op(node) + ": expected " + std::to_string(count) +
                                   " gradients from its rule, got " + std::to_string(found.size()));
        for (std::size_t i = 0; i < count; ++i) {
            const auto place = static_cast<Py_ssize_t>(i);
            PyObject* edge = PyTuple_GET_ITEM(node->edges, place);
            if (edge == Py_None || found[i].is_none()) continue;
            if (!is_tensor(found[i].ptr()))
                raise("DTypeError", name_of_op(node) + ": expected tensors as gradients, got " +
                                        type_name(found[i].ptr()));
            nb::object each = fitted(std::move(found[i]), PyTuple_GET_ITEM(node->shapes, place),
                                     PyTuple_GET_ITEM(node->dtypes, place));
            add(edge, std::move(each));
        }
        if (!retain_) release(node);
    }

    /// Whether the walk goes on behind a node: what is asked for may end there.
    bool is_passed(PyObject* node) const {
        return !leading_ || PyDict_GetItemWithError(leading_->ptr(), node) == Py_True;
    }

    /// The gradients by a node's operands, of those of its results.
    static nb::object pull_back(NodeState* node, const std::vector<nb::object>& gradients) {
        static PyObject* name = name_of("vjp");
        std::vector<PyObject*> arguments{reinterpret_cast<PyObject*>(node)};
        for (const nb::object& each : gradients)
            arguments.push_back(each.is_valid() ? each.ptr() : Py_None);
        return call(get(node->op, name).ptr(),
                    {arguments.data(), static_cast<Py_ssize_t>(arguments.size())});
    }

    /// What a rule gave, one gradient or several, in the place of others.
    static void unpack(nb::object given, std::vector<nb::object>& out) {
        out.clear();
        if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) {
            out.push_back(std::move(given));
            return;
        }
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given.ptr()); ++i)
            out.push_back(nb::borrow(PySequence_Fast_GET_ITEM(given.ptr(), i)));
    }

    static std::string name_of_op(const NodeState* node) {
        return nb::cast<std::string>(nb::str(nb::handle(node->op).attr("name")));
    }

    /// Let go of what a node saved; where it saved nothing it can be walked again.
    static void release(NodeState* node) {
        if (is_none(node->results) && !any_tensor(node->operands)) return;
        Py_CLEAR(node->operands);
        Py_CLEAR(node->results);
        Py_CLEAR(node->cells);
    }

    static bool any_tensor(PyObject* operands) {
        if (is_none(operands)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands); ++i)
            if (is_tensor(PyTuple_GET_ITEM(operands, i))) return true;
        return false;
    }

    bool retain_;
    Leaves leaves_;
    const Wanted* wanted_;
    const nb::set* only_;
    Leading leading_;
    std::map<long long, Waiting, std::greater<>> waiting_;
    std::vector<std::pair<nb::object, nb::object>> held_;
    std::unordered_map<PyObject*, std::size_t> places_;
};

bool is_edge(PyObject* object) {
    return is_tensor(object) || (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2 &&
                                 is_node(PyTuple_GET_ITEM(object, 0)));
}

void begin_walk(Walk& walk, const nb::list& roots) {
    for (nb::handle root : roots) {
        const nb::tuple pair = nb::cast<nb::tuple>(root);
        PyObject *edge = pair[0].ptr(), *gradient = pair[1].ptr();
        if (!is_edge(edge) || !is_tensor(gradient))
            raise("DTypeError", "expected edges with tensors as their gradients");
        walk.begin(edge, nb::borrow(gradient));
    }
}

void accumulate(const nb::list& roots, bool retain, bool create_graph, std::optional<nb::set> only,
                Leading leading) {
    const Recording mode(create_graph);
    Walk walk(retain, create_graph, nullptr, only ? &*only : nullptr, std::move(leading));
    begin_walk(walk, roots);
    walk.run();
}

void collect(const nb::list& roots, bool retain, bool create_graph, nb::dict leaves,
             nb::dict results, nb::list found, nb::dict leading, bool hooks) {
    const Recording mode(create_graph);
    const Wanted wanted{std::move(leaves), std::move(results), std::move(found), hooks};
    Walk walk(retain, create_graph, &wanted, nullptr, std::move(leading));
    begin_walk(walk, roots);
    walk.run();
}

// ---- elementwise operations -------------------------------------------------------------------

// Their gradient is a function of operands, result and weight, in this order. Per operand there is
// a way to it: None where no gradient is wanted; the place of an argument that it is; the number of
// an operation and the places of its arguments; or -1, the next output of a program.

/// The arrays and numbers that the ways of a node take; 0 for what it did not save.
std::vector<PyObject*> arguments_of(const NodeState* node, const nb::tuple& weights,
                                    bool with_result) {
    static PyObject* zero = PyFloat_FromDouble(0.0);
    std::vector<PyObject*> out;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->operands); ++i) {
        PyObject* each = PyTuple_GET_ITEM(node->operands, i);
        out.push_back(each == Py_None ? zero : is_tensor(each) ? tensor_of(each)->array : each);
    }
    if (with_result)
        out.push_back(is_none(node->results) ? zero : PyTuple_GET_ITEM(node->results, 0));
    for (nb::handle each : weights) {
        if (!is_tensor(each.ptr())) raise("DTypeError", "expected tensors as gradients");
        out.push_back(tensor_of(each.ptr())->array);
    }
    return out;
}

/// The outputs of a program, which `program` finds by the type of the weights.
nb::object outputs_of(const nb::object& program, PyObject* device,
                      const std::vector<PyObject*>& arguments) {
    static PyObject *name = name_of("map_program"), *dtype = name_of("dtype"),
                    *itemsize = name_of("itemsize");
    const nb::object bytes = get(get(arguments.back(), dtype).ptr(), itemsize);
    nb::object listed = nb::steal(new_tuple(static_cast<Py_ssize_t>(arguments.size())));
    for (std::size_t i = 0; i < arguments.size(); ++i)
        PyTuple_SET_ITEM(listed.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
    const nb::object found = program(PyLong_AsLong(bytes.ptr()) == 8 ? "float64" : "float32");
    PyObject* both[] = {found.ptr(), listed.ptr()};
    return call(get(device, name).ptr(), {both, 2});
}

nb::object run_way(PyObject* way, PyObject* device, const std::vector<PyObject*>& arguments) {
    static PyObject* map1 = name_of("map1");
    const auto argument = [&](Py_ssize_t i) {
        return arguments.at(PyLong_AsSize_t(PyTuple_GET_ITEM(way, i)));
    };
    PyObject* op = PyTuple_GET_ITEM(way, 0);
    return PyTuple_GET_SIZE(way) == 2 ? mapped(device, map1, {op, argument(1)})
                                      : mapped(device, map2_name(), {op, argument(1), argument(2)});
}

/// What was saved is gone, or was changed: the node's own property says which.
[[noreturn]] void raise_lost(nb::handle node) {
    const nb::object inputs = node.attr("inputs");
    raise("GradError", "expected " + type_name(inputs.ptr()) + " as it was saved");
}

nb::object elementwise_gradient(nb::handle object, const nb::tuple& weights, const nb::tuple& ways,
                                const nb::object& program, bool with_result) {
    if (!is_node(object.ptr())) raise("DTypeError", "expected a node");
    NodeState* node = node_of(object.ptr());
    if (is_none(node->operands) || !unchanged(node)) raise_lost(object);
    const nb::object operands =
        nb::borrow(node->operands);  // a thread may let go of them meanwhile
    const nb::object results = nb::borrow(node->results);
    const std::vector<PyObject*> arguments = arguments_of(node, weights, with_result);
    const std::size_t first_weight = arguments.size() - weights.size();
    nb::object outputs;
    if (!program.is_none()) outputs = outputs_of(program, node->device, arguments);
    Py_ssize_t next = 0;
    nb::object found = nb::steal(new_tuple(static_cast<Py_ssize_t>(ways.size())));
    for (std::size_t i = 0; i < ways.size(); ++i) {
        PyObject* way = ways[i].ptr();
        nb::object out = nb::none();
        if (PyTuple_Check(way)) {
            out = wrap(run_way(way, node->device, arguments).ptr(), node->device);
        } else if (way != Py_None) {
            const Py_ssize_t place = PyLong_AsSsize_t(way);
            if (place < 0)
                out = wrap(owned(PySequence_GetItem(outputs.ptr(), next++)).ptr(), node->device);
            else if (static_cast<std::size_t>(place) >= first_weight)
                out = weights[static_cast<std::size_t>(place) - first_weight];
            else
                out = wrap(arguments.at(static_cast<std::size_t>(place)), node->device);
        }
        PyTuple_SET_ITEM(found.ptr(), static_cast<Py_ssize_t>(i), out.release().ptr());
    }
    return found;
}

}  // namespace

void bind_walk(nb::module_& m) {
#define ROOTS "roots: list[tuple[typing.Any, typing.Any]], retain: bool, create_graph: bool"
#define LEADING "leading: dict[typing.Any, bool]"
    m.def("accumulate", &accumulate, nb::arg("roots"), nb::arg("retain"), nb::arg("create_graph"),
          nb::arg("only") = nb::none(), nb::arg("leading") = nb::none(),
          nb::sig("def accumulate(" ROOTS ", only: set[int] | None = None, " LEADING
                  " | None = None) -> None"),
          "Walks back from edges with gradients, and adds to the `grad` of leaves; or of those "
          "whose identities are named, over the nodes `leading`.");
    m.def("collect", &collect, nb::arg("roots"), nb::arg("retain"), nb::arg("create_graph"),
          nb::arg("leaves"), nb::arg("results"), nb::arg("found"), nb::arg("leading"),
          nb::arg("hooks"),
          nb::sig("def collect(" ROOTS ", leaves: dict[int, int], results: dict[tuple[typing.Any, "
                  "int], int], found: list[typing.Any], " LEADING ", hooks: bool) -> None"),
          "Walks back over the nodes `leading`, which say whether it goes on behind them, and puts "
          "gradients of leaves and of results into the places of a list; their hooks see them or "
          "not.");
#undef LEADING
    m.def("elementwise_gradient", &elementwise_gradient, nb::arg("node"), nb::arg("weights"),
          nb::arg("ways"), nb::arg("program").none(), nb::arg("with_result"),
          nb::sig("def elementwise_gradient(node: typing.Any, weights: tuple[typing.Any, ...], "
                  "ways: tuple[typing.Any, ...], program: collections.abc.Callable[[str], "
                  "typing.Any] | None, with_result: bool) -> tuple[typing.Any, ...]"),
          "The gradients of an elementwise operation by their ways; nothing is recorded.");
#undef ROOTS
}

}  // namespace tapegrad::bindings
