// bindings/program.cpp -- compiled programs on NumPy arrays: one point, many rows, columns.
//
// A call on a small program takes about as long as its argument checks, so these go through
// NumPy's C interface: 0.26 us in all.
#define TAPEGRAD_IMPORTS_NUMPY
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>

#include "compiled.h"
#include "guards.h"
#include "shared.h"

namespace tapegrad::bindings {
namespace {

/// The two arrays of out=, or nothing.
struct Outs {
    PyObject *values = nullptr, *derivatives = nullptr;
};

Outs split_out(const Compiled& c, PyObject* out) {
    if (!out || out == Py_None) return {};
    if (!c.with_gradient) return {out, nullptr};
    if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != 2)
        raise("ShapeError", "out: expected a tuple (values, derivatives), got " + type_name(out));
    return {PyTuple_GET_ITEM(out, 0), PyTuple_GET_ITEM(out, 1)};
}

/// Raises where values and derivatives would be written over each other.
void check_apart(const char* what, const Outs& outs) {
    if (outs.values && outs.derivatives &&
        overlap(reach_of(array_of(outs.values)), reach_of(array_of(outs.derivatives))))
        raise("ShapeError", std::string(what) +
                                ": expected two arrays, got some that share memory; make each with "
                                "numpy.empty");
}

// ---- one point --------------------------------------------------------------------------------

template <class T>
nb::object call(const Compiled& c, const Runner<T>& runner, PyObject* x, PyObject* out) {
    nb::object point = input_array(c, "program", x, 1);
    check_inputs(c, "program", PyArray_DIM(array_of(point), 0));
    if (!PyArray_IS_C_CONTIGUOUS(array_of(point))) {
        point = nb::steal(PyArray_NewCopy(array_of(point), NPY_CORDER));
        if (!point.is_valid()) throw nb::python_error();
    }
    const Outs outs = split_out(c, out);
    const auto k = static_cast<npy_intp>(c.values()), n = static_cast<npy_intp>(c.derivatives());
    // A single value without out= is returned as a float and needs no array.
    T single{};
    nb::object values, derivatives;
    if (!c.scalar)
        values = output_array(c, "out values", outs.values, {k});
    else if (outs.values)
        values = output_array(c, "out value", outs.values, {});
    if (c.with_gradient)
        derivatives = c.scalar ? output_array(c, "out gradient", outs.derivatives, {n})
                               : output_array(c, "out jacobian", outs.derivatives, {k, n});
    check_apart("out", outs);
    auto data = [](const nb::object& array) {
        return array.is_valid() ? static_cast<T*>(PyArray_DATA(array_of(array))) : nullptr;
    };
    T* value_data = values.is_valid() ? data(values) : &single;
    try {
        Unlocked unlocked(c.long_running());
        runner.one(data(point), value_data, data(derivatives));
    } catch (const BranchChanged& changed) {
        raise_branch_changed(c, changed, point);
    }
    if (!values.is_valid()) values = nb::float_(static_cast<double>(single));
    if (!c.with_gradient) return values;
    return nb::steal(PyTuple_Pack(2, values.ptr(), derivatives.ptr()));
}

nb::object call(const Compiled& c, PyObject* x, PyObject* out) {
    return std::visit([&](const auto& runner) { return call(c, *runner, x, out); }, c.runner);
}

// ---- many rows --------------------------------------------------------------------------------

/// Values and derivatives of a batch: a row each, or one for all rows.
struct BatchResults {
    nb::object values, derivatives;

    BatchResults(const Compiled& c, npy_intp rows, bool reduced, const Outs& outs) {
        const auto k = static_cast<npy_intp>(c.values()),
                   n = static_cast<npy_intp>(c.derivatives());
        const auto array = [&](const char* what, PyObject* given,
                               std::initializer_list<npy_intp> each,
                               std::initializer_list<npy_intp> all) {
            return output_array(c, what, given, reduced ? each : all);
        };
        values = c.scalar ? array("out values", outs.values, {}, {rows})
                          : array("out values", outs.values, {k}, {rows, k});
        if (!c.with_gradient) return;
        derivatives = c.scalar ? array("out gradients", outs.derivatives, {n}, {rows, n})
                               : array("out jacobians", outs.derivatives, {k, n}, {rows, k, n});
    }

