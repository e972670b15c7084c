// bindings/minimize.cpp -- descent from Python: pieces of steps, history, callback, Ctrl-C.
#include "scalar/minimize.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "compiled.h"
#include "guards.h"
#include "shared.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

constexpr const char* method_names[] = {"sgd", "momentum", "adam", "lbfgs", "lm"};
/// Indexed by Reason; the first if it took all steps.
constexpr const char* reason_names[] = {"steps",    "gradient",   "change",    "target",
                                        "patience", "no descent", "not finite"};

struct MinimizeArguments {
    DescentOptions options;
    std::size_t steps, history_every, callback_every;
    nb::object callback;
};

Method method_of(const std::string& name) {
    const auto found = std::find(std::begin(method_names), std::end(method_names), name);
    if (found == std::end(method_names)) raise("OptionError", "minimize: no method '" + name + "'");
    return static_cast<Method>(found - std::begin(method_names));
}

/// The inputs that the program's derivatives are by; raises if they are no variables.
std::vector<std::uint32_t> variables_of(const Compiled& c) {
    std::vector<std::uint32_t> out;
    for (std::int64_t input : c.wrt_input) {
        const auto place = static_cast<std::uint32_t>(input);
        if (input < 0 || std::find(out.begin(), out.end(), place) != out.end())
            raise("GradError",
                  "minimize: every Var of `wrt` must be a different input of the program");
        out.push_back(place);
    }
    return out;
}

void check_outputs(const Compiled& c, Method method, bool with_data) {
    if (method == Method::lm) {
        if (!c.with_gradient || (c.scalar && !with_data))
            raise("GradError",
                  "minimize: method 'lm' takes a program of residuals and their Jacobian, which "
                  "minimises half the sum of their squares; compile it as "
                  "tg.compile([r1, r2, ...], wrt=inputs)");
    } else if (!c.scalar || !c.with_gradient) {
        raise("GradError",
              "minimize: the program must have one output and its gradient; compile it as "
              "tg.compile(loss, wrt=inputs)");
    }
}

template <class T>
class Minimization {
   public:
    Minimization(const Compiled& c, const Runner<T>& runner, nb::handle x0, nb::handle rows,
                 bool mean, const MinimizeArguments& a)
        : compiled_(c), arguments_(a) {
        const int dimensions = PyArray_Check(x0.ptr()) ? PyArray_NDIM(array_of(x0.ptr())) : 1;
        if (dimensions > 2)
            raise("ShapeError",
                  "minimize x0: expected a start of 1 dimension, or several as rows of 2, got "
                  "shape " +
                      shape_text(array_of(x0.ptr())));
        const bool many = dimensions == 2;
        nb::object start = input_array(c, "minimize x0", x0.ptr(), many ? 2 : 1);
        start = nb::steal(PyArray_NewCopy(array_of(start), NPY_CORDER));
        if (!start.is_valid()) throw nb::python_error();
        const npy_intp given = PyArray_DIM(array_of(start), many ? 1 : 0);
        if (rows.is_none())
            check_inputs(c, "minimize x0", given);
        else
            take_rows(rows, mean, given);
        inputs_ = static_cast<std::size_t>(given);
        count_ = many ? static_cast<std::size_t>(PyArray_DIM(array_of(start), 0)) : 1;
        many_ = many;
        if (!count_) raise("ShapeError", "minimize x0: expected at least one start, got none");
        const std::vector<std::uint32_t> variables = variables_of(c);
        DescentOptions options = a.options;
        // With data the rows find out by themselves how they are run fastest.
        if (!data_)
            options.threads = threads_for(runner, options, variables.size(), count_, a.steps);
        const int lanes = count_ == 1 ? 1 : runner.lanes_for(count_, options.threads);
        const Runner<T>& suited = data_ ? runner : runner.in_lanes(lanes, a.steps * count_);
        descent_.emplace(
            suited, Objective<T>(suited, variables, data_ ? &*data_ : nullptr, options.threads),
            options, static_cast<const T*>(PyArray_DATA(array_of(start))), count_);
    }

    nb::tuple run() {
        try {
            return descended();
        } catch (const BranchChanged& changed) {
            raise_at(changed);
        }
    }

   private:
    using Clock = std::chrono::steady_clock;

