// bindings/tensor/arrays.h -- NumPy arrays as the kernels' arguments and results.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "interpreter.h"
#include "numpy.h"
#include "tensor/view.h"
#include "threads.h"

// Types for the stubs.
#define ARRAY "numpy.typing.NDArray[typing.Any]"
#define PAIR "collections.abc.Sequence[int]"

namespace tapegrad::bindings {

inline PyArrayObject* array_of(nb::handle object) {
    return reinterpret_cast<PyArrayObject*>(object.ptr());
}

/// Sets of element types that a function takes.
enum Types : unsigned {
    reals = 1u << int(DType::f32) | 1u << int(DType::f64),
    integers = 1u << int(DType::i32) | 1u << int(DType::i64),
    numbers = reals | integers,
    all_types = numbers | 1u << int(DType::b8),
};

/// An argument: the array, aligned and in the machine's byte order, and how it lies.
struct Array {
    nb::object object;
    View view;

    template <class T>
    T* as() const {
        return view.as<T>();
    }
    Size size(int dim) const { return view.shape[dim]; }
};

struct Shape {
    int ndim = 0;
    npy_intp sizes[max_dims];

    Shape() = default;
    /// That of an array.
    explicit Shape(const View& view);
    void append(Size size) { sizes[ndim++] = size; }
};

std::string text_of(const Shape& shape);
const char* text_of(DType type);

/// `what` names function and argument in messages: "softmax: x".
Array input(const char* what, nb::handle object, unsigned types);
/// The same, C-contiguous: a copy where it is not.
Array contiguous(const char* what, nb::handle object, unsigned types);
/// The same of one dtype and shape.
Array contiguous_like(const char* what, nb::handle object, const View& model);
/// A contiguous vector of `count` elements of the type of `model`; None gives an empty Array.
Array parameter(const char* what, nb::handle object, DType type, Size count);
/// An array of any dtype whose elements have 1, 2, 4, 8 or 16 bytes and are no Python objects; its
/// view's type means nothing.
Array items(const char* what, nb::handle object);
/// The same, C-contiguous.
Array contiguous_items(const char* what, nb::handle object);
/// A contiguous array of int64.
Array indices(const char* what, nb::handle object);

/// A result; its memory is not set.
Array fresh(const Shape& shape, DType type);
Array fresh_like(const View& view);
/// A result of the dtype of an array, whatever it is.
Array fresh_items(const Shape& shape, const Array& model);
/// A new array of any dtype; takes the reference to it.
nb::object fresh_object(const Shape& shape, PyArray_Descr* descr);
/// A copy of the array in C order.
Array copied(const Array& array);

/// Sizes from a Python sequence of integers, none negative.
Shape shape_argument(const char* what, nb::handle object);
/// A dimension of an array with `ndim` dimensions, 0 <= dim < ndim.
int dim_argument(const char* what, Size dim, int ndim);
/// Pairs such as a stride, from a sequence of two integers.
struct Pair {
    Size first, second;
};
Pair pair_argument(const char* what, nb::handle object, Size least);

[[noreturn]] void raise_memory(const char* what);

/// Runs the body, without the interpreter's lock where it takes long.
template <class Body>
auto unlocked(Size work, Body body) {
    Unlocked release(work >= parallel_from / 2);
    return body();
}

void bind_attention(nb::module_& m);
void bind_convolution(nb::module_& m);
void bind_index(nb::module_& m);
void bind_join(nb::module_& m);
void bind_loss(nb::module_& m);
void bind_matmul(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_norm(nb::module_& m);
void bind_pooling(nb::module_& m);
void bind_random(nb::module_& m);
void bind_reduce(nb::module_& m);
void bind_sort(nb::module_& m);

}  // namespace tapegrad::bindings
