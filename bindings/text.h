// bindings/text.h -- arrays as messages show them.
#pragma once

#include <string>

#include "numpy.h"

namespace tapegrad::bindings {

/// Sizes as Python writes a tuple.
std::string shape_text(int ndim, const npy_intp* sizes);
std::string shape_text(PyArrayObject* array);
/// The number type's name.
std::string dtype_text(PyArrayObject* array);

}  // namespace tapegrad::bindings
