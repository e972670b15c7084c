// bindings/program.cpp -- compiled programs on NumPy arrays: call, batch, minimize.
//
// A call on a small program takes about as long as its argument checks, so these go through
// NumPy's C interface: 0.26 us in all.
#define PY_ARRAY_UNIQUE_SYMBOL tapegrad_numpy
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
//
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <variant>

#include "errors.h"
#include "python.h"
#include "scalar/minimize.h"
#include "scalar/runner.h"

namespace tapegrad::bindings {
namespace {

/// What Python holds: a program with its number type and the shape of its results.
struct Compiled {
    std::variant<std::unique_ptr<Runner<double>>, std::unique_ptr<Runner<float>>> runner;
    std::shared_ptr<const Program> program;
    bool scalar;                          ///< one output, given as a Var and not in a sequence
    bool with_gradient;                   ///< returns (values, derivatives)
    std::vector<std::int64_t> wrt_input;  ///< per derivative the input it belongs to, or -1

    bool is_double() const { return runner.index() == 0; }
    int typenum() const { return is_double() ? NPY_DOUBLE : NPY_FLOAT; }
    const char* dtype() const { return is_double() ? "float64" : "float32"; }
    std::size_t inputs() const { return program->code().input_count; }
    std::size_t values() const { return program->values(); }
    std::size_t derivatives() const { return program->derivatives(); }
    /// Costly enough that giving other threads the interpreter pays.
    bool long_running() const { return program->stats().instructions > 2000; }
};

template <class T>
constexpr int typenum_of = sizeof(T) == 8 ? NPY_DOUBLE : NPY_FLOAT;

PyArrayObject* array_of(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }
PyArrayObject* array_of(const nb::object& object) { return array_of(object.ptr()); }

std::string shape_text(PyArrayObject* array) {
    std::string text = "(";
    for (int d = 0; d < PyArray_NDIM(array); ++d)
        text += (d ? ", " : "") + std::to_string(PyArray_DIM(array, d));
    return text + (PyArray_NDIM(array) == 1 ? ",)" : ")");
}

std::string shape_text(std::initializer_list<npy_intp> shape) {
    std::string text = "(";
    for (npy_intp size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + (shape.size() == 1 ? ",)" : ")");
}

std::string dtype_text(PyArrayObject* array) {
    return nb::cast<std::string>(
        nb::str(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array)))));
}

/// An array of Python objects may hold real numbers only.
void check_elements(const char* what, nb::handle array) {
    for (nb::handle element : array.attr("flat")) {
        Operand operand;
        if (!to_operand(element.ptr(), operand))
            raise("DTypeError", std::string(what) + ": expected real numbers, got a " +
                                    type_name(element.ptr()) + " among them");
        if (operand.var)
            raise("DTypeError",
                  std::string(what) +
                      ": expected numbers, got a Var; combine Vars before tg.compile");
    }
}

/// `object` as an array of the program's number type with `ndim` dimensions; the array itself
/// where it is one already, however it is strided.
nb::object input_array(const Compiled& c, const char* what, PyObject* object, int ndim) {
    nb::object array;
    if (PyArray_Check(object)) {
        array = nb::borrow(object);
    } else {
        array = nb::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
        if (!array.is_valid()) throw nb::python_error();
    }
    const int got = PyArray_NDIM(array_of(array));
    if (got != ndim)
        raise("ShapeError", std::string(what) + ": expected an array of " + std::to_string(ndim) +
                                " dimension" + (ndim == 1 ? "" : "s") + ", got shape " +
                                shape_text(array_of(array)) +
                                (ndim == 1 && got == 2   ? "; program.batch takes one point a row"
                                 : ndim == 2 && got == 1 ? "; program(x) takes a single point"
                                                         : ""));
    if (PyObject_HasAttrString(array.ptr(), "mask"))
        raise("DTypeError",
              std::string(what) + ": expected a plain array, got a masked one; fill it first");
    const int type = PyArray_TYPE(array_of(array));
    if (type == c.typenum() && PyArray_ISBEHAVED_RO(array_of(array))) return array;
    if (!(PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type) || PyTypeNum_ISBOOL(type) ||
          PyTypeNum_ISOBJECT(type)))
        raise("DTypeError", std::string(what) + ": expected real numbers, got dtype " +
                                dtype_text(array_of(array)));
    if (PyTypeNum_ISOBJECT(type)) check_elements(what, array);
    nb::object converted = nb::steal(
        PyArray_FromAny(array.ptr(), PyArray_DescrFromType(c.typenum()), 0, 0,
                        NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST, nullptr));
    if (!converted.is_valid()) throw nb::python_error();
    return converted;
}

