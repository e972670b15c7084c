// core/tensor/softmax.h -- softmax and its kin along a dimension of contiguous arrays.
#pragma once

#include "kernels.h"

namespace tapegrad {

void softmax(Softmax kind, const View& x, int dim, const View& y);
/// The gradient from that of the result and the result.
void softmax_backward(Softmax kind, const View& g, const View& y, int dim, const View& gx);
/// log of the sum of exponentials over the middle of [outer, n, inner].
void logsumexp(const View& x, const Slab& slab, const View& y);

}  // namespace tapegrad
