// bindings/tensor/memory.cpp -- new arrays from the pool, copies, and the number of threads.
#include <cstring>
#include <type_traits>

#include "arrays.h"
#include "reach.h"
#include "tensor/copy.h"
#include "tensor/pool.h"

namespace tapegrad::bindings {
namespace {

nb::object empty(nb::handle shape, nb::handle dtype) {
    PyArray_Descr* descr = nullptr;
    const Shape sizes = shape_argument("empty: shape", shape);
    if (!PyArray_DescrConverter(dtype.ptr(), &descr)) throw nb::python_error();
    if (PyDataType_HASSUBARRAY(descr)) {
        Py_DECREF(descr);
        raise("DTypeError", "empty: expected a dtype without a shape of its own");
    }
    return fresh_object(sizes, descr);
}

Reach reach_of(const View& v) {
    return tapegrad::reach_of(v.data, v.itemsize, v.ndim, v.shape, v.strides);
}

/// src seen in the shape of dst, repeated where it has size 1.
View broadcast(const View& src, const View& dst) {
    View out = dst;
    out.data = src.data, out.type = src.type, out.itemsize = src.itemsize;
    const int missing = dst.ndim - src.ndim;
    for (int d = 0; d < dst.ndim; ++d) {
        const Size size = d < missing ? 1 : src.shape[d - missing];
        if (missing < 0 || (size != 1 && size != dst.shape[d]))
            raise("ShapeError", "copy_to: expected src to broadcast to " + text_of(Shape(dst)) +
                                    ", got shape " + text_of(Shape(src)));
        out.strides[d] = size == 1 ? 0 : src.strides[d - missing];
    }
    return out;
}

/// An array to write to.
Array target(const char* op, nb::handle dst) {
    if (!PyArray_Check(dst.ptr()) || !PyArray_ISWRITEABLE(array_of(dst)))
        raise("DTypeError", std::string(op) + ": expected dst to be a writable array, got " +
                                type_name(dst.ptr()));
    Array to = input(op, dst, all_types);
    if (to.object.ptr() != dst.ptr())
        raise("ShapeError",
              std::string(op) + ": expected dst to be aligned and in the machine's byte order");
    return to;
}

void copy_to(nb::handle dst, nb::handle src) {
    Array to = target("copy_to", dst), from = input("copy_to: src", src, all_types);
    if (from.view.ndim > to.view.ndim && from.view.size() == 1) from.view.ndim = 0;
    if (overlap(reach_of(to.view), reach_of(from.view))) from = copied(from);
    const View source = broadcast(from.view, to.view);
    unlocked(to.view.size(), [&] { copy(to.view, source); });
}

/// Writes a number in an element type.
void set_element(void* element, DType type, nb::handle number) {
    with_type(type, [&](auto zero) {
        using T = decltype(zero);
        T value;
        if constexpr (std::is_floating_point_v<T>) {
            value = static_cast<T>(PyFloat_AsDouble(number.ptr()));
        } else if constexpr (std::is_same_v<T, bool>) {
            value = PyObject_IsTrue(number.ptr()) != 0;
        } else {
            const nb::object whole = nb::steal(PyNumber_Long(number.ptr()));
            value = whole.is_valid() ? static_cast<T>(PyLong_AsLongLong(whole.ptr())) : T{};
        }
        std::memcpy(element, &value, sizeof value);
    });
    if (PyErr_Occurred()) throw nb::python_error();
}

void fill(nb::handle dst, nb::handle number) {
    Array to = target("fill", dst);
    alignas(8) char element[8];
    set_element(element, to.view.type, number);
    View source = to.view;
    source.data = element;
    for (int d = 0; d < source.ndim; ++d) source.strides[d] = 0;
    unlocked(to.view.size(), [&] { copy(to.view, source); });
}

/// x within a border of one number; two widths per dimension.
nb::object pad(nb::handle object, const nb::tuple& widths, nb::handle number) {
    const Array x = input("pad: x", object, all_types);
    if (static_cast<int>(widths.size()) != x.view.ndim)
        raise("ShapeError", "pad: expected two widths for each of " + std::to_string(x.view.ndim) +
                                " dimensions, got " + std::to_string(widths.size()));
    Shape shape(x.view);
    Size before[max_dims];
    for (int d = 0; d < x.view.ndim; ++d) {
        const Pair width =
            pair_argument("pad: widths", nb::object(widths[static_cast<std::size_t>(d)]), 0);
        before[d] = width.first;
        shape.sizes[d] += width.first + width.second;
    }
    const Array out = fresh(shape, x.view.type);
    fill(out.object, number);
    View inner = x.view;
    inner.data = out.view.data;
    for (int d = 0; d < inner.ndim; ++d) {
        inner.strides[d] = out.view.strides[d];
        inner.data += before[d] * inner.strides[d];
    }
    unlocked(inner.size(), [&] { copy(inner, x.view); });
    return out.object;
}

void choose_threads(int n) {
    if (n < 1)
        raise("OptionError", "set_num_threads: expected 1 or more, got " + std::to_string(n));
    set_threads(n);
}

nb::tuple bytes() {
    const PoolBytes now = pool_bytes();
    return nb::make_tuple(now.used, now.kept);
}

}  // namespace

void bind_memory(nb::module_& m) {
    m.def("empty", &empty, nb::arg("shape"), nb::arg("dtype"),
          nb::sig("def empty(shape: collections.abc.Sequence[int], dtype: "
                  "numpy.typing.DTypeLike) -> " ARRAY),
          "A new array whose memory is not set; large ones come from a pool.");
    m.def("pad", &pad, nb::arg("x"), nb::arg("widths"), nb::arg("value"),
          nb::sig("def pad(x: " ARRAY
                  ", widths: tuple[tuple[int, int], ...], value: float) -> " ARRAY),
          "x within a border of one number; widths before and after it for each dimension.");
    m.def("copy_to", &copy_to, nb::arg("dst"), nb::arg("src"),
          nb::sig("def copy_to(dst: " ARRAY ", src: " ARRAY ") -> None"),
          "Copies src, cast and broadcast, to dst.");
    m.def("fill", &fill, nb::arg("dst"), nb::arg("number"),
          nb::sig("def fill(dst: " ARRAY ", number: complex) -> None"),
          "Sets all elements of dst to a number, cast to its type.");
    m.def("pool_bytes", &bytes, nb::sig("def pool_bytes() -> tuple[int, int]"),
          "Bytes of large arrays in use, and bytes kept for reuse.");
    m.def("empty_pool", &empty_pool, "Returns the memory kept for reuse to the system.");
    m.def("set_num_threads", &choose_threads, nb::arg("n"), "Threads that kernels use.");
    m.def("get_num_threads", &threads, "Threads that kernels use.");
}

}  // namespace tapegrad::bindings
