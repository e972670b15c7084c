// core/tensor/reduce.h -- sums, products, extremes and their like over dimensions of an array.
#pragma once

#include "kernels.h"
#include "view.h"

namespace tapegrad {

enum class ReduceOp { sum, mean, prod, max, min, any, all };

/// The element type of the result; false in `defined` where there is none (the mean of integers).
struct ResultType {
    DType type;
    bool defined;
};
ResultType reduced_type(ReduceOp op, DType type);

/// Reduces the dimensions that `reduced` marks. out is contiguous, of the reduced type and shape;
/// x has no empty reduced dimension if the op has no value for nothing (max, min). False if there
/// is not enough memory.
bool reduce(ReduceOp op, const View& x, const bool* reduced, const View& out);

/// The largest (smallest) of each row along `dim`, and where it stands first; NaN counts as
/// extreme. x is contiguous, n > 0.
void arg_reduce(bool largest, const View& x, int dim, const View& values, std::int64_t* indices);

/// Running sums along dim; x and out are contiguous. Floats, int32 and int64.
void cumsum(const View& x, int dim, const View& out);

}  // namespace tapegrad
