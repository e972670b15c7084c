// bindings/onednn/arrays.h -- arguments and results of the oneDNN functions as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "interpreter.h"
#include "numpy.h"
#include "text.h"

namespace tapegrad::bindings {

inline PyArrayObject* array_of(const nb::object& object) {
    return reinterpret_cast<PyArrayObject*>(object.ptr());
}
inline float* data_of(const nb::object& array) {
    return array.is_valid() ? static_cast<float*>(PyArray_DATA(array_of(array))) : nullptr;
}
inline npy_intp size(const nb::object& array, int dim) { return PyArray_DIM(array_of(array), dim); }

/// A matrix or a batch of them, contiguous or with its last two dimensions swapped.
struct Matrices {
    nb::object array;
    bool transposed;
};

/// Looks for the memory pool and the copies of tapegrad._tensor, once, when the module is loaded.
void find_tensor_functions();
/// The object, checked to be a float32 array. `what` names the argument in messages.
nb::object float_array(const char* what, nb::handle object);
/// The same with `ndim` dimensions, contiguous: the array itself where it is so, or a copy.
nb::object contiguous(const char* what, nb::handle object, int ndim);
Matrices matrices(const char* what, nb::handle object);
/// A bias of `n` numbers, or an invalid object for None.
nb::object bias_array(const char* what, nb::handle object, npy_intp n);
/// A new array for results, uninitialised. The only place that allocates them.
nb::object fresh(int ndim, const npy_intp* sizes);
nb::object fresh(std::initializer_list<npy_intp> sizes);
void fill_zero(const nb::object& array);

/// Whether work takes so long, some 10 us, that other threads of Python may run meanwhile.
inline bool is_long(double flops) { return flops > 1e6; }

}  // namespace tapegrad::bindings
