// bindings/compiled.h -- what Python holds of a program, and its arguments as NumPy arrays.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "numpy.h"
#include "python.h"
#include "reach.h"
#include "scalar/runner.h"

namespace tapegrad::bindings {

/// What Python holds: a program with its number type and the shape of its results.
struct Compiled {
    std::variant<std::unique_ptr<Runner<double>>, std::unique_ptr<Runner<float>>> runner;
    std::shared_ptr<const Program> program;
    bool scalar;                          ///< one output, given as a Var and not in a sequence
    bool with_gradient;                   ///< returns (values, derivatives)
    std::vector<std::int64_t> wrt_input;  ///< per derivative the input it belongs to, or -1
    /// What `shared` may name inputs by: the graph, if it still is there, and its nodes.
    std::weak_ptr<const Graph> graph = {};
    std::vector<NodeId> input_nodes = {};

    bool is_double() const { return runner.index() == 0; }
    int typenum() const { return is_double() ? NPY_DOUBLE : NPY_FLOAT; }
    const char* dtype() const { return is_double() ? "float64" : "float32"; }
    std::size_t inputs() const { return program->code().input_count; }
    std::size_t values() const { return program->values(); }
    std::size_t derivatives() const { return program->derivatives(); }
    /// Costly enough that giving other threads the interpreter pays.
    bool long_running() const { return program->stats().work > 2000; }
};

inline PyArrayObject* array_of(PyObject* object) {
    return reinterpret_cast<PyArrayObject*>(object);
}
inline PyArrayObject* array_of(const nb::object& object) { return array_of(object.ptr()); }

inline Reach reach_of(PyArrayObject* array) {
    return tapegrad::reach_of(PyArray_BYTES(array), PyArray_ITEMSIZE(array), PyArray_NDIM(array),
                              PyArray_DIMS(array), PyArray_STRIDES(array));
}

/// `object` as an array of the program's number type with `ndim` dimensions; the array itself
/// where it is one already, however it is strided.
nb::object input_array(const Compiled& c, const char* what, PyObject* object, int ndim);
/// A given array for results, checked; or a new one.
nb::object output_array(const Compiled& c, const char* what, PyObject* given,
                        std::initializer_list<npy_intp> shape);
/// Raises unless `got` is the number of the program's inputs.
void check_inputs(const Compiled& c, const char* what, npy_intp got);
/// A number of threads, 0 for all cores; raises for others.
int checked_threads(nb::handle threads);

/// Runs a program in one of the number types.
inline decltype(Compiled::runner) make_runner(const std::shared_ptr<const Program>& program,
                                              bool is_double) {
    if (is_double) return std::make_unique<Runner<double>>(program);
    return std::make_unique<Runner<float>>(program);
}

/// Makes a program of its record, and a record of a program.
void restore(Compiled* self, const nb::bytes& record);
nb::bytes record(const Compiled& c);
/// The instructions of a program before they are scheduled, with their values numbered.
nb::dict listing(const Compiled& c);
nb::list input_names(const Compiled& c);
/// What a program was compiled from, as Vars of a graph of its own: outputs, wrt, inputs.
nb::tuple opened(const Program& program);

/// The native loop behind Program.minimize, which fills in and checks the options.
nb::tuple minimize(const Compiled& c, nb::handle x0, const std::string& method, std::size_t steps,
                   nb::dict options);
/// Figures of the compiled program.
nb::dict stats(const Compiled& c);
/// What explain() calls the kernel of a run.
std::string kernel_name(const Run& run);
/// Instructions and seconds per kernel, seconds in all, and rows at once.
nb::tuple profile_program(const Compiled& c, nb::handle x, std::size_t repeats);

}  // namespace tapegrad::bindings