/// A given array for results, checked; or a new one.
nb::object output_array(const Compiled& c, const char* what, PyObject* given,
                        std::initializer_list<npy_intp> shape) {
    if (!given) {
        nb::object fresh = nb::steal(PyArray_SimpleNew(
            static_cast<int>(shape.size()), const_cast<npy_intp*>(shape.begin()), c.typenum()));
        if (!fresh.is_valid()) throw nb::python_error();
        return fresh;
    }
    const std::string prefix = std::string(what) + ": ";
    if (!PyArray_Check(given))
        raise("DTypeError", prefix + "expected a NumPy array, got " + type_name(given));
    PyArrayObject* array = array_of(given);
    if (PyArray_TYPE(array) != c.typenum())
        raise("DTypeError", prefix + "expected dtype " + c.dtype() + ", got " + dtype_text(array));
    if (PyArray_NDIM(array) != static_cast<int>(shape.size()) ||
        !std::equal(shape.begin(), shape.end(), PyArray_DIMS(array)))
        raise("ShapeError",
              prefix + "expected shape " + shape_text(shape) + ", got " + shape_text(array));
    if (!PyArray_ISCARRAY(array))
        raise("ShapeError", prefix + "expected a writable C-contiguous array, got one that is " +
                                (!PyArray_ISWRITEABLE(array)       ? "read-only"
                                 : !PyArray_IS_C_CONTIGUOUS(array) ? "not contiguous"
                                                                   : "unaligned or byte-swapped") +
                                "; make it with numpy.empty");
    return nb::borrow(given);
}

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

