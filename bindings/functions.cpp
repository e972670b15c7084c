// bindings/functions.cpp -- the functions that record nodes: elementwise, and of sequences.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string_view>

#include "numpy.h"
#include "python.h"
#include "scalar/example.h"
#include "scalar/kernels.h"

namespace tapegrad::bindings {
namespace {

// ---- tensors ----------------------------------------------------------------------------------

/// The class of tensors and the module with its functions, once that is loaded. Functions here are
/// those of Vars and numbers; a tensor among their arguments sends them on.
PyObject* tensor_class = nullptr;
PyObject* tensor_functions = nullptr;

void set_tensors(nb::handle type, nb::handle functions) {
    Py_XSETREF(tensor_class, nb::borrow(type).release().ptr());
    Py_XSETREF(tensor_functions, nb::borrow(functions).release().ptr());
}

bool is_tensor(nb::handle object) {
    return tensor_class && PyObject_TypeCheck(object.ptr(), (PyTypeObject*)tensor_class);
}

bool takes_sequence(std::string_view name) {
    return name == "softmax" || name == "sum" || name == "prod" || name == "max" || name == "min" ||
           name == "logsumexp";
}

/// How many arguments a function of Vars takes; softmax, sum and the like take one sequence.
std::size_t argument_count(std::string_view name) {
    for (int op = 0; op < op_count; ++op)
        if (const OpInfo& of = info(static_cast<Op>(op)); of.name == name && of.arity > 0)
            return static_cast<std::size_t>(of.arity);
    return name == "dot" ? 2 : 1;
}

/// Passes a call on whose arguments the functions of Vars do not take, if it is for tensors.
nb::object of_tensors(const char* name, const nb::args& args, const nb::kwargs& kwargs) {
    for (nb::handle each : args)
        if (is_tensor(each)) return nb::handle(tensor_functions).attr(name)(*args, **kwargs);
    for (auto [_, each] : kwargs)
        if (is_tensor(each)) return nb::handle(tensor_functions).attr(name)(*args, **kwargs);
    Operand operand;
    if (args.size() > 1 && kwargs.size() == 0 && takes_sequence(name) &&
        std::all_of(args.begin(), args.end(),
                    [&](nb::handle each) { return to_operand(each.ptr(), operand); }))
        raise("DTypeError", std::string(name) + ": expected a sequence of Vars, got " +
                                std::to_string(args.size()) + " arguments; write " + name +
                                "([a, b, ...])");
    const std::size_t count = args.size() + kwargs.size(), wanted = argument_count(name);
    if (count != wanted)
        raise("DTypeError", std::string(name) + ": expected " + std::to_string(wanted) +
                                (wanted == 1 ? " argument" : " arguments") + ", got " +
                                std::to_string(count));
    std::string types;
    for (nb::handle each : args) types += (types.empty() ? "" : ", ") + type_name(each.ptr());
    raise("DTypeError", std::string(name) + ": expected Vars, numbers or sequences of them, or " +
                            "tensors, got (" + types + ")");
}

// ---- sequences of Vars ------------------------------------------------------------------------

struct Sequence {
    std::shared_ptr<Graph> graph;  ///< none if all are numbers
    std::vector<Operand> operands;
    nb::object keep;  ///< holds the items while operands point to them

