// bindings/shared.h -- which inputs of a batch have one value for all rows, and which are columns.
#pragma once

#include "compiled.h"

namespace tapegrad::bindings {

enum class Reduce { none, sum, mean };

/// None, "sum" or "mean".
Reduce reduce_of(nb::handle reduce, const char* what);

/// Per input of a program, whether all rows share its value, and which.
struct Shared {
    std::vector<char> is;
    std::vector<double> values;

    std::size_t count() const;
};

/// `shared` as Python gives it: None, values of the first inputs, or a mapping from names, Vars or
/// places of inputs to values.
Shared shared_of(const Compiled& c, nb::handle shared);
/// The first `count` inputs, with no values yet.
Shared first_inputs(const Compiled& c, std::size_t count);

/// Raises unless all derivatives are by shared inputs: those by columns differ from row to row, and
/// their sum is no derivative of anything.
void check_summable(const Compiled& c, const Shared& shared, const char* what);

/// The columns of an array of rows, for the inputs that are not shared.
template <class T>
struct Columns {
    nb::object keep;
    const T* data;
    npy_intp rows, row_stride, column_stride;

    Columns(const Compiled& c, const char* what, nb::handle x, const Shared& shared);
    /// Pointers and strides of all inputs from row `first` on; shared ones point into `values`.
    std::vector<InputRows<T>> from(npy_intp first, const Shared& shared,
                                   const std::vector<T>& values) const;
};

}  // namespace tapegrad::bindings