    nb::object as_python(const Compiled& c, bool reduced, bool given) const {
        const nb::object first =
            reduced && c.scalar && !given ? nb::object(nb::float_(values)) : values;
        if (!c.with_gradient) return first;
        return nb::make_tuple(first, derivatives);
    }
};

/// A slice of rows takes some 50 ms; signals are looked at between slices. It depends on nothing
/// but the program, and so do the sums that are taken slice by slice.
npy_intp rows_in_slice(const Program& program) {
    const auto cost = static_cast<npy_intp>(std::min(program.stats().work, 1e9)) + 100;
    return std::max<npy_intp>(100'000'000 / cost, 64);
}

/// Calls body(first row, rows) for slices, without the interpreter, and looks for signals.
template <class Body>
void over_slices(const Program& program, npy_intp rows, Body body) {
    const npy_intp slice = rows_in_slice(program);
    for (npy_intp first = 0; first < rows; first += slice) {
        {
            Unlocked unlocked(true);
            body(first, static_cast<std::size_t>(std::min(slice, rows - first)));
        }
        if (PyErr_CheckSignals()) throw nb::python_error();
    }
}

/// Sums of all outputs over the rows, or their means.
template <class T>
std::vector<T> reduced_outputs(const Runner<T>& runner, const Columns<T>& columns,
                               const Shared& shared, const std::vector<T>& values, bool mean,
                               int threads) {
    const std::size_t outputs = runner.program().code().output_count;
    std::vector<T> sums;
    over_slices(runner.program(), columns.rows, [&](npy_intp first, std::size_t count) {
        sums.resize(sums.size() + outputs);
        std::vector<OutputRows<T>> results;
        for (std::size_t i = 0; i < outputs; ++i)
            results.push_back({sums.data() + sums.size() - outputs + i, 0, true});
        runner.rows(columns.from(first, shared, values).data(), results.data(), count, threads);
    });
    std::vector<T> out(outputs);
    for (std::size_t i = 0; i < outputs; ++i) {
        out[i] = pairwise_sum(sums.data() + i, sums.size() / outputs, outputs);
        if (mean) out[i] /= static_cast<T>(columns.rows);
    }
    return out;
}

template <class T>
nb::object batch(const Compiled& c, const Runner<T>& runner, nb::handle x, PyObject* out,
                 const Shared& shared, Reduce reduce, int threads) {
    Columns<T> columns(c, "batch", x, shared);
    const npy_intp rows = columns.rows;
    const Outs outs = split_out(c, out);
    const BatchResults arrays(c, rows, reduce != Reduce::none, outs);
    check_apart("batch out", outs);
    const auto k = static_cast<npy_intp>(c.values()), n = static_cast<npy_intp>(c.derivatives());
    T* value_data = static_cast<T*>(PyArray_DATA(array_of(arrays.values)));
    T* derivative_data =
        c.with_gradient ? static_cast<T*>(PyArray_DATA(array_of(arrays.derivatives))) : nullptr;
    const std::vector<T> values(shared.values.begin(), shared.values.end());
    if (reduce != Reduce::none) {
        check_summable(c, shared, "batch");
        if (reduce == Reduce::mean && !rows)
            raise("ShapeError", "batch: expected at least one row for a mean, got none");
        const auto found =
            reduced_outputs(runner, columns, shared, values, reduce == Reduce::mean, threads);
        std::copy_n(found.begin(), k, value_data);
        if (derivative_data) std::copy_n(found.begin() + k, k * n, derivative_data);
        return arrays.as_python(c, true, outs.values);
    }

    for (PyObject* given : {outs.values, outs.derivatives})
        if (given && overlap(reach_of(array_of(columns.keep)), reach_of(array_of(given)))) {
            const nb::object copy =
                nb::steal(PyArray_NewCopy(array_of(columns.keep), NPY_KEEPORDER));
            if (!copy.is_valid()) throw nb::python_error();
            columns = Columns<T>(c, "batch", copy, shared);
        }
    over_slices(runner.program(), rows, [&](npy_intp first, std::size_t count) {
        std::vector<OutputRows<T>> results;
        results.reserve(static_cast<std::size_t>(k + k * n));
        for (npy_intp i = 0; i < k; ++i) results.push_back({value_data + first * k + i, k});
        for (npy_intp i = 0; i < k * n; ++i)
            results.push_back({derivative_data + first * k * n + i, k * n});
        runner.rows(columns.from(first, shared, values).data(), results.data(), count, threads);
    });
    return arrays.as_python(c, false, outs.values);
}

nb::object batch(const Compiled& c, nb::handle x, nb::handle threads, nb::handle shared,
                 nb::handle reduce, nb::handle out) {
    const int count = checked_threads(threads);
    const Shared inputs = shared_of(c, shared);
    const Reduce how = reduce_of(reduce, "batch");
    return with_branches(c, "batch", x, inputs, [&] {
        return std::visit(
            [&](const auto& runner) { return batch(c, *runner, x, out.ptr(), inputs, how, count); },
            c.runner);
    });
}

// ---- columns ----------------------------------------------------------------------------------

template <class T>
nb::list columns(const Compiled& c, const Runner<T>& runner, nb::handle inputs, bool sum,
                 int threads) {
    nb::list given(inputs);
    check_inputs(c, "columns", static_cast<npy_intp>(given.size()));
    std::vector<nb::object> keep;
    std::vector<T> shared(given.size());
    std::vector<InputRows<T>> in;
    npy_intp rows = -1;
    for (std::size_t i = 0; i < given.size(); ++i) {
        Operand number;
        if (to_operand(given[i].ptr(), number) && !number.var) {
            shared[i] = static_cast<T>(number.number);
            in.push_back({&shared[i], 0});
            continue;
        }
        keep.push_back(input_array(c, "columns", given[i].ptr(), 1));
        PyArrayObject* array = array_of(keep.back());
        if (rows >= 0 && PyArray_DIM(array, 0) != rows)
            raise("ShapeError", "columns: expected columns of one length, got " +
                                    std::to_string(rows) + " and " +
                                    std::to_string(PyArray_DIM(array, 0)));
        rows = PyArray_DIM(array, 0);
        if (PyArray_STRIDE(array, 0) % static_cast<npy_intp>(sizeof(T))) {
            keep.back() = nb::steal(PyArray_NewCopy(array, NPY_CORDER));
            if (!keep.back().is_valid()) throw nb::python_error();
            array = array_of(keep.back());
        }
        in.push_back({static_cast<const T*>(PyArray_DATA(array)),
                      PyArray_STRIDE(array, 0) / static_cast<npy_intp>(sizeof(T))});
    }
    if (rows < 0) rows = 1;
    nb::list results;
    std::vector<OutputRows<T>> out;
    for (std::uint32_t i = 0; i < c.program->code().output_count; ++i) {
        nb::object array = sum ? output_array(c, "columns", nullptr, {})
                               : output_array(c, "columns", nullptr, {rows});
        out.push_back({static_cast<T*>(PyArray_DATA(array_of(array))), sum ? 0 : 1, sum});
        results.append(array);
    }
    Unlocked unlocked(true);
    runner.rows(in.data(), out.data(), static_cast<std::size_t>(rows), threads);
    return results;
}

nb::list columns(const Compiled& c, nb::handle inputs, bool sum, nb::handle threads) {
    const int count = checked_threads(threads);
    const auto run = [&](const auto& runner) { return columns(c, *runner, inputs, sum, count); };
    try {
        return std::visit(run, c.runner);
    } catch (const BranchChanged&) {
        const nb::module_ numpy = nb::module_::import_("numpy");
        const nb::object aligned = numpy.attr("broadcast_arrays")(*nb::list(inputs));
        raise_branch_changed(c, "columns", numpy.attr("column_stack")(aligned), {});
    }
}

// ---- making and describing --------------------------------------------------------------------

std::vector<NodeId> ids_of(const Vars& vars, const Var& first) {
    std::vector<NodeId> out;
    for (const Var* var : vars.all) {
        common_graph("compile", first, *var);
        out.push_back(var->id);
    }
    return out;
}

/// The inputs in the order the program takes them, each once.
std::vector<NodeId> input_ids(const Graph& graph, const Var& first, nb::handle inputs) {
    if (inputs.is_none()) return {graph.inputs().begin(), graph.inputs().end()};
    std::vector<NodeId> ids = ids_of(vars_of(inputs, "compile: inputs"), first);
    std::vector<NodeId> sorted = ids;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        raise("CompileError", "compile: an input is named twice among `inputs`");
    for (NodeId id : ids)
        if (graph.op(id) != Op::input)
            raise("CompileError", std::string("compile: `inputs` must be inputs of the graph, got "
                                              "the result of '") +
                                      info(graph.op(id)).name + "'");
    return ids;
}

void construct(Compiled* self, nb::handle outputs, nb::handle wrt, nb::handle inputs,
               const std::string& dtype, bool scalar) {
    const Vars output_vars = vars_of(outputs, "compile: outputs");
    if (output_vars.all.empty())
        raise("CompileError", "compile: expected at least one output, got none");
    if (scalar && output_vars.all.size() != 1)
        raise("CompileError", "compile: a program with a scalar result has one output, got " +
                                  std::to_string(output_vars.all.size()));
    if (dtype != "float64" && dtype != "float32")
        raise("DTypeError", "compile: expected dtype 'float64' or 'float32', got '" + dtype + "'");
    const Var& first = *output_vars.all[0];
    const Graph& graph = *first.graph;
    const auto output_ids = ids_of(output_vars, first);
    const bool with_gradient = !wrt.is_none();
    const auto wrt_ids =
        with_gradient ? ids_of(vars_of(wrt, "compile: wrt"), first) : std::vector<NodeId>();
    const auto ids = input_ids(graph, first, inputs);
    auto program = Program::compile(graph, output_ids, wrt_ids, with_gradient, ids);

    std::vector<std::int64_t> position(graph.inputs().size(), -1), wrt_input;
    for (std::size_t i = 0; i < ids.size(); ++i)
        position[graph.node(ids[i]).a] = static_cast<std::int64_t>(i);
    for (NodeId id : wrt_ids)
        wrt_input.push_back(graph.op(id) == Op::input ? position[graph.node(id).a] : -1);
    new (self) Compiled{make_runner(program, dtype == "float64"),
                        program,
                        scalar,
                        with_gradient,
                        std::move(wrt_input),
                        first.graph,
                        ids};
}

constexpr const char* batch_doc =
    R"(The program at every row of x.

Args:
    x: Rows of all inputs; with `shared`, of the others, in their order.
    threads: None takes all cores. Results have the same bits for any number.
    shared: Inputs that have one value for all rows: values of the first inputs, or a dict from
        names, Vars or places of inputs to values.
    reduce: "sum" or "mean" over the rows, of values and of derivatives, which then must be by
        shared inputs. No row's result is stored.
    out: Arrays for the results.

Example:
    >>> import tapegrad as tg
    >>> g = tg.Graph()
    >>> slope, t, y = g.input("slope"), g.input("t"), g.input("y")
    >>> error = tg.compile((slope * t - y) ** 2, wrt=slope)
    >>> error.batch([[1.0, 2.0], [2.0, 3.0]], shared=[1.0], reduce="sum")
    (2.0, array([-6.]))
    >>> error.batch([[1.0, 2.0], [2.0, 3.0]], shared={"slope": 2.0}, reduce="mean")
    (0.5, array([2.]))
)";

}  // namespace