    std::vector<NodeId> nodes(Graph& g) const {
        std::vector<NodeId> out;
        out.reserve(operands.size());
        for (const Operand& operand : operands) out.push_back(operand.in(g));
        return out;
    }
};

Sequence parse(const char* op, nb::handle object) {
    if (is_tensor(object)) throw nb::next_overload();
    if (as_var(object.ptr()))
        raise("ShapeError", std::string(op) + ": expected a sequence of Vars, got one Var; write " +
                                op + "([a, b, ...])");
    Sequence out;
    out.keep = items_of(object, std::string(op) + ": expected a sequence of Vars and numbers");
    PyObject** items = &PyTuple_GET_ITEM(out.keep.ptr(), 0);
    const Py_ssize_t count = PyTuple_GET_SIZE(out.keep.ptr());
    out.operands.resize(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
        Operand& operand = out.operands[static_cast<std::size_t>(i)];
        if (!to_operand(items[i], operand))
            raise("DTypeError", std::string(op) + ": expected Vars and numbers, element " +
                                    std::to_string(i) + " is a " + type_name(items[i]) +
                                    "; flatten nested sequences first");
        if (!operand.var) continue;
        if (!out.graph)
            out.graph = operand.var->graph;
        else if (out.graph != operand.var->graph)
            raise_two_graphs(op, out.graph, operand.var->graph);
    }
    return out;
}

nb::list projections(const std::shared_ptr<Graph>& graph, NodeId header, std::size_t count) {
    nb::list out;
    for (std::size_t i = 0; i < count; ++i)
        out.append(make_var(graph, header + 1 + static_cast<NodeId>(i)));
    return out;
}

NodeId record_nary(Graph& graph, Op op, const std::vector<NodeId>& nodes) {
    if (op != Op::dot && nodes.size() == 1) {
        if (op == Op::logsumexp || op == Op::sum || op == Op::prod || op == Op::max ||
            op == Op::min)
            return nodes[0];
    }
    if (op == Op::sum && nodes.size() == 2) return graph.binary(Op::add, nodes[0], nodes[1]);
    if (op == Op::prod && nodes.size() == 2) return graph.binary(Op::mul, nodes[0], nodes[1]);
    if (op == Op::dot && nodes.size() == 2) return graph.binary(Op::mul, nodes[0], nodes[1]);
    return graph.nary(op, nodes);
}

nb::object reduce(Op op, const Sequence& sequence, const std::vector<NodeId>& nodes,
                  const std::shared_ptr<Graph>& graph) {
    const NodeId id = record_nary(*graph, op, nodes);
    if (sequence.graph) return make_var(graph, id);
    return nb::float_(evaluate_constants(*graph, std::span(&id, 1))[0]);
}

nb::object reduction(Op op, nb::handle values) {
    if (is_tensor(values)) return nb::handle(tensor_functions).attr(info(op).name)(values);
    const Sequence sequence = parse(info(op).name, values);
    if (sequence.operands.empty()) {
        if (op == Op::sum) return nb::float_(0.0);
        if (op == Op::prod) return nb::float_(1.0);
        raise("ShapeError", std::string(info(op).name) +
                                ": expected at least one operand, got an empty sequence");
    }
    auto graph = sequence.graph ? sequence.graph : std::make_shared<Graph>();
    return reduce(op, sequence, sequence.nodes(*graph), graph);
}

nb::object dot(nb::handle first, nb::handle second) {
    const Sequence a = parse("dot", first), b = parse("dot", second);
    if (a.operands.size() != b.operands.size())
        raise("ShapeError", "dot: expected two sequences of one length, got " +
                                std::to_string(a.operands.size()) + " and " +
                                std::to_string(b.operands.size()));
    if (a.graph && b.graph && a.graph != b.graph) raise_two_graphs("dot", a.graph, b.graph);
    if (a.operands.empty()) return nb::float_(0.0);
    auto graph = a.graph ? a.graph : b.graph ? b.graph : std::make_shared<Graph>();
    std::vector<NodeId> pairs;
    pairs.reserve(2 * a.operands.size());
    for (std::size_t i = 0; i < a.operands.size(); ++i) {
        pairs.push_back(a.operands[i].in(*graph));
        pairs.push_back(b.operands[i].in(*graph));
    }
    return reduce(Op::dot, a.graph ? a : b, pairs, graph);
}

nb::list softmax(nb::handle values) {
    const Sequence sequence = parse("softmax", values);
    const auto count = sequence.operands.size();
    if (!count)
        raise("ShapeError", "softmax: expected at least one operand, got an empty sequence");
    auto graph = sequence.graph ? sequence.graph : std::make_shared<Graph>();
    const NodeId header =
        graph->multi(Op::softmax, sequence.nodes(*graph), static_cast<std::uint32_t>(count));
    if (sequence.graph) return projections(graph, header, count);
    std::vector<NodeId> results;
    for (std::size_t i = 0; i < count; ++i) results.push_back(header + 1 + static_cast<NodeId>(i));
    nb::list out;
    for (double value : evaluate_constants(*graph, results)) out.append(value);
    return out;
}

// ---- elementwise functions --------------------------------------------------------------------

/// How deep arrays lie within arrays: one that contains itself would exhaust the stack.
class Nesting {
   public:
    Nesting() {
        if (depth_ >= 20) {
            PyErr_SetString(PyExc_RecursionError,
                            "an array of arrays of arrays, 20 deep: does it contain itself?");
            throw nb::python_error();
        }
        ++depth_;
    }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    static thread_local int depth_;
};
thread_local int Nesting::depth_ = 0;

/// Records one element of each array, or computes it from numbers.
using Recorder = nb::object (*)(const Operand* operands);
constexpr int max_operands = 3;

/// An argument of an elementwise function: an array, or one operand for all elements.
struct Side {
    nb::object array;
    Operand operand;
    bool of_objects = false;

