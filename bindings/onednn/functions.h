// bindings/onednn/functions.h -- what the files of the oneDNN module share.
#pragma once

#include <nanobind/nanobind.h>

#include "onednn/plan.h"

namespace tapegrad::bindings {

namespace nb = nanobind;

/// (identity, version) of a weight, or None.
onednn::WeightKey weight_key(nb::handle key);

void bind_convolution(nb::module_& m);
void bind_matmul(nb::module_& m);

}  // namespace tapegrad::bindings