void bind_program(nb::module_& m) {
    if (_import_array() < 0) throw nb::python_error();
    nb::class_<Compiled>(m, "Program", nb::is_weak_referenceable(),
                         "A compiled graph. Immutable; any number of threads may call it.")
        .def(
            "__init__", &construct, nb::arg("outputs"), nb::arg("wrt").none(),
            nb::arg("inputs").none(), nb::arg("dtype"), nb::arg("scalar"),
            nb::sig("def __init__(self, outputs: collections.abc.Sequence[Var], wrt: "
                    "collections.abc.Sequence[Var] | None, inputs: collections.abc.Sequence[Var] | "
                    "None, dtype: str, scalar: bool) -> None"))
        .def("__init__", &restore, nb::arg("record"),
             nb::sig("def __init__(self, record: bytes) -> None"))
        .def(
            "__call__",
            [](const Compiled& c, nb::handle x, nb::handle out) {
                return call(c, x.ptr(), out.ptr());
            },
            nb::arg("x").none(), nb::kw_only(), nb::arg("out") = nb::none(),
            nb::sig("def __call__(self, x: numpy.typing.ArrayLike, *, out: typing.Any = None) -> "
                    "typing.Any"),
            "The program at one point.")
        .def("batch",
             static_cast<nb::object (*)(const Compiled&, nb::handle, nb::handle, nb::handle,
                                        nb::handle, nb::handle)>(&batch),
             nb::arg("x").none(), nb::arg("threads") = nb::none(), nb::kw_only(),
             nb::arg("shared") = nb::none(), nb::arg("reduce") = nb::none(),
             nb::arg("out") = nb::none(),
             nb::sig("def batch(self, x: numpy.typing.ArrayLike, threads: int | None = None, *, "
                     "shared: numpy.typing.ArrayLike | collections.abc.Mapping[typing.Any, "
                     "float] | None = None, reduce: typing.Literal['sum', 'mean'] | None = None, "
                     "out: typing.Any = None) -> typing.Any"),
             batch_doc)
        .def("descend", &minimize, nb::arg("x0"), nb::arg("method"), nb::arg("steps"),
             nb::arg("options"),
             nb::sig("def descend(self, x0: numpy.typing.ArrayLike, method: str, steps: int, "
                     "options: dict[str, typing.Any]) -> tuple[typing.Any, ...]"),
             "The native loop behind minimize().")
        .def("columns",
             static_cast<nb::list (*)(const Compiled&, nb::handle, bool, nb::handle)>(&columns),
             nb::arg("inputs"), nb::arg("sum") = false, nb::arg("threads") = nb::none(),
             nb::sig("def columns(self, inputs: collections.abc.Sequence[typing.Any], sum: bool = "
                     "False, threads: int | None = None) -> list[typing.Any]"),
             "The program over columns: per input an array, of any stride, or a number shared by "
             "all rows; per output an array, or its sum over the rows.")
        .def(
            "make_machine_code",
            [](const Compiled& c, std::size_t points, std::size_t rows) {
                Unlocked unlocked(true);
                std::visit([&](const auto& runner) { runner->prepare(points, rows); }, c.runner);
            },
            nb::arg("points"), nb::arg("rows"),
            nb::sig("def make_machine_code(self, points: int, rows: int) -> None"),
            "What prepare() does.")
        .def("measure_kernels", &profile_program, nb::arg("x"), nb::arg("repeats"),
             nb::sig("def measure_kernels(self, x: numpy.typing.ArrayLike, repeats: int) -> "
                     "tuple[list[tuple[str, int, int, float]], float, int]"),
             "Kernels with instructions, runs and seconds; seconds in all; rows at once.")
        .def("frozen_branches", &branches,
             nb::sig("def frozen_branches(self) -> list[tuple[str, bool, str]]"),
             "Conditions that must hold: what they say, whether they do, file and line.")
        .def("guard_program", &guard_program, nb::rv_policy::take_ownership,
             nb::sig("def guard_program(self) -> Program"),
             "The conditions of the frozen branches, as a program of their own.")
        .def_prop_ro(
            "calls",
            [](const Compiled& c) -> std::optional<std::string> {
                const Custom* custom = c.program->calls();
                return custom ? std::optional(custom->name) : std::nullopt;
            },
            nb::sig("def calls(self) -> str | None"), "A Python function that it calls, or None.")
        .def("record", &record, "The program as bytes, of which Program(record) is the same.")
        .def(
            "opened", [](const Compiled& c) { return opened(*c.program); },
            nb::sig("def opened(self) -> tuple[list[Var], list[Var], list[Var]]"),
            "What it was compiled from, as Vars of a graph of its own: outputs, wrt, inputs.")
        .def("listing", &listing, nb::sig("def listing(self) -> dict[str, typing.Any]"),
             "Inputs, constants, instructions, outputs and loops, by numbers of values.")
        .def_prop_ro("input_names", &input_names, nb::sig("def input_names(self) -> list[str]"),
                     "Names of the inputs, empty where they have none.")
        .def_prop_ro(
            "wrt_inputs",
            [](const Compiled& c) {
                nb::list out;
                for (std::int64_t input : c.wrt_input)
                    out.append(input < 0 ? nb::none() : nb::cast(input));
                return out;
            },
            nb::sig("def wrt_inputs(self) -> list[int | None]"),
            "Per derivative the place of the input it is by; None if it is by no input.")
        .def_prop_ro("n_inputs", &Compiled::inputs, "How many values a point has.")
        .def_prop_ro("n_outputs", &Compiled::values, "How many values it computes.")
        .def_prop_ro("n_derivatives", &Compiled::derivatives, "Derivatives per value.")
        .def_prop_ro("dtype", &Compiled::dtype, "'float64' or 'float32'.")
        .def_prop_ro("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"),
                     "Figures of the compiled program; explain() prints them.");
}

}  // namespace tapegrad::bindings