/// Releases the interpreter while it lives, if asked to.
class Unlocked {
   public:
    explicit Unlocked(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
    ~Unlocked() {
        if (state_) PyEval_RestoreThread(state_);
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

   private:
    PyThreadState* state_;
};

void check_inputs(const Compiled& c, const char* what, npy_intp got) {
    if (static_cast<std::size_t>(got) != c.inputs())
        raise("ShapeError", std::string(what) + ": the program has " + std::to_string(c.inputs()) +
                                " inputs, got " + std::to_string(got) + " values");
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
    auto data = [](const nb::object& array) {
        return array.is_valid() ? static_cast<T*>(PyArray_DATA(array_of(array))) : nullptr;
    };
    T* value_data = values.is_valid() ? data(values) : &single;
    {
        Unlocked unlocked(c.long_running());
        runner.one(data(point), value_data, data(derivatives));
    }
    if (!values.is_valid()) values = nb::float_(static_cast<double>(single));
    if (!c.with_gradient) return values;
    return nb::steal(PyTuple_Pack(2, values.ptr(), derivatives.ptr()));
}

nb::object call(const Compiled& c, PyObject* x, PyObject* out) {
    return std::visit([&](const auto& runner) { return call(c, *runner, x, out); }, c.runner);
}

// ---- many rows --------------------------------------------------------------------------------

int checked_threads(std::optional<int> threads) {
    if (threads && *threads < 1)
        raise("OptionError", "threads: expected a positive number or None for all cores, got " +
                                 std::to_string(*threads));
    return threads.value_or(0);
}

bool overlap(PyArrayObject* a, PyArrayObject* b) {
    auto range = [](PyArrayObject* array) {
        char *low = PyArray_BYTES(array), *high = low + PyArray_ITEMSIZE(array);
        for (int d = 0; d < PyArray_NDIM(array); ++d) {
            npy_intp reach = (PyArray_DIM(array, d) - 1) * PyArray_STRIDE(array, d);
            (reach > 0 ? high : low) += reach;
        }
        return std::pair(low, high);
    };
    auto [a_low, a_high] = range(a);
    auto [b_low, b_high] = range(b);
    return a_low < b_high && b_low < a_high;
}

template <class T>
nb::object batch(const Compiled& c, const Runner<T>& runner, nb::handle x, PyObject* out,
                 int threads) {
    nb::object points = input_array(c, "batch", x.ptr(), 2);
    PyArrayObject* array = array_of(points);
    check_inputs(c, "batch", PyArray_DIM(array, 1));
    const npy_intp rows = PyArray_DIM(array, 0);
    const Outs outs = split_out(c, out);
    const auto k = static_cast<npy_intp>(c.values()), n = static_cast<npy_intp>(c.derivatives());
    nb::object values = c.scalar ? output_array(c, "out values", outs.values, {rows})
                                 : output_array(c, "out values", outs.values, {rows, k});
    nb::object derivatives;
    if (c.with_gradient)
        derivatives = c.scalar ? output_array(c, "out gradients", outs.derivatives, {rows, n})
                               : output_array(c, "out jacobians", outs.derivatives, {rows, k, n});
    for (PyObject* given : {outs.values, outs.derivatives})
        if (given && rows && overlap(array, array_of(given))) {
            points = nb::steal(PyArray_NewCopy(array, NPY_KEEPORDER));
            if (!points.is_valid()) throw nb::python_error();
            array = array_of(points);
        }

    // Strides that are no multiple of the element size (fields of records) are copied away.
    constexpr auto size = static_cast<npy_intp>(sizeof(T));
    if (PyArray_STRIDE(array, 0) % size || PyArray_STRIDE(array, 1) % size) {
        points = nb::steal(PyArray_NewCopy(array, NPY_CORDER));
        if (!points.is_valid()) throw nb::python_error();
        array = array_of(points);
    }
    const npy_intp row_stride = PyArray_STRIDE(array, 0) / size;
    const npy_intp column_stride = PyArray_STRIDE(array, 1) / size;
    const T* data = static_cast<const T*>(PyArray_DATA(array));
    T* value_data = static_cast<T*>(PyArray_DATA(array_of(values)));
    T* derivative_data =
        derivatives.is_valid() ? static_cast<T*>(PyArray_DATA(array_of(derivatives))) : nullptr;

    // A slice of rows takes some 50 ms; signals are looked at between slices.
    const auto cost = static_cast<npy_intp>(runner.program().stats().instructions) + 100;
    const npy_intp slice = std::max<npy_intp>(100'000'000 / cost, 64);
    std::vector<InputRows<T>> in(c.inputs());
    std::vector<OutputRows<T>> results(static_cast<std::size_t>(k + k * n));
    for (npy_intp first = 0; first < rows; first += slice) {
        for (npy_intp i = 0; i < static_cast<npy_intp>(in.size()); ++i)
            in[static_cast<std::size_t>(i)] = {data + first * row_stride + i * column_stride,
                                               row_stride};
        for (npy_intp i = 0; i < k; ++i)
            results[static_cast<std::size_t>(i)] = {value_data + first * k + i, k};
        for (npy_intp i = 0; i < k * n; ++i)
            results[static_cast<std::size_t>(k + i)] = {derivative_data + first * k * n + i, k * n};
        {
            Unlocked unlocked(true);
            runner.rows(in.data(), results.data(),
                        static_cast<std::size_t>(std::min(slice, rows - first)), threads);
        }
        if (PyErr_CheckSignals()) throw nb::python_error();
    }
    if (!c.with_gradient) return values;
    return nb::make_tuple(values, derivatives);
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

nb::list columns(const Compiled& c, nb::handle inputs, bool sum, std::optional<int> threads) {
    const int count = checked_threads(threads);
    return std::visit([&](const auto& runner) { return columns(c, *runner, inputs, sum, count); },
                      c.runner);
}

// ---- minimize ---------------------------------------------------------------------------------

struct MinimizeArguments {
    DescentOptions options;
    std::size_t steps, history_every, callback_every;
    nb::object callback;
};

template <class T>
class Minimization {
   public:
    Minimization(const Compiled& c, const Runner<T>& runner, nb::handle x0,
                 const MinimizeArguments& a)
        : compiled_(c), arguments_(a) {
        const bool many = PyArray_Check(x0.ptr()) && PyArray_NDIM(array_of(x0.ptr())) == 2;
        nb::object start = input_array(c, "minimize x0", x0.ptr(), many ? 2 : 1);
        start = nb::steal(PyArray_NewCopy(array_of(start), NPY_CORDER));
        if (!start.is_valid()) throw nb::python_error();
        check_inputs(c, "minimize x0", PyArray_DIM(array_of(start), many ? 1 : 0));
        count_ = many ? static_cast<std::size_t>(PyArray_DIM(array_of(start), 0)) : 1;
        many_ = many;
        if (!count_) raise("ShapeError", "minimize x0: expected at least one start, got none");
        std::vector<std::uint32_t> moved;
        for (std::int64_t input : c.wrt_input) moved.push_back(static_cast<std::uint32_t>(input));
        descent_.emplace(runner, std::move(moved), a.options,
                         static_cast<const T*>(PyArray_DATA(array_of(start))), count_);
        if (a.history_every) {
            const auto rows = static_cast<npy_intp>(a.steps / a.history_every + 1);
            const auto m = static_cast<npy_intp>(count_);
            history_ = many ? output_array(c, "history", nullptr, {rows, m})
                            : output_array(c, "history", nullptr, {rows});
        }
    }

    nb::tuple run() {
        bool stopped = false;
        std::size_t piece = 1;
        while (descent_->taken() < arguments_.steps && !stopped) {
            piece = advance(piece);
            stopped = interrupted() || wants_to_stop();
        }
        descent_->settle();
        return result(stopped);
    }

   private:
    using Clock = std::chrono::steady_clock;

    /// Takes a piece of steps and returns the size of the next: some 20 ms, so that Ctrl-C is
    /// heard.
    std::size_t advance(std::size_t piece) {
        piece = std::min(piece, arguments_.steps - descent_->taken());
        if (arguments_.callback_every)
            piece = std::min(
                piece, arguments_.callback_every - descent_->taken() % arguments_.callback_every);
        const auto start = Clock::now();
        {
            Unlocked unlocked(true);
            descent_->advance(piece, history_data(),
                              std::max<std::size_t>(arguments_.history_every, 1));
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return seconds < 0.01   ? piece * 2
               : seconds > 0.04 ? std::max<std::size_t>(piece / 2, 1)
                                : piece;
    }

    bool interrupted() {
        if (!PyErr_CheckSignals()) return false;
        if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw nb::python_error();
        PyErr_Clear();
        return true;
    }

    /// Calls back if it is time; true from the callback, or Ctrl-C within it, ends the run.
    bool wants_to_stop() {
        if (!arguments_.callback_every || descent_->taken() % arguments_.callback_every)
            return false;
        descent_->settle();  // the value at x, not the one before the last step
        auto [x, value] = arrays([&](T* xs, T* values) { descent_->last(xs, values); });
        PyObject* answer =
            PyObject_CallFunction(arguments_.callback.ptr(), "nOO",
                                  static_cast<Py_ssize_t>(descent_->taken()), x.ptr(), value.ptr());
        if (answer) {
            const int truth = PyObject_IsTrue(answer);
            Py_DECREF(answer);
            if (truth < 0) throw nb::python_error();
            return truth;
        }
        if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw nb::python_error();
        PyErr_Clear();
        return true;
    }

    template <class Fill>
    std::pair<nb::object, nb::object> arrays(Fill fill) {
        const auto m = static_cast<npy_intp>(count_), n = static_cast<npy_intp>(compiled_.inputs());
        nb::object x = many_ ? output_array(compiled_, "x", nullptr, {m, n})
                             : output_array(compiled_, "x", nullptr, {n});
        nb::object values = output_array(compiled_, "value", nullptr, {m});
        auto* value_data = static_cast<T*>(PyArray_DATA(array_of(values)));
        fill(static_cast<T*>(PyArray_DATA(array_of(x))), value_data);
        if (!many_) values = nb::float_(static_cast<double>(value_data[0]));
        return {x, values};
    }

    nb::tuple result(bool stopped) {
        auto [x, value] = arrays([&](T* xs, T* values) { descent_->best(xs, values); });
        auto [last_x, last_value] = arrays([&](T* xs, T* values) { descent_->last(xs, values); });
        return nb::make_tuple(x, value, last_x, last_value, history(), descent_->taken(), stopped);
    }

    T* history_data() const {
        return history_.is_valid() ? static_cast<T*>(PyArray_DATA(array_of(history_))) : nullptr;
    }

    /// The rows written so far; the value at the end is one of them if its step is.
    nb::object history() {
        if (!history_.is_valid()) return nb::none();
        const std::size_t taken = descent_->taken(), every = arguments_.history_every;
        std::size_t rows = (taken + every - 1) / every;
        if (taken % every == 0) {
            std::vector<T> x(count_ * compiled_.inputs());
            descent_->last(x.data(), history_data() + rows * count_);
            ++rows;
        }
        return history_[nb::slice(nb::int_(0), nb::int_(rows), nb::int_(1))];
    }

    const Compiled& compiled_;
    const MinimizeArguments& arguments_;
    std::size_t count_ = 1;
    bool many_ = false;
    std::optional<Descent<T>> descent_;
    nb::object history_;
};

nb::tuple minimize(const Compiled& c, nb::handle x0, const std::string& method, std::size_t steps,
                   double lr, double beta1, double beta2, double epsilon, std::size_t history_every,
                   nb::object callback, std::size_t callback_every, std::optional<int> threads) {
    if (!c.scalar || !c.with_gradient)
        raise("GradError",
              "minimize: the program must have one output and its gradient; compile it as "
              "tg.compile(loss, wrt=inputs)");
    std::vector<char> seen(c.inputs(), false);
    for (std::int64_t input : c.wrt_input) {
        if (input < 0 || seen[static_cast<std::size_t>(input)])
            raise("GradError",
                  "minimize: every Var of `wrt` must be a different input of the program");
        seen[static_cast<std::size_t>(input)] = true;
    }
    MinimizeArguments a{{}, steps, history_every, callback_every, std::move(callback)};
    if (method != "sgd" && method != "adam")
        raise("OptionError", "minimize: expected method 'sgd' or 'adam', got '" + method + "'");
    a.options = {method == "sgd" ? Method::sgd : Method::adam,
                 lr,
                 beta1,
                 beta2,
                 epsilon,
                 checked_threads(threads)};
    return std::visit(
        [&](const auto& runner) {
            using T = std::decay_t<decltype(*runner)>;
            if constexpr (std::is_same_v<T, Runner<double>>)
                return Minimization<double>(c, *runner, x0, a).run();
            else
                return Minimization<float>(c, *runner, x0, a).run();
        },
        c.runner);
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
    new (self) Compiled{{}, program, scalar, with_gradient, std::move(wrt_input)};
    if (dtype == "float64")
        self->runner = std::make_unique<Runner<double>>(program);
    else
        self->runner = std::make_unique<Runner<float>>(program);
}

/// Records a loop: `body` maps carried and shared values to the carried values of the next round.
nb::list record_loop(const Compiled& body, std::uint32_t count, nb::handle carried,
                     nb::handle shared) {
    const Vars first = vars_of(carried, "loop: carried"), rest = vars_of(shared, "loop: shared");
    const auto results = static_cast<std::uint32_t>(first.all.size());
    const std::size_t operands = first.all.size() + rest.all.size();
    if (!results) raise("ShapeError", "loop: expected at least one carried value, got none");
    if (body.inputs() != operands || body.values() != results || body.with_gradient)
        raise("ShapeError", "loop: expected a body with " + std::to_string(operands) + " inputs, " +
                                std::to_string(results) + " outputs and no derivatives");
    const auto& graph = first.all[0]->graph;
    std::vector<NodeId> ids = ids_of(first, *first.all[0]);
    for (NodeId id : ids_of(rest, *first.all[0])) ids.push_back(id);
    const NodeId header = graph->loop({count, results, body.program}, ids);
    nb::list out;
    for (std::uint32_t i = 0; i < results; ++i) out.append(make_var(graph, header + 1 + i));
    return out;
}

std::string kernel_name(const Run& run) {
    if (run.kernel == kernel_softplus_sigmoid) return "softplus+sigmoid";
    if (run.kernel == kernel_sincos) return "sin+cos";
    std::uint32_t plain = run.n, pairs = run.m;
    if (run.kernel >= kernel_sumdot_small) {
        plain = (run.kernel - kernel_sumdot_small) / (small_terms + 1);
        pairs = (run.kernel - kernel_sumdot_small) % (small_terms + 1);
    } else if (run.kernel != static_cast<int>(Op::sumdot)) {
        return info(static_cast<Op>(run.kernel)).name;
    }
    if (pairs == 0) return plain == 2 ? "add" : "sum" + std::to_string(plain);
    if (plain == 0) return pairs == 1 ? "mul" : "dot" + std::to_string(pairs);
    if (plain == 1 && pairs == 1) return "muladd";
    return "sum" + std::to_string(plain) + "+dot" + std::to_string(pairs);
}

/// Whether a run shares vectors in a single evaluation.
bool is_packed(const Run& run) {
    if (run.form != run_independent || run.count < pack_from) return false;
    if (run.kernel >= op_count) return run.kernel < kernel_sumdot_small;
    const OpInfo& op = info(static_cast<Op>(run.kernel));
    return op.vector_pace && op.arity == 1;
}

nb::dict stats(const Compiled& c) {
    const Program& program = *c.program;
    nb::dict counts, passes, out;
    const std::vector<Run> runs = program.runs();
    const auto lanes = static_cast<std::size_t>(c.is_double() ? kernels<double>().native_lanes
                                                              : kernels<float>().native_lanes);
    std::size_t packed = 0, packs = 0;
    for (const Run& run : runs) {
        if (is_packed(run)) {
            packed += run.count;
            packs += (run.count + lanes - 1) / lanes;
        }
        const std::string name = kernel_name(run);
        nb::str key(name.c_str());
        counts[key] = (counts.contains(key) ? nb::cast<std::size_t>(counts[key]) : 0) + run.count;
    }
    for (const auto& [name, seconds] : program.stats().passes) passes[name.c_str()] = seconds;
    const double instructions = program.stats().instructions;
    out["live_nodes"] = program.stats().live_nodes;
    out["instructions"] = program.stats().instructions;
    out["kernels"] = counts;
    out["runs"] = runs.size();
    out["mean_run"] = runs.empty() ? 0.0 : instructions / static_cast<double>(runs.size());
    out["packed"] = packed;
    out["pack_width"] = packs ? static_cast<double>(packed) / static_cast<double>(packs) : 0.0;
    out["slots"] = program.total_slots();
    out["code_bytes"] = program.code_bytes();
    std::visit(
        [&](const auto& runner) {
            out["lanes"] = runner->width();
            out["lane_bytes"] = runner->workspace_bytes();
        },
        c.runner);
    out["passes"] = passes;
    out["isa"] = isa().name;
    return out;
}

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
        .def(
            "__call__",
            [](const Compiled& c, nb::handle x, nb::handle out) {
                return call(c, x.ptr(), out.ptr());
            },
            nb::arg("x"), nb::kw_only(), nb::arg("out") = nb::none(),
            nb::sig("def __call__(self, x: numpy.typing.ArrayLike, *, out: typing.Any = None) -> "
                    "typing.Any"),
            "The program at one point.")
        .def(
            "batch",
            [](const Compiled& c, nb::handle x, std::optional<int> threads, nb::handle out) {
                const int count = checked_threads(threads);
                return std::visit(
                    [&](const auto& runner) { return batch(c, *runner, x, out.ptr(), count); },
                    c.runner);
            },
            nb::arg("x"), nb::arg("threads") = nb::none(), nb::arg("out") = nb::none(),
            nb::sig(
                "def batch(self, x: numpy.typing.ArrayLike, threads: int | None = None, *, out: "
                "typing.Any = None) -> typing.Any"),
            "The program at every row of x.")
        .def("descend", &minimize, nb::arg("x0"), nb::arg("method"), nb::arg("steps"),
             nb::arg("lr"), nb::arg("beta1"), nb::arg("beta2"), nb::arg("epsilon"),
             nb::arg("history_every"), nb::arg("callback").none(), nb::arg("callback_every"),
             nb::arg("threads").none(),
             nb::sig("def descend(self, x0: numpy.typing.ArrayLike, method: str, steps: int, lr: "
                     "float, beta1: float, beta2: float, epsilon: float, history_every: int, "
                     "callback: typing.Any, callback_every: int, threads: int | None) -> "
                     "tuple[typing.Any, ...]"),
             "The native loop behind minimize().")
        .def("columns",
             static_cast<nb::list (*)(const Compiled&, nb::handle, bool, std::optional<int>)>(
                 &columns),
             nb::arg("inputs"), nb::arg("sum") = false, nb::arg("threads") = nb::none(),
             nb::sig("def columns(self, inputs: collections.abc.Sequence[typing.Any], sum: bool = "
                     "False, threads: int | None = None) -> list[typing.Any]"),
             "The program over columns: per input an array, of any stride, or a number shared by "
             "all rows; per output an array, or its sum over the rows.")
        .def_prop_ro("n_inputs", &Compiled::inputs, "How many values a point has.")
        .def_prop_ro("n_outputs", &Compiled::values, "How many values it computes.")
        .def_prop_ro("n_derivatives", &Compiled::derivatives, "Derivatives per value.")
        .def_prop_ro("dtype", &Compiled::dtype, "'float64' or 'float32'.")
        .def_prop_ro("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"),
                     "Figures of the compiled program; explain() prints them.");
    m.def("record_loop", &record_loop, nb::arg("body"), nb::arg("count"), nb::arg("carried"),
          nb::arg("shared") = nb::make_tuple(),
          nb::sig("def record_loop(body: Program, count: int, carried: "
                  "collections.abc.Sequence[Var], shared: collections.abc.Sequence[Var] = ()) -> "
                  "list[Var]"),
          "Records `count` rounds of a compiled body; returns the carried values at the end.");
}

}  // namespace tapegrad::bindings
