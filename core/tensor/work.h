// core/tensor/work.h -- what products of matrices cost, beside loops over elements.
#pragma once

#include "view.h"

namespace tapegrad {

/// Multiplications that count as one element of work when threads are handed out.
constexpr Size products_per_element = 8;

}  // namespace tapegrad