    /// False if it is neither a Var, nor a real number, nor a plain array or VarArray of them.
    bool take(nb::handle object, nb::handle var_array) {
        if (!PyArray_Check(object.ptr())) return to_operand(object.ptr(), operand);
        if (!PyArray_CheckExact(object.ptr()) && !object.type().is(var_array)) return false;
        const int type = PyArray_TYPE(reinterpret_cast<PyArrayObject*>(object.ptr()));
        of_objects = type == NPY_OBJECT;
        if (of_objects) {
            array = nb::borrow(object);
            return true;
        }
        if (!PyTypeNum_ISINTEGER(type) && !PyTypeNum_ISFLOAT(type) && !PyTypeNum_ISBOOL(type))
            return false;
        constexpr int flags = NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST;
        array = nb::steal(PyArray_FROM_OTF(object.ptr(), NPY_DOUBLE, flags));
        if (!array.is_valid()) throw nb::python_error();
        return true;
    }

    /// False for all but Vars and numbers of Python's own types: others may run code of theirs when
    /// they are asked for their value, and change the array.
    bool read(const void* element) {
        operand = {};
        if (!of_objects) {
            operand.number = *static_cast<const double*>(element);
            return true;
        }
        auto* item = *static_cast<PyObject* const*>(element);
        if (!item) return false;
        const bool known = as_var(item) || PyFloat_CheckExact(item) || PyLong_CheckExact(item);
        return known && to_operand(item, operand);
    }
};

/// Records element by element without a call of Python for each; nothing if that does not suffice:
/// results of numbers alone, arrays without dimensions, elements that are neither Vars nor numbers.
nb::object record_arrays(Recorder recorder, const nb::tuple& arguments) {
    const auto count = static_cast<int>(arguments.size());
    Side sides[max_operands];
    PyObject* arrays[max_operands];
    int places[max_operands], n_arrays = 0;
    bool of_vars = false, is_var_array = false;
    const nb::object var_array = var_array_type();
    for (int i = 0; i < count; ++i) {
        Side& side = sides[i];
        const nb::handle argument = arguments[static_cast<std::size_t>(i)];
        if (!side.take(argument, var_array)) return {};
        is_var_array = is_var_array || side.operand.var || argument.type().is(var_array);
        of_vars = of_vars || side.of_objects || side.operand.var;
        if (!side.array.is_valid()) continue;
        places[n_arrays] = i;
        arrays[n_arrays++] = side.array.ptr();
    }
    if (!of_vars) return {};
    const nb::object together = nb::steal(PyArray_MultiIterFromObjects(arrays, n_arrays, 0));
    if (!together.is_valid()) throw nb::python_error();
    auto* all = reinterpret_cast<PyArrayMultiIterObject*>(together.ptr());
    if (!all->nd) return {};
    nb::object results = nb::steal(PyArray_SimpleNew(all->nd, all->dimensions, NPY_OBJECT));
    if (!results.is_valid()) throw nb::python_error();
    auto** result =
        static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(results.ptr())));
    Operand operands[max_operands];
    for (int i = 0; i < count; ++i) operands[i] = sides[i].operand;
    while (PyArray_MultiIter_NOTDONE(all)) {
        for (int k = 0; k < n_arrays; ++k) {
            Side& side = sides[places[k]];
            if (!side.read(PyArray_MultiIter_DATA(all, k))) return {};
            operands[places[k]] = side.operand;
        }
        Py_XSETREF(*result, recorder(operands).release().ptr());
        ++result;
        PyArray_MultiIter_NEXT(all);
    }
    return is_var_array ? nb::object(results.attr("view")(var_array)) : results;
}

