// core/tensor/maps.h -- the operations of the table over plain arrays, for tensors.
//
// A tensor's `x * y` is one operation over many lanes: no program, no slots, pointers straight into
// the tensors. maps.cpp is compiled once per instruction set and number type, like execute.cpp.
#pragma once

#include <cstddef>

#include "../scalar/ops.h"

namespace tapegrad {

/// y[i] = op(a[i], b[i]); b is not read by operations of one operand. y may be a or b.
template <class T>
using Map = void (*)(const T* a, const T* b, T* y, std::size_t n);

/// One instruction set's loops for one number type, by operation; null where there is none.
template <class T>
struct Maps {
    Map<T> op[op_count];
};

/// Those of the instruction set in use.
template <class T>
const Maps<T>& maps();
template <>
const Maps<double>& maps<double>();
template <>
const Maps<float>& maps<float>();

}  // namespace tapegrad
