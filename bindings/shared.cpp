// bindings/shared.cpp -- which inputs of a batch have one value for all rows, and which are
// columns.
#include "shared.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <numeric>

namespace tapegrad::bindings {
namespace {

/// Places of the inputs of this name.
std::size_t place_of_name(const Compiled& c, const std::string& name) {
    const std::vector<std::string>& names = c.program->input_names();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
        raise("OptionError", "batch shared: the program has no input named '" + name +
                                 "'; program.input_names lists those it has");
    if (std::find(found + 1, names.end(), name) != names.end())
        raise("OptionError",
              "batch shared: several inputs are named '" + name + "'; give their places instead");
    return static_cast<std::size_t>(found - names.begin());
}

std::size_t place_of_var(const Compiled& c, const Var& var) {
    const auto& ids = c.input_nodes;
    const auto found = std::find(ids.begin(), ids.end(), var.id);
    if (c.graph.lock() != var.graph || found == ids.end())
        raise("OptionError",
              "batch shared: expected inputs that the program was compiled with, got a Var that is "
              "none of them; programs from files know names and places only");
    return static_cast<std::size_t>(found - ids.begin());
}

std::size_t place_of(const Compiled& c, PyObject* key) {
    if (PyUnicode_Check(key)) return place_of_name(c, utf8(key));
    if (const Var* var = as_var(key)) return place_of_var(c, *var);
    if (!PyIndex_Check(key))
        raise("DTypeError", "batch shared: expected names, Vars or places of inputs as keys, got " +
                                type_name(key));
    const Py_ssize_t place = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred()) throw nb::python_error();
    if (place < 0 || static_cast<std::size_t>(place) >= c.inputs())
        raise("OptionError", "batch shared: expected places from 0 to " +
                                 std::to_string(c.inputs()) + " (exclusive), got " +
                                 std::to_string(place));
    return static_cast<std::size_t>(place);
}

void take_item(const Compiled& c, nb::handle key, nb::handle value, Shared& out) {
    const std::size_t place = place_of(c, key.ptr());
    Operand number;
    if (!to_operand(value.ptr(), number) || number.var)
        raise("DTypeError",
              "batch shared: expected a number for each input, got " + type_name(value.ptr()));
    if (out.is[place])
        raise("OptionError", "batch shared: input " + std::to_string(place) + " is given twice");
    out.is[place] = true;
    out.values[place] = number.number;
}

}  // namespace

Reduce reduce_of(nb::handle reduce, const char* what) {
    if (reduce.is_none()) return Reduce::none;
    if (PyUnicode_Check(reduce.ptr())) {
        const auto text = nb::cast<std::string>(reduce);
        if (text == "sum") return Reduce::sum;
        if (text == "mean") return Reduce::mean;
    }
    raise("OptionError", std::string(what) + ": expected reduce 'sum', 'mean' or None, got " +
                             nb::cast<std::string>(nb::repr(reduce)));
}

std::size_t Shared::count() const {
    return static_cast<std::size_t>(std::count(is.begin(), is.end(), char(true)));
}

Shared first_inputs(const Compiled& c, std::size_t count) {
    Shared out{std::vector<char>(c.inputs()), std::vector<double>(c.inputs())};
    std::fill_n(out.is.begin(), count, true);
    return out;
}

Shared shared_of(const Compiled& c, nb::handle shared) {
    Shared out = first_inputs(c, 0);
    if (shared.is_none()) return out;
    if (PyObject_HasAttrString(shared.ptr(), "keys")) {
        const nb::dict items;  // a copy: values may change the original while they are read
        if (PyDict_Update(items.ptr(), shared.ptr())) throw nb::python_error();
        for (auto [key, value] : items) take_item(c, key, value, out);
        return out;
    }
    const nb::object array = input_array(c, "batch shared", shared.ptr(), 1);
    const auto count = static_cast<std::size_t>(PyArray_DIM(array_of(array), 0));
    if (count > c.inputs())
        raise("ShapeError", "batch shared: expected values for at most " +
                                std::to_string(c.inputs()) + " inputs, got " +
                                std::to_string(count));
    for (std::size_t i = 0; i < count; ++i) {
        const void* at = PyArray_GETPTR1(array_of(array), static_cast<npy_intp>(i));
        out.is[i] = true;
        out.values[i] = c.is_double() ? *static_cast<const double*>(at)
                                      : static_cast<double>(*static_cast<const float*>(at));
    }
    return out;
}

void check_summable(const Compiled& c, const Shared& shared, const char* what) {
    for (std::int64_t input : c.wrt_input)
        if (input < 0 || !shared.is[static_cast<std::size_t>(input)])
            raise("GradError", std::string(what) +
                                   ": sums over rows have derivatives by shared inputs only; "
                                   "expected all of `wrt` among them, got " +
                                   (input < 0 ? "a Var that is no input"
                                              : "input " + std::to_string(input) +
                                                    ", which differs from row to row"));
}

template <class T>
Columns<T>::Columns(const Compiled& c, const char* what, nb::handle x, const Shared& shared)
    : keep(input_array(c, what, x.ptr(), 2)) {
    const std::size_t expected = c.inputs() - shared.count();
    if (static_cast<std::size_t>(PyArray_DIM(array_of(keep), 1)) != expected)
        raise("ShapeError",
              std::string(what) + ": the program has " + std::to_string(c.inputs()) + " inputs" +
                  (shared.count() ? ", of which " + std::to_string(shared.count()) +
                                        " are shared; "
                                        "expected rows of the other " +
                                        std::to_string(expected)
                                  : "") +
                  ", got " + std::to_string(PyArray_DIM(array_of(keep), 1)) + " values");
    // Strides that are no multiple of the element size (fields of records) are copied away.
    constexpr auto size = static_cast<npy_intp>(sizeof(T));
    if (PyArray_STRIDE(array_of(keep), 0) % size || PyArray_STRIDE(array_of(keep), 1) % size) {
        keep = nb::steal(PyArray_NewCopy(array_of(keep), NPY_CORDER));
        if (!keep.is_valid()) throw nb::python_error();
    }
    data = static_cast<const T*>(PyArray_DATA(array_of(keep)));
    rows = PyArray_DIM(array_of(keep), 0);
    row_stride = PyArray_STRIDE(array_of(keep), 0) / size;
    column_stride = PyArray_STRIDE(array_of(keep), 1) / size;
}

template <class T>
std::vector<InputRows<T>> Columns<T>::from(npy_intp first, const Shared& shared,
                                           const std::vector<T>& values) const {
    std::vector<InputRows<T>> out;
    out.reserve(shared.is.size());
    npy_intp column = 0;
    for (std::size_t i = 0; i < shared.is.size(); ++i)
        if (shared.is[i])
            out.push_back({values.data() + i, 0});
        else
            out.push_back({data + first * row_stride + column++ * column_stride, row_stride});
    return out;
}

template struct Columns<double>;
template struct Columns<float>;

}  // namespace tapegrad::bindings
