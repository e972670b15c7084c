// bindings/minimize.cpp -- gradient descent from Python: pieces of steps, history, callback,
// Ctrl-C.
#include "scalar/minimize.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>

#include "compiled.h"

namespace tapegrad::bindings {
namespace {

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

}  // namespace

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

}  // namespace tapegrad::bindings