    nb::tuple descended() {
        std::size_t piece = 1;
        while (descent_->taken() < arguments_.steps && !descent_->all_ended() && !stopped_by_) {
            const std::size_t before = descent_->taken();
            piece = advance(piece);
            const bool is_new = descent_->taken() > before;  // not if all ended where they were
            if (interrupted())
                stopped_by_ = "interrupt";
            else if (is_new && wants_to_stop() && !stopped_by_)
                stopped_by_ = "callback";
        }
        {
            Unlocked unlocked(true);
            descent_->finish();
        }
        return result();
    }

    /// Tells the rows of data that take another branch where the descent was, or the starts from
    /// which it came there.
    [[noreturn]] void raise_at(const BranchChanged& changed) const {
        if (columns_) {
            Shared shared = first_inputs(compiled_, inputs_);
            std::copy_n(changed.points.begin(), inputs_, shared.values.begin());
            raise_branch_changed(compiled_, "minimize", columns_->keep, shared);
        }
        auto shape = {static_cast<npy_intp>(inputs_),
                      static_cast<npy_intp>(changed.points.size() / inputs_)};
        nb::object points =
            nb::steal(PyArray_SimpleNew(2, const_cast<npy_intp*>(std::data(shape)), NPY_DOUBLE));
        if (!points.is_valid()) throw nb::python_error();
        std::copy(changed.points.begin(), changed.points.end(),
                  static_cast<double*>(PyArray_DATA(array_of(points))));
        nb::list starts;
        for (std::size_t lane = 0; lane < changed.points.size() / inputs_; ++lane)
            starts.append(std::min(count_ - 1, changed.first_start + lane));
        raise_branch_changed(compiled_, changed, points.attr("T"),
                             many_ ? nb::object(starts) : nb::none());
    }

    /// The variables are the program's first inputs, the others have a column of `rows` each.
    void take_rows(nb::handle rows, bool mean, npy_intp variables) {
        if (static_cast<std::size_t>(variables) > compiled_.inputs())
            check_inputs(compiled_, "minimize x0", variables);
        const Shared shared = first_inputs(compiled_, static_cast<std::size_t>(variables));
        check_summable(compiled_, shared, "minimize");
        columns_.emplace(compiled_, "minimize rows", rows, shared);
        if (!columns_->rows)
            raise("ShapeError", "minimize rows: expected at least one row, got none");
        const std::vector<T> values(compiled_.inputs());
        std::vector<InputRows<T>> inputs = columns_->from(0, shared, values);
        inputs.erase(inputs.begin(), inputs.begin() + variables);
        data_ = {std::move(inputs), static_cast<std::size_t>(columns_->rows), mean};
    }

