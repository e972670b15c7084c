// core/tensor/copy.h -- elements from one array to another, with casts and any strides.
#pragma once

#include "view.h"

namespace tapegrad {

/// Copies src to dst; both have the same shape and share no memory.
void copy(const View& dst, const View& src);
/// The same for elements of any type and equal sizes of 1, 2, 4, 8 or 16 bytes.
void copy_items(const View& dst, const View& src);

}  // namespace tapegrad
