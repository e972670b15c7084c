// core/tensor/variance.h -- the variance over dimensions of an array.
#pragma once

#include "view.h"

namespace tapegrad {

/// The mean of squared distances from the mean over the dimensions that `reduced` marks, their
/// count lessened by `correction`. out is contiguous, of the type of x and the reduced shape. False
/// if there is not enough memory.
bool variance(const View& x, const bool* reduced, double correction, const View& out);

}  // namespace tapegrad
