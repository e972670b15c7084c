// bindings/tensor/arrays.cpp -- NumPy arrays as the kernels' arguments and results.
#include "arrays.h"

#include <algorithm>

#include "block.h"
#include "tensor/copy.h"
#include "tensor/pool.h"

namespace tapegrad::bindings {
namespace {

constexpr int no_type = -1;

int tensor_type(int typenum) {
    switch (typenum) {
        case NPY_FLOAT:
            return int(DType::f32);
        case NPY_DOUBLE:
            return int(DType::f64);
        case NPY_BOOL:
            return int(DType::b8);
        case NPY_INT:
        case NPY_LONG:
        case NPY_LONGLONG:
            return typenum == NPY_INT || (typenum == NPY_LONG && sizeof(long) == 4)
                       ? int(DType::i32)
                       : int(DType::i64);
        default:
            return no_type;
    }
}

int numpy_type(DType type) {
    constexpr int types[] = {NPY_FLOAT, NPY_DOUBLE, NPY_INT32, NPY_INT64, NPY_BOOL};
    return types[int(type)];
}

std::string dtype_text(nb::handle object) {
    return nb::cast<std::string>(
        nb::str(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array_of(object))))));
}

[[noreturn]] void raise_type(const char* what, nb::handle object, unsigned types) {
    std::string expected;
    for (int t = 0; t < 5; ++t)
        if (types >> t & 1)
            expected += (expected.empty() ? "" : ", ") + std::string(text_of(DType(t)));
    raise("DTypeError", std::string(what) + ": expected an array of " + expected + ", got " +
                            (PyArray_Check(object.ptr()) ? "dtype " + dtype_text(object)
                                                         : type_name(object.ptr())));
}

Array array_from(nb::object object, DType type) {
    Array out{std::move(object), {}};
    PyArrayObject* array = array_of(out.object);
    View& v = out.view;
    v.data = PyArray_BYTES(array);
    v.type = type;
    v.itemsize = PyArray_ITEMSIZE(array);
    v.ndim = PyArray_NDIM(array);
    for (int d = 0; d < v.ndim; ++d) {
        v.shape[d] = PyArray_DIM(array, d);
        v.strides[d] = PyArray_STRIDE(array, d);
    }
    return out;
}

bool strides_are_whole(PyArrayObject* array) {
    for (int d = 0; d < PyArray_NDIM(array); ++d)
        if (PyArray_STRIDE(array, d) % PyArray_ITEMSIZE(array)) return false;
    return true;
}

/// Complex numbers are aligned to half their size; they are moved as wholes.
bool address_is_whole(PyArrayObject* array) {
    const auto size = static_cast<std::uintptr_t>(PyArray_ITEMSIZE(array));
    return reinterpret_cast<std::uintptr_t>(PyArray_DATA(array)) %
               std::min<std::uintptr_t>(size, 8) ==
           0;
}

void release_block(PyObject* capsule) {
    give_block(PyCapsule_GetPointer(capsule, block_name),
               reinterpret_cast<std::size_t>(PyCapsule_GetContext(capsule)));
}

/// Bytes of an array; raises if they are beyond counting.
std::size_t bytes_of(const Shape& shape, npy_intp itemsize) {
    npy_intp bytes = itemsize;
    bool empty = false, overflow = false;
    for (int d = 0; d < shape.ndim; ++d) {
        empty |= shape.sizes[d] == 0;
        overflow |= __builtin_mul_overflow(bytes, shape.sizes[d], &bytes);
    }
    if (empty) return 0;
    if (overflow)
        raise("ShapeError", "expected a shape that fits in memory, got " + text_of(shape));
    return static_cast<std::size_t>(bytes);
}

}  // namespace

Shape::Shape(const View& view) : ndim(view.ndim) { std::copy_n(view.shape, ndim, sizes); }

std::string text_of(const Shape& shape) {
    std::string text = "(";
    for (int d = 0; d < shape.ndim; ++d) text += (d ? ", " : "") + std::to_string(shape.sizes[d]);
    return text + (shape.ndim == 1 ? ",)" : ")");
}

