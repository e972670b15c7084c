// bindings/graph.cpp -- Graph and Var.
//
// Operators go straight into the type's number slots: recording `a * b` takes about 110 ns, 70 ns
// if the node exists; a call of tg.mul takes 40 ns more.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "errors.h"
#include "numpy.h"
#include "python.h"
#include "scalar/example.h"
#include "scalar/kernels.h"

namespace tapegrad::bindings {
namespace {

PyTypeObject* var_type = nullptr;
/// Handles that are kept for new Vars; making one from scratch takes 20 ns more.
constexpr std::uint32_t kept_vars = 8192;

bool is_numpy_real(PyObject* object) {
    return PyArray_IsScalar(object, Floating) || PyArray_IsScalar(object, Integer) ||
           PyArray_IsScalar(object, Bool);
}

/// Runs a slot's body; C++ exceptions become Python errors.
template <class Body>
PyObject* guarded(Body body) noexcept {
    try {
        return body();
    } catch (nb::python_error& e) {
        e.restore();
    } catch (const GraphError& e) {
        PyErr_SetString(nb::module_::import_("tapegrad.errors").attr("GraphError").ptr(), e.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

PyObject* not_implemented() {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
}

template <Op op>
PyObject* binary_slot(PyObject* a, PyObject* b) {
    return guarded([&] {
        Operand left, right;
        if (!to_operand(a, left) || !to_operand(b, right)) return not_implemented();
        return record_binary(op, left, right).release().ptr();
    });
}

template <Op op>
PyObject* unary_slot(PyObject* a) {
    return guarded([&] {
        const Var& var = *as_var(a);
        return make_var(var.graph, var.graph->unary(op, var.id)).release().ptr();
    });
}

PyObject* power_slot(PyObject* a, PyObject* b, PyObject* modulus) {
    return guarded([&] {
        Operand left, right;
        if (modulus != Py_None || !to_operand(a, left) || !to_operand(b, right))
            return not_implemented();
        return record_power(left, right).release().ptr();
    });
}

PyObject* divmod_slot(PyObject* a, PyObject* b) {
    return guarded([&] {
        Operand left, right;
        if (!to_operand(a, left) || !to_operand(b, right)) return not_implemented();
        return nb::make_tuple(record_binary(Op::floor_divide, left, right),
                              record_binary(Op::remainder, left, right))
            .release()
            .ptr();
    });
}

/// What a ufunc of NumPy records: `&`, `|`, `^` and `~` of conditions are rare, and need not be
/// quick.
template <class... Operands>
PyObject* ufunc(const char* name, Operands... operands) {
    return guarded([&] {
        Operand known;
        if (!(to_operand(operands, known) && ...)) return not_implemented();
        return nb::module_::import_("numpy").attr(name)(nb::handle(operands)...).release().ptr();
    });
}

PyObject* and_slot(PyObject* a, PyObject* b) { return ufunc("bitwise_and", a, b); }
PyObject* or_slot(PyObject* a, PyObject* b) { return ufunc("bitwise_or", a, b); }
PyObject* xor_slot(PyObject* a, PyObject* b) { return ufunc("bitwise_xor", a, b); }
PyObject* invert_slot(PyObject* a) { return ufunc("invert", a); }

PyObject* positive_slot(PyObject* a) {
    Py_INCREF(a);
    return a;
}

PyObject* compare_slot(PyObject* a, PyObject* b, int how) {
    switch (how) {
        case Py_LT:
            return binary_slot<Op::lt>(a, b);
        case Py_LE:
            return binary_slot<Op::le>(a, b);
        case Py_GT:
            return binary_slot<Op::gt>(a, b);
        case Py_GE:
            return binary_slot<Op::ge>(a, b);
        case Py_EQ:
            return binary_slot<Op::eq>(a, b);
        default:
            return binary_slot<Op::ne>(a, b);
    }
}

Py_hash_t hash_slot(PyObject* a) {
    const Var& var = *as_var(a);
    auto hash =
        static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(var.graph.get()) / 16 * 1000003u) ^
        static_cast<Py_hash_t>(var.id);
    return hash == -1 ? -2 : hash;
}

std::string number_text(double value) {
    nb::object text = nb::steal(PyObject_Repr(nb::float_(value).ptr()));
    return nb::cast<std::string>(text);
}

/// How a node is called as an operand: its name, its number, or its place.
std::string short_text(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    if (node.op() == Op::constant) return number_text(graph.constant_value(id));
    if (node.op() == Op::input && !graph.input_name(node.a).empty())
        return graph.input_name(node.a);
    if (node.op() == Op::projection)
        return "%" + std::to_string(node.a) + "[" + std::to_string(node.b) + "]";
    return "%" + std::to_string(id);
}

/// How a node is made, as log(x).
std::string formula(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    if (node.op() == Op::constant || node.op() == Op::input) return short_text(graph, id);
    const bool projected = node.op() == Op::projection;
    const NodeId source = projected ? node.a : id;
    std::string text = graph.op(source) == Op::custom ? graph.custom_of(source)->name
                                                      : info(graph.op(source)).name;
    text += "(";
    auto operands = graph.operands(source);
    constexpr std::size_t shown = 6;
    for (std::size_t i = 0; i < operands.size() && i < shown; ++i)
        text += (i ? ", " : "") + short_text(graph, operands[i]);
    if (operands.size() > shown) text += ", ... " + std::to_string(operands.size()) + " operands";
    return text + ")" + (projected ? "[" + std::to_string(node.b) + "]" : "");
}

/// Whether a node compares another with itself: two handles on one node are equal, so that Vars
/// work as members of sets and keys of dicts. Only where it is NaN it is not equal to itself.
bool is_same(const Node& node) { return node.op() == Op::eq && node.a == node.b; }

/// The branch that the example takes, kept as a guard; -1 with a Python error if it takes none.
int frozen_truth(const Var& var) noexcept {
    int truth = -1;
    guarded([&]() -> PyObject* {
        const std::optional<double> value = var.graph->example->value(*var.graph, var.id);
        if (!value && is_same(var.graph->node(var.id))) {
            truth = 1;
            return nullptr;
        }
        if (!value)
            raise("GraphError",
                  "a branch needs example values: " + formula(*var.graph, var.id) +
                      " depends on an input without one, or on an argument of a scan step; give "
                      "them as g.input(value=...) or g.inputs(n, values=...), and use tg.where in "
                      "steps");
        const bool taken = *value != 0.0;
        var.graph->guard({var.id, taken, formula(*var.graph, var.id), current_place()});
        truth = taken;
        return nullptr;
    });
    return truth;
}

int bool_slot(PyObject* object) {
    const Var& var = *as_var(object);
    const Node& node = var.graph->node(var.id);
    if (node.op() == Op::constant) return var.graph->constant_value(var.id) != 0.0;
    if (var.graph->example) return frozen_truth(var);
    if (is_same(node)) return 1;
    PyErr_SetString(PyExc_TypeError,
                    "a Var has no truth value while the graph is recorded: `if`, `and`, `or`, `in` "
                    "and `sorted` on Vars would freeze one branch; use tg.where(condition, a, b), "
                    "tg.maximum or tg.minimum (or `is` to compare identity), or record with "
                    "tg.Graph(branches=\"freeze\")");
    return -1;
}

PyObject* new_slot(PyTypeObject*, PyObject*, PyObject*) {
    PyErr_SetString(PyExc_TypeError,
                    "Vars are made by Graph.input, Graph.inputs and by arithmetic on other Vars");
    return nullptr;
}

PyObject* number_slot(PyObject*) {
    PyErr_SetString(PyExc_TypeError,
                    "a Var has no value while the graph is recorded, so it cannot become a number: "
                    "compile it with tg.compile(var) and call the program, or use tg.where for a "
                    "choice (functions of `math` and float arrays need tapegrad's functions, as "
                    "tg.exp)");
    return nullptr;
}

/// What f"{var}" shows; digits, as in f"{var:.3f}", are of numbers.
nb::object formatted(nb::handle var, const std::string& format) {
    if (format.empty()) return nb::repr(var);
    PyErr_Format(PyExc_TypeError,
                 "a Var has no value while the graph is recorded, so it cannot be shown as '%s': "
                 "compile it with tg.compile(var) and format what the program returns",
                 format.c_str());
    throw nb::python_error();
}

PyType_Slot var_slots[] = {
    {Py_nb_add, reinterpret_cast<void*>(binary_slot<Op::add>)},
    {Py_nb_subtract, reinterpret_cast<void*>(binary_slot<Op::sub>)},
    {Py_nb_multiply, reinterpret_cast<void*>(binary_slot<Op::mul>)},
    {Py_nb_true_divide, reinterpret_cast<void*>(binary_slot<Op::div>)},
    {Py_nb_floor_divide, reinterpret_cast<void*>(binary_slot<Op::floor_divide>)},
    {Py_nb_remainder, reinterpret_cast<void*>(binary_slot<Op::remainder>)},
    {Py_nb_divmod, reinterpret_cast<void*>(divmod_slot)},
    {Py_nb_power, reinterpret_cast<void*>(power_slot)},
    {Py_nb_and, reinterpret_cast<void*>(and_slot)},
    {Py_nb_or, reinterpret_cast<void*>(or_slot)},
    {Py_nb_xor, reinterpret_cast<void*>(xor_slot)},
    {Py_nb_invert, reinterpret_cast<void*>(invert_slot)},
    {Py_nb_negative, reinterpret_cast<void*>(unary_slot<Op::neg>)},
    {Py_nb_positive, reinterpret_cast<void*>(positive_slot)},
    {Py_nb_absolute, reinterpret_cast<void*>(unary_slot<Op::abs>)},
    {Py_nb_bool, reinterpret_cast<void*>(bool_slot)},
    {Py_nb_float, reinterpret_cast<void*>(number_slot)},
    {Py_nb_int, reinterpret_cast<void*>(number_slot)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare_slot)},
    {Py_tp_hash, reinterpret_cast<void*>(hash_slot)},
    {Py_tp_new, reinterpret_cast<void*>(new_slot)},
    {0, nullptr},
};

// ---- Var and Graph ----------------------------------------------------------------------------

std::string describe(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    const std::string label = "Var(%" + std::to_string(id) + " = ";
    if (node.op() == Op::constant) return label + number_text(graph.constant_value(id)) + ")";
    if (node.op() == Op::input) {
        if (graph.is_placeholder(id)) return label + "argument of a scan step)";
        const std::string& name = graph.input_name(node.a);
        return label + "input " + (name.empty() ? std::to_string(node.a) : "'" + name + "'") + ")";
    }
    return label + formula(graph, id) + ")";
}

void check_examples(const Graph& graph) {
    if (!graph.example)
        raise("OptionError",
              "input: example values are for branches; make the graph as "
              "tg.Graph(branches=\"freeze\")");
}

/// The examples of `count` inputs, none if there are none.
std::vector<double> example_values(const Graph& graph, nb::handle values, std::int64_t count) {
    if (values.is_none()) return {};
    check_examples(graph);
    check_unmasked("inputs: values", values.ptr());
    nb::object array = nb::steal(PyArray_FROMANY(values.ptr(), NPY_DOUBLE, 1, 1, NPY_ARRAY_CARRAY));
    if (!array.is_valid()) throw nb::python_error();
    auto* raw = reinterpret_cast<PyArrayObject*>(array.ptr());
    if (PyArray_SIZE(raw) != count)
        raise("ShapeError", "inputs: expected " + std::to_string(count) + " values, got " +
                                std::to_string(PyArray_SIZE(raw)));
    const auto* data = static_cast<const double*>(PyArray_DATA(raw));
    return {data, data + count};
}

/// What nothing is computed from, other than constants and what lies in steps of scans.
nb::list loose_ends(const std::shared_ptr<Graph>& graph) {
    const auto size = static_cast<NodeId>(graph->size());
    std::vector<char> skipped(size, false);
    for (NodeId id = 0; id < size; ++id) {
        skipped[id] = graph->is_placeholder(id);
        for (NodeId operand : graph->operands(id)) skipped[id] |= skipped[operand] == 1;
    }
    for (NodeId id = 0; id < size; ++id)
        if (!skipped[id])
            for (NodeId operand : graph->operands(id)) skipped[operand] |= 2;
    nb::list out;
    for (NodeId id = 0; id < size; ++id)
        if (!skipped[id] && !graph->is_constant(id) && !has_projections(graph->op(id)))
            out.append(make_var(graph, id));
    return out;
}

nb::module_ picture() { return nb::module_::import_("tapegrad.scalar.picture"); }

nb::object inputs_array(const std::shared_ptr<Graph>& graph, nb::handle number, nb::handle called,
                        nb::handle values) {
    const std::optional<std::string> name = name_of(called, "inputs");
    if (!PyIndex_Check(number.ptr()))
        raise("DTypeError", "inputs: expected a whole number as the count, got " +
                                type_name(number.ptr()) + "; write inputs(3)");
    const std::int64_t count = PyNumber_AsSsize_t(number.ptr(), nullptr);
    if (count == -1 && PyErr_Occurred()) throw nb::python_error();
    if (count < 0)
        raise("ShapeError", "inputs: expected a count of 0 or more, got " + std::to_string(count));
    if (count >= no_node)
        raise("ShapeError", "inputs: a graph has at most 4,294,967,294 nodes, got a count of " +
                                std::to_string(count));
    const std::vector<double> examples = example_values(*graph, values, count);
    std::vector<NodeId> ids;
    ids.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        ids.push_back(graph->input(name ? *name + "[" + std::to_string(i) + "]" : std::string()));
        if (!examples.empty())
            graph->example->set_input(graph->node(ids.back()).a,
                                      examples[static_cast<std::size_t>(i)]);
    }
    return array_of_vars(graph, ids);
}

nb::tuple operands_tuple(const Var& var) {
    nb::list out;
    for (NodeId id : var.graph->operands(var.id)) out.append(make_var(var.graph, id));
    return nb::tuple(out);
}

/// The items of an array of objects with one dimension; nothing for any other object.
nb::object items_of_array(PyObject* object) {
    if (!PyArray_Check(object)) return {};
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    if (PyArray_NDIM(array) != 1 || PyArray_TYPE(array) != NPY_OBJECT) return {};
    const npy_intp count = PyArray_DIM(array, 0);
    nb::object items = nb::steal(PyTuple_New(count));
    if (!items.is_valid()) throw nb::python_error();
    for (npy_intp i = 0; i < count; ++i) {
        PyObject* item = *static_cast<PyObject**>(PyArray_GETPTR1(array, i));
        PyTuple_SET_ITEM(items.ptr(), i, Py_NewRef(item ? item : Py_None));
    }
    return items;
}

}  // namespace

void raise_two_graphs(const char* op, const std::shared_ptr<Graph>& a,
                      const std::shared_ptr<Graph>& b) {
    const nb::object type = error_class("GraphError");
    const nb::object error =
        type(std::string(op) +
             ": the operands belong to two graphs; record both in one Graph, or compile one and "
             "feed its result in as an input");
    error.attr("graphs") = nb::make_tuple(a, b);
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
}

nb::object record_binary(Op op, const Operand& a, const Operand& b) {
    if (!a.var && !b.var) return nb::float_(fold(op, a.number, b.number));
    if (a.var && b.var && a.var->graph != b.var->graph)
        raise_two_graphs(info(op).name, a.var->graph, b.var->graph);
    const auto& graph = a.var ? a.var->graph : b.var->graph;
    const NodeId left = a.in(*graph), right = b.in(*graph);
    return make_var(graph, graph->binary(op, left, right));
}

/// Powers -1 to 4 are products and a quotient: exact to 2 ULP, many times faster than pow.
nb::object record_power(const Operand& a, const Operand& b) {
    if (!a.var || b.var) return record_binary(Op::pow, a, b);
    const auto& graph = a.var->graph;
    Graph& g = *graph;
    const NodeId x = a.var->id;
    const double e = b.number;
    if (e == 0.0) return make_var(graph, g.constant(1.0));
    if (e == 1.0) return make_var(graph, x);
    if (e == -1.0) return make_var(graph, g.binary(Op::div, g.constant(1.0), x));
    if (e == 2.0 || e == 3.0 || e == 4.0) {
        const NodeId square = g.unary(Op::square, x);
        if (e == 2.0) return make_var(graph, square);
        return make_var(graph,
                        e == 3.0 ? g.binary(Op::mul, square, x) : g.unary(Op::square, square));
    }
    return record_binary(Op::pow, a, b);
}

nb::object items_of(nb::handle object, const std::string& expected) {
    if (nb::object items = items_of_array(object.ptr()); items.is_valid()) return items;
    const bool iterates = nb::hasattr(object, "__iter__");
    nb::object items = nb::steal(PySequence_Tuple(object.ptr()));
    if (items.is_valid()) return items;
    // An error within the iteration is the user's own; only a lack of iteration is ours to explain.
    if (iterates) throw nb::python_error();
    PyErr_Clear();
    raise("DTypeError", expected + ", got " + type_name(object.ptr()));
}

bool to_operand(PyObject* object, Operand& operand) {
    if (const Var* var = as_var(object)) {
        operand.var = var;
        return true;
    }
    if (PyFloat_Check(object)) {
        operand.number = PyFloat_AS_DOUBLE(object);
        return true;
    }
    if (PyArray_IsScalar(object, Timedelta)) {  // NumPy counts it among the integers
        PyErr_SetString(PyExc_TypeError, "a Var takes numbers, got a numpy.timedelta64");
        throw nb::python_error();
    }
    if (PyLong_Check(object) || is_numpy_real(object)) {
        operand.number = PyFloat_AsDouble(object);
        if (operand.number == -1.0 && PyErr_Occurred()) throw nb::python_error();
        return true;
    }
    return false;
}

const Var* as_var(PyObject* object) {
    return Py_TYPE(object) == var_type ? nb::inst_ptr<Var>(nb::handle(object)) : nullptr;
}

nb::object make_var(const std::shared_ptr<Graph>& graph, NodeId id) {
    nb::object object = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(var_type)));
    graph->show(id);
    new (nb::inst_ptr<Var>(object)) Var{graph, id};
    nb::inst_mark_ready(object);
    return object;
}

