// core/tensor/sort.h -- where the smallest or largest elements along a dimension are, in order.
#pragma once

#include "view.h"

namespace tapegrad {

/// places[outer, i, inner], i < count: where the i-th element of x lies along the dimension of the
/// slab. NaN is larger than all numbers; of equal elements the first comes first. x and places are
/// contiguous. Throws std::bad_alloc.
void order(const View& x, const Slab& slab, bool descending, Size count, std::int64_t* places);

}  // namespace tapegrad