const char* text_of(DType type) {
    constexpr const char* names[] = {"float32", "float64", "int32", "int64", "bool"};
    return names[int(type)];
}

void raise_memory(const char* what) {
    PyErr_SetString(PyExc_MemoryError, (std::string(what) + ": out of memory").c_str());
    throw nb::python_error();
}

Array input(const char* what, nb::handle object, unsigned types) {
    if (!PyArray_Check(object.ptr())) raise_type(what, object, types);
    PyArrayObject* array = array_of(object);
    const int type = tensor_type(PyArray_TYPE(array));
    if (type == no_type || !(types >> type & 1)) raise_type(what, object, types);
    if (PyArray_NDIM(array) > max_dims)
        raise("ShapeError", std::string(what) + ": expected at most " + std::to_string(max_dims) +
                                " dimensions, got " + std::to_string(PyArray_NDIM(array)));
    if (PyArray_ISBEHAVED_RO(array) && strides_are_whole(array))
        return array_from(nb::borrow(object), DType(type));
    nb::object plain = nb::steal(PyArray_FromAny(
        object.ptr(), PyArray_DescrFromType(numpy_type(DType(type))), 0, 0,
        NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_ENSURECOPY, nullptr));
    if (!plain.is_valid()) throw nb::python_error();
    return array_from(std::move(plain), DType(type));
}

Array copied(const Array& array) {
    Array out = fresh_like(array.view);
    unlocked(array.view.size(), [&] { copy(out.view, array.view); });
    return out;
}

Array contiguous(const char* what, nb::handle object, unsigned types) {
    Array array = input(what, object, types);
    return PyArray_IS_C_CONTIGUOUS(array_of(array.object)) ? std::move(array) : copied(array);
}

Array contiguous_like(const char* what, nb::handle object, const View& model) {
    Array array = contiguous(what, object, 1u << int(model.type));
    if (array.view.ndim != model.ndim ||
        !std::equal(model.shape, model.shape + model.ndim, array.view.shape))
        raise("ShapeError", std::string(what) + ": expected shape " + text_of(Shape(model)) +
                                ", got " + text_of(Shape(array.view)));
    return array;
}

Array parameter(const char* what, nb::handle object, DType type, Size count) {
    if (object.is_none()) return {};
    Array array = contiguous(what, object, 1u << int(type));
    if (array.view.size() != count)
        raise("ShapeError", std::string(what) + ": expected " + std::to_string(count) +
                                " elements, got shape " + text_of(Shape(array.view)));
    return array;
}

Array indices(const char* what, nb::handle object) {
    Array array = contiguous(what, object, integers);
    if (array.view.type == DType::i64) return array;
    Array wide = fresh(Shape(array.view), DType::i64);
    copy(wide.view, array.view);
    return wide;
}

Array items(const char* what, nb::handle object) {
    if (!PyArray_Check(object.ptr()))
        raise("DTypeError",
              std::string(what) + ": expected an array, got " + type_name(object.ptr()));
    PyArrayObject* array = array_of(object);
    const npy_intp size = PyArray_ITEMSIZE(array);
    const bool plain = size >= 1 && size <= 16 && (size & (size - 1)) == 0 &&
                       !PyDataType_REFCHK(PyArray_DESCR(array));
    if (!plain)
        raise("DTypeError", std::string(what) + ": expected numbers of 1 to 16 bytes, got dtype " +
                                dtype_text(object));
    if (PyArray_NDIM(array) > max_dims)
        raise("ShapeError", std::string(what) + ": expected at most " + std::to_string(max_dims) +
                                " dimensions, got " + std::to_string(PyArray_NDIM(array)));
    if (PyArray_ISALIGNED(array) && strides_are_whole(array) && address_is_whole(array))
        return array_from(nb::borrow(object), DType::b8);
    nb::object copy = nb::steal(PyArray_NewCopy(array, NPY_CORDER));
    if (!copy.is_valid()) throw nb::python_error();
    return array_from(std::move(copy), DType::b8);
}