/// NumPy looks at the processor's flags after a function, and would warn of those that branch-free
/// code sets on the way to right results.
class Unwatched {
   public:
    explicit Unwatched(nb::handle numpy)
        : state_(numpy.attr("errstate")(nb::arg("all") = "ignore")) {
        state_.attr("__enter__")();
    }
    ~Unwatched() {
        nb::error_scope scope;
        PyObject* left =
            PyObject_CallMethod(state_.ptr(), "__exit__", "OOO", Py_None, Py_None, Py_None);
        if (!left) PyErr_Clear();
        Py_XDECREF(left);
    }
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;

   private:
    nb::object state_;
};

/// Applies a function of this module to every element of broadcast arrays. Arrays of numbers give
/// arrays of float64; with a Var or a VarArray they give VarArrays; plain arrays of objects alone
/// give plain ones, as NumPy's operators do.
nb::object over_arrays(nb::handle function, Recorder recorder, const nb::tuple& arguments) {
    if (nb::object recorded = record_arrays(recorder, arguments); recorded.is_valid())
        return recorded;
    nb::module_ numpy = nb::module_::import_("numpy");
    const Nesting nesting;
    const Unwatched unwatched(numpy);
    nb::object mapped =
        numpy.attr("frompyfunc")(function, arguments.size(), 1)(*nb::borrow<nb::args>(arguments));
    if (!PyArray_Check(mapped.ptr())) return mapped;  // of arrays without dimensions
    for (nb::handle argument : arguments)
        if (as_var(argument.ptr())) return mapped.attr("view")(var_array_type());
    for (nb::handle argument : arguments)
        if (PyArray_Check(argument.ptr()) &&
            PyArray_TYPE(reinterpret_cast<PyArrayObject*>(argument.ptr())) == NPY_OBJECT)
            return mapped;
    return mapped.attr("astype")("float64");
}

nb::object over_arrays(const char* name, Recorder recorder, const nb::tuple& arguments) {
    return over_arrays(nb::module_::import_("tapegrad._core").attr("functions").attr(name),
                       recorder, arguments);
}

bool any_array(std::initializer_list<nb::handle> objects) {
    for (nb::handle object : objects)
        if (PyArray_Check(object.ptr())) return true;
    return false;
}

Operand operand_of(const char* op, nb::handle object) {
    Operand operand;
    if (to_operand(object.ptr(), operand)) return operand;
    raise("DTypeError", std::string(op) +
                            ": expected a Var, a real number or an array of them, got " +
                            type_name(object.ptr()));
}

template <Op op>
nb::object record_unary(const Operand* operands) {
    const Var* var = operands[0].var;
    if (!var) return nb::float_(fold(op, operands[0].number, 0.0));
    return make_var(var->graph, var->graph->unary(op, var->id));
}

template <Op op>
nb::object unary_function(nb::handle a) {
    if (is_tensor(a)) return nb::handle(tensor_functions).attr(info(op).name)(a);
    if (any_array({a})) return over_arrays(info(op).name, record_unary<op>, nb::make_tuple(a));
    const Operand operand = operand_of(info(op).name, a);
    return record_unary<op>(&operand);
}

template <Op op>
nb::object record_pair(const Operand* operands) {
    return record_binary(op, operands[0], operands[1]);
}

template <Op op>
nb::object binary_function(nb::handle a, nb::handle b) {
    if (is_tensor(a) || is_tensor(b)) return nb::handle(tensor_functions).attr(info(op).name)(a, b);
    if (any_array({a, b})) return over_arrays(info(op).name, record_pair<op>, nb::make_tuple(a, b));
    return record_binary(op, operand_of(info(op).name, a), operand_of(info(op).name, b));
}

/// a ** b as Python means it; tg.pow is the function, whatever the exponent.
nb::object power(nb::handle a, nb::handle b) {
    const auto recorder = [](const Operand* each) { return record_power(each[0], each[1]); };
    if (any_array({a, b}))
        return over_arrays(nb::module_::import_("tapegrad._core").attr("power"), recorder,
                           nb::make_tuple(a, b));
    return record_power(operand_of("power", a), operand_of("power", b));
}

nb::object record_where(const Operand* operands) {
    const Operand &condition = operands[0], &first = operands[1], &second = operands[2];
    std::shared_ptr<Graph> graph;
    for (const Operand* operand : {&condition, &first, &second}) {
        if (!operand->var) continue;
        if (graph && graph != operand->var->graph)
            raise_two_graphs("where", graph, operand->var->graph);
        graph = operand->var->graph;
    }
    if (!graph) return nb::float_(condition.number != 0.0 ? first.number : second.number);
    const NodeId ic = condition.in(*graph), ia = first.in(*graph), ib = second.in(*graph);
    return make_var(graph, graph->where(ic, ia, ib));
}

