// bindings/onednn/functions.h -- what the files of the oneDNN module share.
#pragma once

#include <nanobind/nanobind.h>

#include "onednn/plan.h"

namespace tapegrad::bindings {

namespace nb = nanobind;

/// The key that was given, (Weight, version) or None. A weight that had to be copied, `taken` from
/// `given`, is kept by nobody: the copy's memory will have other numbers.
onednn::WeightKey weight_key(nb::handle key, const nb::object& taken, nb::handle given);

void bind_convolution(nb::module_& m);
void bind_matmul(nb::module_& m);

}  // namespace tapegrad::bindings