nb::object array_of_vars(const std::shared_ptr<Graph>& graph, const std::vector<NodeId>& ids) {
    npy_intp shape[1] = {static_cast<npy_intp>(ids.size())};
    nb::object array = nb::steal(PyArray_SimpleNew(1, shape, NPY_OBJECT));
    if (!array.is_valid()) throw nb::python_error();
    auto** items =
        static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
    for (std::size_t i = 0; i < ids.size(); ++i)
        Py_XSETREF(items[i], make_var(graph, ids[i]).release().ptr());
    return array.attr("view")(var_array_type());
}

nb::object var_array_type() {
    return nb::module_::import_("tapegrad.scalar.arrays").attr("VarArray");
}

Vars vars_of(nb::handle sequence, const char* what) {
    Vars out{items_of(sequence, std::string(what) + ": expected a Var or a sequence of Vars"), {}};
    out.all.reserve(static_cast<std::size_t>(PyTuple_GET_SIZE(out.keep.ptr())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(out.keep.ptr()); ++i) {
        PyObject* item = PyTuple_GET_ITEM(out.keep.ptr(), i);
        const Var* var = as_var(item);
        if (!var)
            raise("DTypeError", std::string(what) + ": expected Vars, element " +
                                    std::to_string(i) + " is a " + type_name(item));
        out.all.push_back(var);
    }
    return out;
}

const std::shared_ptr<Graph>& common_graph(const char* op, const Var& a, const Var& b) {
    if (a.graph != b.graph) raise_two_graphs(op, a.graph, b.graph);
    return a.graph;
}

void bind_graph(nb::module_& m) {
    nb::class_<Graph>(m, "Graph",
                      "The record of a scalar computation: an append-only list of nodes.")
        .def(
            "__init__",
            [](Graph* self, const std::string& branches, bool lines) {
                if (branches != "raise" && branches != "freeze")
                    raise("OptionError",
                          "Graph: expected branches 'raise' or 'freeze', got '" + branches + "'");
                new (self) Graph();
                self->show_all();
                if (branches == "freeze") self->example = std::make_shared<Example>();
                if (lines) self->here = record_place;
            },
            nb::kw_only(), nb::arg("branches") = "raise", nb::arg("lines") = false,
            nb::sig("def __init__(self, *, branches: typing.Literal['raise', 'freeze'] = 'raise', "
                    "lines: bool = False) -> None"),
            "branches='freeze': `if` on a Var takes the branch of the example values of the "
            "inputs, and programs raise BranchChanged where a point would take another. "
            "lines=True: every node knows the line of Python that recorded it.")
        .def(
            "input",
            [](const std::shared_ptr<Graph>& g, nb::handle name, nb::handle value) {
                std::optional<double> example;
                if (!value.is_none()) {
                    check_examples(*g);
                    example = real_of(value, "input: value");
                }
                const NodeId id = g->input(name_of(name, "input").value_or(""));
                if (example) g->example->set_input(g->node(id).a, *example);
                return make_var(g, id);
            },
            nb::arg("name") = nb::none(), nb::kw_only(), nb::arg("value") = nb::none(),
            nb::sig("def input(self, name: str | None = None, *, value: float | None = None) -> "
                    "Var"),
            "A new variable of the graph; `value` is an example, for branches='freeze'.")
        .def("inputs", &inputs_array, nb::arg("count").none(), nb::arg("name") = nb::none(),
             nb::kw_only(), nb::arg("values") = nb::none(),
             nb::sig("def inputs(self, count: int, name: str | None = None, *, values: "
                     "numpy.typing.ArrayLike | None = None) -> "
                     "numpy.typing.NDArray[numpy.object_]"),
             "An array of `count` new variables, named name[0], name[1], ...; `values` are "
             "examples, for branches='freeze'.")
        .def(
            "constant",
            [](const std::shared_ptr<Graph>& g, nb::handle value) {
                return make_var(g, g->constant(real_of(value, "constant")));
            },
            nb::arg("value").none(), nb::sig("def constant(self, value: float) -> Var"),
            "A number as a Var.")
        .def("__len__", &Graph::size)
        .def_prop_ro(
            "n_inputs", [](const Graph& g) { return g.inputs().size(); },
            "How many variables the graph has.")
        .def_prop_ro("nbytes", &Graph::bytes, "Memory held by the record.")
        .def("ends", &loose_ends, nb::sig("def ends(self) -> list[Var]"),
             "The Vars that no other one is computed from.")
        .def(
            "to_dot",
            [](const std::shared_ptr<Graph>& g, nb::handle outputs, nb::handle limit) {
                return picture().attr("of_graph")(g, outputs, limit);
            },
            nb::arg("outputs") = nb::none(), nb::kw_only(), nb::arg("limit") = 200,
            nb::sig("def to_dot(self, outputs: typing.Any = None, *, limit: int = 200) -> "
                    "typing.Any"),
            "A picture of what `outputs` are computed from, or all that nothing else uses.")
        .def(
            "_repr_mimebundle_",
            [](const std::shared_ptr<Graph>& g, nb::kwargs) { return picture().attr("bundle")(g); },
            nb::sig("def _repr_mimebundle_(self, **kwargs: typing.Any) -> dict[str, str]"),
            "What a notebook shows.")
        .def("__repr__", [](const Graph& g) {
            return "<Graph: " + std::to_string(g.size()) + " nodes, " +
                   std::to_string(g.inputs().size()) + " inputs>";
        });

    auto var = nb::class_<Var>(m, "Var", nb::type_slots(var_slots), nb::pooled(kept_vars),
                               "A scalar of a graph. Arithmetic on Vars records more nodes.");
    var_type = reinterpret_cast<PyTypeObject*>(var.ptr());
    var.def("__repr__", [](const Var& v) { return describe(*v.graph, v.id); })
        .def("__format__", &formatted, nb::arg("format"),
             nb::sig("def __format__(self, format: str, /) -> str"))
        .def_prop_ro(
            "graph", [](const Var& v) { return v.graph; }, "The graph it belongs to.")
        .def_prop_ro(
            "index", [](const Var& v) { return v.id; }, "Its place in the graph.")
        .def_prop_ro(
            "op", [](const Var& v) { return info(v.graph->op(v.id)).name; },
            "The operation that makes it: 'input', 'constant', 'mul', ...")
        .def_prop_ro("operands", &operands_tuple, nb::sig("def operands(self) -> tuple[Var, ...]"),
                     "What it is computed from.")
        .def_prop_ro(
            "value",
            [](const Var& v) -> std::optional<double> {
                return v.graph->example ? v.graph->example->value(*v.graph, v.id) : std::nullopt;
            },
            "Its value for the examples of a graph with branches='freeze', or None.")
        .def_prop_ro(
            "line",
            [](const Var& v) -> std::optional<std::string> {
                const std::string* place = recorded_place(v.graph->place(v.id));
                return place ? std::optional(*place) : std::nullopt;
            },
            "File and line that recorded it, in a graph with lines=True, or None.")
        .def_prop_ro(
            "name",
            [](const Var& v) -> std::optional<std::string> {
                const Node& node = v.graph->node(v.id);
                if (node.op() != Op::input || v.graph->input_name(node.a).empty())
                    return std::nullopt;
                return v.graph->input_name(node.a);
            },
            "The name of an input, or None.")
        // What NumPy's own numbers have, so that code for these runs on Vars.
        .def_prop_ro(
            "shape", [](const Var&) { return nb::tuple(); },
            nb::sig("def shape(self) -> tuple[()]"), "(), as of NumPy's numbers.")
        .def_prop_ro(
            "ndim", [](const Var&) { return 0; }, "0, as of NumPy's numbers.")
        .def_prop_ro(
            "size", [](const Var&) { return 1; }, "1, as of NumPy's numbers.")
        .def_prop_ro(
            "dtype",
            [](const Var&) {
                return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_OBJECT)));
            },
            nb::sig("def dtype(self) -> numpy.dtype[numpy.object_]"), "That of arrays of Vars.")
        .def_prop_ro(
            "T", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def T(self) -> Var"),
            "Itself, as of NumPy's numbers.");
    // Methods let NumPy's functions work on arrays of Vars: np.exp calls .exp() of each element.
#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                                   \
    var.def(                                                                                   \
        #name, [](const Var& v) { return make_var(v.graph, v.graph->unary(Op::name, v.id)); }, \
        nb::sig("def " #name "(self) -> Var"), doc);
#define OP2(...)
#include "scalar/ops.def"
#undef OP1
#undef OP2
}

}  // namespace tapegrad::bindings
