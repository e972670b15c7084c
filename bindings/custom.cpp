// bindings/custom.cpp -- Python functions as operations: called with arrays of rows, under the
// interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>

#include "compiled.h"
#include "scalar/checks.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

/// A Python function with its arity.
class PythonFunction : public Custom {
   public:
    PythonFunction(nb::object function, std::string called, std::uint32_t takes,
                   std::uint32_t gives, std::shared_ptr<PythonFunction> derivative)
        : function_(std::move(function)) {
        name = std::move(called);
        operands = takes;
        results = gives;
        if (derivative) derivative->cotangents = gives;
        vjp = std::move(derivative);
    }
    ~PythonFunction() override {
        if (!nb::is_alive()) {  // the interpreter is gone, and the function with it
            function_.release();
            return;
        }
        nb::gil_scoped_acquire lock;
        function_.reset();
    }
    PythonFunction(const PythonFunction&) = delete;
    PythonFunction& operator=(const PythonFunction&) = delete;

    void call(const CustomCall& call) const override {
        if (has_failed()) return;
        nb::gil_scoped_acquire lock;
        try {
            if (call.is_float)
                run<float>(call, NPY_FLOAT);
            else
                run<double>(call, NPY_DOUBLE);
        } catch (...) {
            report_failure(std::current_exception());
        }
    }

   private:
    /// The lanes of one operand or result.
    template <class T>
    static T* lanes(const CustomCall& call, std::uint32_t word) {
        const std::uint32_t slot = call.wide ? static_cast<const std::uint32_t*>(call.record)[word]
                                             : static_cast<const std::uint16_t*>(call.record)[word];
        return static_cast<T*>(call.slots) +
               static_cast<std::size_t>(slot) * static_cast<std::size_t>(call.width);
    }

    /// Rows to call the function with: a tail of copies of one row, as batches are filled up with,
    /// counts once.
    template <class T>
    std::size_t rows(const CustomCall& call) const {
        auto count = static_cast<std::size_t>(call.width);
        const auto repeated = [&](std::size_t lane) {
            for (std::uint32_t i = 1; i <= call.operands; ++i) {
                const T* x = lanes<T>(call, i);
                if (std::memcmp(x + lane, x + lane - 1, sizeof(T)) != 0) return false;
            }
            return true;
        };
        while (count > 1 && repeated(count - 1)) --count;
        return count;
    }