    /// Takes a piece of steps and returns the size of the next: some 20 ms, so that Ctrl-C is
    /// heard.
    std::size_t advance(std::size_t piece) {
        piece = std::min(piece, arguments_.steps - descent_->taken());
        if (arguments_.callback_every)
            piece = std::min(
                piece, arguments_.callback_every - descent_->taken() % arguments_.callback_every);
        const std::size_t every = arguments_.history_every;
        if (every) history_.resize(((descent_->taken() + piece) / every + 1) * count_);
        const auto start = Clock::now();
        {
            Unlocked unlocked(true);
            descent_->advance(piece, every ? history_.data() : nullptr,
                              std::max<std::size_t>(every, 1));
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        const double factor = std::clamp(0.02 / std::max(seconds, 1e-9), 0.5, 8.0);
        return std::max<std::size_t>(static_cast<std::size_t>(static_cast<double>(piece) * factor),
                                     1);
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
        stopped_by_ = "interrupt";
        return true;
    }

    template <class Fill>
    std::pair<nb::object, nb::object> arrays(Fill fill) {
        const auto m = static_cast<npy_intp>(count_), n = static_cast<npy_intp>(inputs_);
        nb::object x = many_ ? output_array(compiled_, "x", nullptr, {m, n})
                             : output_array(compiled_, "x", nullptr, {n});
        nb::object values = output_array(compiled_, "value", nullptr, {m});
        auto* value_data = static_cast<T*>(PyArray_DATA(array_of(values)));
        fill(static_cast<T*>(PyArray_DATA(array_of(x))), value_data);
        if (!many_) values = nb::float_(static_cast<double>(value_data[0]));
        return {x, values};
    }

    nb::tuple result() {
        auto [x, value] = arrays([&](T* xs, T* values) { descent_->best(xs, values); });
        auto [last_x, last_value] = arrays([&](T* xs, T* values) { descent_->last(xs, values); });
        return nb::make_tuple(x, value, last_x, last_value, history(), descent_->taken(),
                              stopped_by_ != nullptr, reasons());
    }

    /// Why each start ended.
    nb::list reasons() const {
        nb::list out;
        for (std::size_t i = 0; i < count_; ++i) {
            const Reason reason = descent_->reason(i);
            out.append(reason == Reason::none && stopped_by_
                           ? stopped_by_
                           : reason_names[static_cast<std::size_t>(reason)]);
        }
        return out;
    }

    /// The values kept so far; the one at the end is among them if its step is.
    nb::object history() {
        const std::size_t taken = descent_->taken(), every = arguments_.history_every;
        if (!every) return nb::none();
        std::size_t rows = (taken + every - 1) / every;
        history_.resize((rows + 1) * count_);
        if (taken % every == 0) {
            std::vector<T> x(count_ * inputs_);
            descent_->last(x.data(), history_.data() + rows * count_);
            ++rows;
        }
        const auto kept = static_cast<npy_intp>(rows), m = static_cast<npy_intp>(count_);
        nb::object out = many_ ? output_array(compiled_, "history", nullptr, {kept, m})
                               : output_array(compiled_, "history", nullptr, {kept});
        std::copy_n(history_.data(), rows * count_, static_cast<T*>(PyArray_DATA(array_of(out))));
        return out;
    }

    const Compiled& compiled_;
    const MinimizeArguments& arguments_;
    std::size_t count_ = 1, inputs_ = 0;
    bool many_ = false;
    const char* stopped_by_ = nullptr;
    std::optional<Columns<T>> columns_;
    std::optional<Data<T>> data_;
    std::optional<Descent<T>> descent_;
    std::vector<T> history_;
};

/// Bounds of the inputs, as they are of the variables; None: there are none.
Bounds bounds_of(const Compiled& c, nb::handle low, nb::handle high) {
    Bounds out;
    if (low.is_none()) return out;
    const auto lows = nb::cast<std::vector<double>>(low),
               highs = nb::cast<std::vector<double>>(high);
    for (std::uint32_t input : variables_of(c)) {
        if (input >= lows.size() || input >= highs.size())
            raise("ShapeError", "minimize: expected bounds for every input of x0");
        out.low.push_back(lows[input]);
        out.high.push_back(highs[input]);
    }
    return out;
}

}  // namespace

nb::tuple minimize(const Compiled& c, nb::handle x0, const std::string& method, std::size_t steps,
                   nb::dict options) {
    const auto real = [&](const char* name) { return nb::cast<double>(options[name]); };
    const auto whole = [&](const char* name) { return nb::cast<std::size_t>(options[name]); };
    const nb::object rows = options["rows"];
    MinimizeArguments a{{}, steps, whole("history"), whole("every"), options["callback"]};
    a.options.method = method_of(method);
    check_outputs(c, a.options.method, !rows.is_none());
    a.options.lr = real("lr");
    a.options.beta1 = real("beta1");
    a.options.beta2 = real("beta2");
    a.options.epsilon = real("eps");
    a.options.momentum = real("momentum");
    a.options.memory = whole("memory");
    a.options.stops = {real("gtol"), real("ftol"), real("target"), whole("patience"),
                       c.is_double() ? std::numeric_limits<double>::epsilon()
                                     : std::numeric_limits<float>::epsilon()};
    a.options.bounds = bounds_of(c, options["low"], options["high"]);
    a.options.threads = checked_threads(options["threads"]);
    return std::visit(
        [&](const auto& runner) {
            using T = std::decay_t<decltype(*runner)>;
            using Real = std::conditional_t<std::is_same_v<T, Runner<double>>, double, float>;
            return Minimization<Real>(c, *runner, x0, rows, nb::cast<bool>(options["mean"]), a)
                .run();
        },
        c.runner);
}

}  // namespace tapegrad::bindings