Array contiguous_items(const char* what, nb::handle object) {
    Array array = items(what, object);
    if (PyArray_IS_C_CONTIGUOUS(array_of(array.object))) return array;
    Array out = fresh_items(Shape(array.view), array);
    unlocked(array.view.size(), [&] { copy_items(out.view, array.view); });
    return out;
}

Array fresh_items(const Shape& shape, const Array& model) {
    PyArray_Descr* descr = PyArray_DESCR(array_of(model.object));
    Py_INCREF(descr);
    return array_from(fresh_object(shape, descr), model.view.type);
}

nb::object fresh_object(const Shape& shape, PyArray_Descr* descr) {
    const std::size_t bytes = bytes_of(shape, PyDataType_ELSIZE(descr));
    auto* sizes = const_cast<npy_intp*>(shape.sizes);
    if (bytes < pooled_from || PyDataType_FLAGCHK(descr, NPY_NEEDS_INIT)) {
        nb::object array = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, shape.ndim, sizes,
                                                          nullptr, nullptr, 0, nullptr));
        if (!array.is_valid()) throw nb::python_error();
        return array;
    }
    nb::object keep_descr = nb::steal(reinterpret_cast<PyObject*>(descr));
    void* block = take_block(bytes);
    if (!block) raise_memory(("an array of shape " + text_of(shape)).c_str());
    nb::object owner = nb::steal(PyCapsule_New(block, block_name, release_block));
    if (!owner.is_valid()) {
        give_block(block, bytes);
        throw nb::python_error();
    }
    PyCapsule_SetContext(owner.ptr(), reinterpret_cast<void*>(bytes));
    nb::object array = nb::steal(PyArray_NewFromDescr(
        &PyArray_Type, reinterpret_cast<PyArray_Descr*>(keep_descr.release().ptr()), shape.ndim,
        sizes, nullptr, block, NPY_ARRAY_CARRAY, nullptr));
    if (!array.is_valid() || PyArray_SetBaseObject(array_of(array), owner.release().ptr()) < 0)
        throw nb::python_error();
    return array;
}

Array fresh(const Shape& shape, DType type) {
    return array_from(fresh_object(shape, PyArray_DescrFromType(numpy_type(type))), type);
}

Array fresh_like(const View& view) { return fresh(Shape(view), view.type); }

Shape shape_argument(const char* what, nb::handle object) {
    nb::object items = nb::steal(PySequence_Tuple(object.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
    if (count > max_dims)
        raise("ShapeError", std::string(what) + ": expected at most " + std::to_string(max_dims) +
                                " dimensions, got " + std::to_string(count));
    Shape shape;
    for (Py_ssize_t i = 0; i < count; ++i) {
        const Py_ssize_t size = PyNumber_AsSsize_t(PyTuple_GET_ITEM(items.ptr(), i), nullptr);
        if (size == -1 && PyErr_Occurred()) throw nb::python_error();
        if (size < 0)
            raise("ShapeError",
                  std::string(what) + ": expected sizes of 0 or more, got " + std::to_string(size));
        shape.append(size);
    }
    return shape;
}

int dim_argument(const char* what, Size dim, int ndim) {
    if (dim < 0 || dim >= ndim)
        raise("ShapeError", std::string(what) + ": expected a dimension from 0 to " +
                                std::to_string(ndim - 1) + ", got " + std::to_string(dim));
    return static_cast<int>(dim);
}

Pair pair_argument(const char* what, nb::handle object, Size least) {
    const Shape pair = shape_argument(what, object);
    constexpr npy_intp most = npy_intp{1} << 31;
    if (pair.ndim != 2 || std::min(pair.sizes[0], pair.sizes[1]) < least ||
        std::max(pair.sizes[0], pair.sizes[1]) > most)
        raise("ShapeError", std::string(what) + ": expected two integers of " +
                                std::to_string(least) + " or more, at most " +
                                std::to_string(most) + ", got " + text_of(pair));
    return {pair.sizes[0], pair.sizes[1]};
}

}  // namespace tapegrad::bindings