    template <class T>
    void run(const CustomCall& call, int typenum) const {
        const std::size_t count = rows<T>(call);
        nb::object arguments = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(call.operands)));
        if (!arguments.is_valid()) throw nb::python_error();
        for (std::uint32_t i = 0; i < call.operands; ++i) {
            npy_intp size = static_cast<npy_intp>(count);
            PyObject* array = PyArray_SimpleNew(1, &size, typenum);
            if (!array) throw nb::python_error();
            std::memcpy(PyArray_DATA(array_of(array)), lanes<T>(call, 1 + i), count * sizeof(T));
            PyTuple_SET_ITEM(arguments.ptr(), i, array);
        }
        nb::object found = nb::steal(PyObject_Call(function_.ptr(), arguments.ptr(), nullptr));
        if (!found.is_valid()) throw nb::python_error();
        const bool several = PyTuple_Check(found.ptr()) || PyList_Check(found.ptr());
        if (!several) found = nb::make_tuple(found);
        nb::object items = nb::steal(PySequence_Tuple(found.ptr()));
        if (PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(call.results))
            raise("ShapeError", "custom '" + name + "': expected " + std::to_string(call.results) +
                                    " results, got " +
                                    std::to_string(PyTuple_GET_SIZE(items.ptr())));
        for (std::uint32_t k = 0; k < call.results; ++k)
            store<T>(call, k, PyTuple_GET_ITEM(items.ptr(), k), typenum, count);
    }

    template <class T>
    void store(const CustomCall& call, std::uint32_t k, PyObject* result, int typenum,
               std::size_t count) const {
        if (result == Py_None)
            raise("DTypeError", "custom '" + name + "': expected numbers, got None");
        check_unmasked(("custom '" + name + "'").c_str(), result);
        nb::object given = nb::steal(PyArray_FROM_O(result));
        if (!given.is_valid()) throw nb::python_error();
        const int type = PyArray_TYPE(array_of(given));
        if (!(PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type) || PyTypeNum_ISBOOL(type)))
            raise("DTypeError", "custom '" + name + "': expected result " + std::to_string(k) +
                                    " as real numbers, got dtype " + dtype_text(array_of(given)));
        const auto size = static_cast<std::size_t>(PyArray_SIZE(array_of(given)));
        // A number of Python's is a constant; one of NumPy's may well be a sum over the rows.
        const bool constant = PyFloat_CheckExact(result) || PyLong_Check(result);
        if ((size != count && !constant) || PyArray_NDIM(array_of(given)) > 1)
            raise("ShapeError", "custom '" + name + "': expected result " + std::to_string(k) +
                                    " with a number for each of " + std::to_string(count) +
                                    " rows, got " + std::to_string(size) + " of shape " +
                                    shape_text(array_of(given)));
        nb::object array = nb::steal(
            PyArray_FROMANY(given.ptr(), typenum, 0, 1, NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST));
        if (!array.is_valid()) throw nb::python_error();
        const T* from = static_cast<const T*>(PyArray_DATA(array_of(array)));
        T* to = lanes<T>(call, 0) + std::size_t{k} * static_cast<std::size_t>(call.width);
        for (std::size_t lane = 0; lane < static_cast<std::size_t>(call.width); ++lane)
            to[lane] = from[std::min(lane, size - 1)];
    }

    nb::object function_;
};

nb::list record_custom(const std::shared_ptr<PythonFunction>& function, nb::handle values) {
    const Vars vars = vars_of(values, "custom");
    if (vars.all.size() != function->operands)
        raise("ShapeError", "custom '" + function->name + "': expected " +
                                std::to_string(function->operands) + " operands, got " +
                                std::to_string(vars.all.size()));
    const auto& graph = vars.all[0]->graph;
    std::vector<NodeId> ids;
    for (const Var* var : vars.all)
        ids.push_back((common_graph("custom", *vars.all[0], *var), var->id));
    const NodeId header = graph->custom(function, ids);
    nb::list out;
    for (std::uint32_t i = 0; i < function->results; ++i)
        out.append(make_var(graph, header + 1 + i));
    return out;
}

}  // namespace

void bind_custom(nb::module_& m) {
    nb::class_<PythonFunction>(m, "Custom", "A Python function as an operation of graphs.")
        .def(
            "__init__",
            [](PythonFunction* self, nb::object function, std::string name, std::uint32_t operands,
               std::uint32_t results, std::shared_ptr<PythonFunction> vjp) {
                if (!operands || !results || results > 1000)
                    raise("ShapeError",
                          "custom: expected at least one operand, and 1 to 1,000 outputs");
                if (vjp && (vjp->operands != operands + results || vjp->results != operands))
                    raise("ShapeError",
                          "custom: expected a vjp of cotangents and operands to adjoints");
                new (self) PythonFunction(std::move(function), std::move(name), operands, results,
                                          std::move(vjp));
            },
            nb::arg("function"), nb::arg("name"), nb::arg("operands"), nb::arg("results"),
            nb::arg("vjp").none(),
            nb::sig("def __init__(self, function: collections.abc.Callable[..., typing.Any], name: "
                    "str, operands: int, results: int, vjp: Custom | None) -> None"));
    m.def("record_custom", &record_custom, nb::arg("function"), nb::arg("operands"),
          nb::sig("def record_custom(function: Custom, operands: collections.abc.Sequence[Var]) -> "
                  "list[Var]"),
          "Records a call of a Python function; returns its results.");
}

}  // namespace tapegrad::bindings