nb::object where(nb::handle c, nb::handle a, nb::handle b) {
    if (is_tensor(c)) return nb::handle(tensor_functions).attr("where")(c, a, b);
    if (any_array({c, a, b})) return over_arrays("where", record_where, nb::make_tuple(c, a, b));
    const Operand operands[] = {operand_of("where", c), operand_of("where", a),
                                operand_of("where", b)};
    return record_where(operands);
}

}  // namespace

namespace {

/// What is no Var, number or sequence of them, or has further arguments, may be a tensor's.
void bind_for_tensors(nb::module_& f, const std::string& name) {
    static std::vector<std::unique_ptr<std::string>> texts;  // nanobind keeps the pointers
    texts.push_back(std::make_unique<std::string>(name));
    const char* kept = texts.back()->c_str();
    texts.push_back(std::make_unique<std::string>(
        "def " + name + "(*args: typing.Any, **kwargs: typing.Any) -> typing.Any"));
    f.def(
        kept,
        [kept](const nb::args& args, const nb::kwargs& kwargs) {
            return of_tensors(kept, args, kwargs);
        },
        nb::sig(texts.back()->c_str()));
}

}  // namespace

void bind_functions(nb::module_& m) {
    nb::module_ f = m.def_submodule("functions", "Functions of Vars, numbers and arrays of them.");
    nb::list names;
#define ARRAY "numpy.typing.NDArray[typing.Any]"
#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                \
    f.def(#name, &unary_function<Op::name>, nb::arg("a"),                   \
          nb::sig("def " #name "(a: " ANY_OPERAND ") -> typing.Any"), doc); \
    names.append(#name);
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)                                \
    f.def(#name, &binary_function<Op::name>, nb::arg("a"), nb::arg("b"),                        \
          nb::sig("def " #name "(a: " ANY_OPERAND ", b: " ANY_OPERAND ") -> typing.Any"), doc); \
    names.append(#name);
#define ANY_OPERAND "tapegrad._core.Var | float | " ARRAY
#include "scalar/ops.def"
#undef OP1
#undef OP2
    f.def("where", &where, nb::arg("condition"), nb::arg("a"), nb::arg("b"),
          nb::sig("def where(condition: " ANY_OPERAND ", a: " ANY_OPERAND ", b: " ANY_OPERAND
                  ") -> typing.Any"),
          info(Op::where).doc);
#define REDUCTION(name)                                                                          \
    f.def(                                                                                       \
        #name, [](nb::handle values) { return reduction(Op::name, values); }, nb::arg("values"), \
        nb::sig("def " #name "(values: collections.abc.Iterable[typing.Any]) -> typing.Any"),    \
        info(Op::name).doc);                                                                     \
    names.append(#name);
    REDUCTION(sum)
    REDUCTION(prod)
    REDUCTION(max)
    REDUCTION(min)
    REDUCTION(logsumexp)
    f.def("dot", &dot, nb::arg("a"), nb::arg("b"),
          nb::sig("def dot(a: collections.abc.Iterable[typing.Any], b: "
                  "collections.abc.Iterable[typing.Any]) -> typing.Any"),
          info(Op::dot).doc);
    f.def("softmax", &softmax, nb::arg("values"),
          nb::sig("def softmax(values: collections.abc.Iterable[typing.Any]) -> list[typing.Any]"),
          info(Op::softmax).doc);
    for (const char* name : {"where", "dot", "softmax"}) names.append(name);
    for (nb::handle each : names) bind_for_tensors(f, nb::cast<std::string>(each));
    f.attr("__all__") = names;
    m.def("power", &power, nb::arg("a"), nb::arg("b"),
          nb::sig("def power(a: " ANY_OPERAND ", b: " ANY_OPERAND ") -> typing.Any"),
          "a ** b of Vars, numbers and arrays of them.");
    m.def("set_tensors", &set_tensors, nb::arg("type"), nb::arg("functions"),
          "Sends calls with tensors among their arguments on to a module of functions of these.");
}

}  // namespace tapegrad::bindings
