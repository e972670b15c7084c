// core/tensor/pointwise.h -- operations and scalar programs over strided, broadcast arrays.
//
// 1. Elements are computed in blocks, in the order of the result. Within a block an operand is read
//    where it lies if it is laid out like the result and has the type that is computed in; else
//    (broadcast, strided, of another type) its block is gathered first, into the cache.
// 2. One operation runs on these pointers. So does a program (programs.cpp): its instructions read
//    operands and write results where they lie, and what is between them stays in slots in the
//    cache. A result may lie in an operand's memory.
// 3. Blocks are shared out over threads in contiguous ranges. No element depends on another, so the
//    number of threads does not matter to the bits.
#pragma once

#include <cstdint>
#include <span>

#include "../scalar/runner.h"
#include "dtype.h"

namespace tapegrad {

/// Strides are in bytes, one per dimension of the result, 0 where the operand is broadcast.
struct Strided {
    char* data;
    DType type;
    std::int64_t strides[max_dims];
};

/// The shape that all operands and results are read and written with.
struct Extent {
    int ndim;
    std::int64_t sizes[max_dims];

    std::int64_t count() const {
        std::int64_t product = 1;
        for (int d = 0; d < ndim; ++d) product *= sizes[d];
        return product;
    }
};

/// Below, `threads` is as for thread_count: 0 takes all cores.

/// Whether the operation has loops over whole numbers; the others compute in floating point.
bool works_on_integers(Op op);

/// result = op(operands), computed in `compute` (not boolean). Op::where takes three operands.
void pointwise(Op op, DType compute, const Extent& extent, std::span<const Strided> operands,
               const Strided& result, int threads);

/// Which bits of the result are set: those of both operands, of either, or of just one. Whole
/// numbers have bits and no derivatives, so these are no lines of the table.
enum class BitOp { both, either, one };

/// The same for the bits of two operands, computed in int32 or int64.
void pointwise(BitOp op, DType compute, const Extent& extent, std::span<const Strided> operands,
               const Strided& result, int threads);

/// result = op(operands) of the table for `count` elements that lie without gaps and are all of
/// type `compute`.
void pointwise(Op op, DType compute, std::int64_t count, const char* a, const char* b, char* y,
               int threads);

/// results = program(operands), all of it in the program's number type.
template <class T>
void pointwise(const Runner<T>& runner, const Extent& extent, std::span<const Strided> operands,
               std::span<const Strided> results, int threads);

}  // namespace tapegrad
