// bindings/arguments.cpp -- arguments of tensor operations that name dimensions, sizes and places.
//
// They come with every call, so they are read here; see tapegrad/tensors/ops/dims.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <vector>

#include "python.h"
#include "state.h"

namespace tapegrad::bindings {
namespace {

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

nb::object as_tuple(const std::vector<Py_ssize_t>& numbers) {
    nb::object out = nb::steal(new_tuple(static_cast<Py_ssize_t>(numbers.size())));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromSsize_t(numbers[i]));
    return out;
}

/// A whole number, or false with nothing raised; huge ones become the largest. True and False are
/// none: they are an option that went to the wrong place.
bool to_number(PyObject* object, Py_ssize_t& number) {
    if (PyBool_Check(object)) return false;
    number = PyNumber_AsSsize_t(object, nullptr);
    if (number != -1 || !PyErr_Occurred()) return true;
    PyErr_Clear();
    return false;
}

// ---- dimensions -------------------------------------------------------------------------------

/// A dimension counted from the first; -1 is the last.
Py_ssize_t one(const char* op, nb::handle dim, Py_ssize_t ndim) {
    Py_ssize_t found;
    if (!to_number(dim.ptr(), found))
        raise("DTypeError",
              std::string(op) + ": expected dim to be a whole number, got " + text_of(dim));
    const Py_ssize_t room = ndim ? ndim : 1;
    if (found < -room || found >= room)
        raise("ShapeError", std::string(op) + ": expected dim from " + std::to_string(-room) +
                                " to " + std::to_string(room - 1) + ", got " +
                                std::to_string(found));
    return found < 0 ? found + room : found;
}

nb::object all(Py_ssize_t ndim) {
    std::vector<Py_ssize_t> dims(static_cast<std::size_t>(ndim));
    for (Py_ssize_t d = 0; d < ndim; ++d) dims[static_cast<std::size_t>(d)] = d;
    return as_tuple(dims);
}

/// Dimensions in order, each once; None and nothing name all of them. `keepdim` comes with them.
nb::object several(const char* op, nb::handle dim, Py_ssize_t ndim, nb::handle keepdim) {
    if (!PyBool_Check(keepdim.ptr()))
        raise("DTypeError", std::string(op) + ": expected keepdim to be True or False, got " +
                                text_of(keepdim) + "; several dimensions are a tuple: dim=(0, 1)");
    if (dim.is_none()) return all(ndim);
    std::vector<bool> named(static_cast<std::size_t>(ndim ? ndim : 1));
    Py_ssize_t single;
    if (to_number(dim.ptr(), single) || PyDict_Check(dim.ptr()) || !nb::hasattr(dim, "__iter__")) {
        named[static_cast<std::size_t>(one(op, dim, ndim))] = true;
    } else {
        const nb::object given = owned(PySequence_Tuple(dim.ptr()));
        if (!PyTuple_GET_SIZE(given.ptr())) return all(ndim);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.ptr()); ++i) {
            const auto d =
                static_cast<std::size_t>(one(op, PyTuple_GET_ITEM(given.ptr(), i), ndim));
            if (named[d])
                raise("ShapeError",
                      std::string(op) + ": a dimension is named twice in " + text_of(given));
            named[d] = true;
        }
    }
    std::vector<Py_ssize_t> dims;
    for (Py_ssize_t d = 0; d < ndim; ++d)
        if (named[static_cast<std::size_t>(d)]) dims.push_back(d);
    return as_tuple(dims);
}

// ---- sizes ------------------------------------------------------------------------------------

/// Whole numbers given one by one or as a sequence.
std::vector<Py_ssize_t> numbers(const char* op, const nb::tuple& given) {
    nb::object listed = given;
    if (given.size() == 1 && (PyTuple_Check(given[0].ptr()) || PyList_Check(given[0].ptr())))
        listed = given[0];
    std::vector<Py_ssize_t> out;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed.ptr()); ++i) {
        Py_ssize_t size;
        const nb::object each = nb::borrow(PySequence_Fast_GET_ITEM(listed.ptr(), i));
        if (!to_number(each.ptr(), size))
            raise("DTypeError",
                  std::string(op) + ": expected whole numbers as sizes, got " + text_of(given));
        out.push_back(size);
    }
    return out;
}

/// The shape of a new tensor: sizes of at least 0, one by one or as a sequence.
nb::object shape(const char* op, const nb::tuple& given) {
    const std::vector<Py_ssize_t> sizes = numbers(op, given);
    for (Py_ssize_t size : sizes)
        if (size < 0 || size == PY_SSIZE_T_MAX)
            raise("ShapeError",
                  std::string(op) + ": expected sizes of at least 0" +
                      (size < 0 ? "" : " that memory can have") + ", got " +
                      text_of(given.size() == 1 ? nb::object(given[0]) : nb::object(given)));
    return as_tuple(sizes);
}

/// The same; or by the name `size`.
nb::object sized(const char* op, const nb::tuple& given, nb::handle size) {
    if (size.is_none()) return shape(op, given);
    if (given.size())
        raise("ShapeError", std::string(op) + ": expected sizes or size=..., got both: " +
                                text_of(given) + " and " + text_of(size));
    return shape(op, nb::make_tuple(size));
}

/// Each dimension once, in another order.
nb::object order(const char* op, const nb::tuple& given, Py_ssize_t ndim) {
    std::vector<Py_ssize_t> dims = numbers(op, given);
    std::vector<bool> named(static_cast<std::size_t>(ndim ? ndim : 1));
    bool whole = static_cast<Py_ssize_t>(dims.size()) == ndim;
    for (Py_ssize_t& d : dims) {
        d = one(op, nb::int_(d), ndim);
        whole = whole && !named[static_cast<std::size_t>(d)];
        named[static_cast<std::size_t>(d)] = true;
    }
    if (!whole)
        raise("ShapeError", std::string(op) + ": expected each of " + std::to_string(ndim) +
                                " dimensions once, got " + text_of(as_tuple(dims)));
    return as_tuple(dims);
}

/// The order of dimensions with two of them exchanged.
nb::object exchanged(const char* op, nb::handle first, nb::handle second, Py_ssize_t ndim) {
    const Py_ssize_t a = one(op, first, ndim), b = one(op, second, ndim);
    std::vector<Py_ssize_t> dims;
    for (Py_ssize_t d = 0; d < ndim; ++d) dims.push_back(d == a ? b : d == b ? a : d);
    return as_tuple(dims);
}

/// The whole shape for as many elements as `have`, where one size may be -1.
nb::object reshaped(const nb::tuple& have, const nb::tuple& given, const char* op) {
    std::vector<Py_ssize_t> wanted = numbers(op, given);
    const auto times = [](Py_ssize_t a, Py_ssize_t b) {
        Py_ssize_t product;
        return __builtin_mul_overflow(a, b, &product) ? -1 : product;
    };
    Py_ssize_t count = 1, known = 1, unknown = 0;
    bool sound = true;
    for (nb::handle size : have) count *= PyLong_AsSsize_t(size.ptr());
    for (Py_ssize_t size : wanted) {
        sound = sound && size >= -1;
        unknown += size == -1;
        if (size >= 0) known = times(known, size);
    }
    if (!sound || unknown > 1)
        raise("ShapeError", std::string(op) + ": expected sizes and at most one -1, got " +
                                text_of(as_tuple(wanted)));
    const bool fits = unknown ? known > 0 && count % known == 0 : known == count;
    if (!fits)
        raise("ShapeError", std::string(op) + ": shape " + text_of(have) + " has " +
                                std::to_string(count) + " elements and does not fit " +
                                text_of(as_tuple(wanted)));
    for (Py_ssize_t& size : wanted)
        if (size == -1) size = count / known;
    return as_tuple(wanted);
}

/// A shape with the dimensions from first to last as one.
nb::object flattened(const nb::tuple& have, nb::handle start, nb::handle end) {
    const auto ndim = static_cast<Py_ssize_t>(have.size());
    const Py_ssize_t first = one("flatten", start, ndim), last = one("flatten", end, ndim);
    if (first > last)
        raise("ShapeError", "flatten: expected start_dim before end_dim, got " + text_of(start) +
                                ", " + text_of(end));
    std::vector<Py_ssize_t> sizes;
    for (Py_ssize_t d = 0; d < ndim; ++d) {
        const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(have.ptr(), d));
        if (d > first && d <= last)
            sizes.back() *= size;
        else
            sizes.push_back(size);
    }
    if (!ndim) sizes.push_back(1);
    return as_tuple(sizes);
}

/// A shape without dimensions of one element: all of them for None, or those named.
nb::object squeezed(const nb::tuple& have, nb::handle dim) {
    const auto ndim = static_cast<Py_ssize_t>(have.size());
    std::vector<bool> named(static_cast<std::size_t>(ndim ? ndim : 1), dim.is_none());
    const bool none = (PyTuple_Check(dim.ptr()) || PyList_Check(dim.ptr())) && !nb::len(dim);
    if (!dim.is_none() && !none)
        for (nb::handle each : nb::borrow<nb::tuple>(several("squeeze", dim, ndim, Py_False)))
            named[nb::cast<std::size_t>(each)] = true;
    std::vector<Py_ssize_t> sizes;
    for (Py_ssize_t d = 0; d < ndim; ++d) {
        const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(have.ptr(), d));
        if (size != 1 || !named[static_cast<std::size_t>(d)]) sizes.push_back(size);
    }
    return as_tuple(sizes);
}

/// A shape with dimensions of one element repeated, or with more in front; -1 keeps a size.
nb::object expanded(const nb::tuple& have, const nb::tuple& given) {
    std::vector<Py_ssize_t> wanted = numbers("expand", given);
    const auto ndim = static_cast<Py_ssize_t>(have.size());
    const Py_ssize_t extra = static_cast<Py_ssize_t>(wanted.size()) - ndim;
    if (extra < 0)
        raise("ShapeError", "expand: expected at least " + std::to_string(ndim) + " sizes, got " +
                                text_of(as_tuple(wanted)));
    std::vector<Py_ssize_t> full = wanted;
    Py_ssize_t bytes = 8;  // of elements of the largest type
    bool overflow = false;
    for (Py_ssize_t d = 0; d < extra + ndim; ++d) {
        Py_ssize_t& size = full[static_cast<std::size_t>(d)];
        const Py_ssize_t own =
            d < extra ? 1 : PyLong_AsSsize_t(PyTuple_GET_ITEM(have.ptr(), d - extra));
        if (size == -1 && d >= extra) size = own;
        if (size < 0)
            raise("ShapeError",
                  "expand: expected sizes of at least 0, got " + text_of(as_tuple(wanted)));
        if (own != 1 && own != size)
            raise("ShapeError", "expand: shape " + text_of(have) + " does not expand to " +
                                    text_of(as_tuple(wanted)));
        overflow |= size && __builtin_mul_overflow(bytes, size, &bytes);
    }
    if (overflow)
        raise("ShapeError",
              "expand: expected a shape that fits in memory, got " + text_of(as_tuple(wanted)));
    return as_tuple(full);
}

/// One number for height and width, alone or in a list, or two.
nb::object pair(const char* op, const char* name, nb::handle given, Py_ssize_t least) {
    Py_ssize_t numbers[2];
    bool whole = PyLong_Check(given.ptr()) && to_number(given.ptr(), numbers[0]);
    numbers[1] = numbers[0];
    if (!whole && (PyTuple_Check(given.ptr()) || PyList_Check(given.ptr()))) {
        const std::size_t count = nb::len(given);
        whole = (count == 1 || count == 2) && to_number(nb::object(given[0]).ptr(), numbers[0]) &&
                to_number(nb::object(given[count - 1]).ptr(), numbers[1]);
    }
    if (!whole || numbers[0] < least || numbers[1] < least)
        raise("ShapeError", std::string(op) + ": expected " + name +
                                " as a whole number of at least " + std::to_string(least) +
                                ", or two of them, got " + text_of(given));
    return as_tuple({numbers[0], numbers[1]});
}

// ---- numbers ----------------------------------------------------------------------------------

constexpr int most_dims = 32;

bool is_list(PyObject* object) { return PyList_CheckExact(object) || PyTuple_CheckExact(object); }

/// The sizes of nested lists, by their first items; false where they are not plain.
bool sizes_of(PyObject* data, int& ndim, npy_intp* sizes) {
    for (ndim = 0; is_list(data); data = PySequence_Fast_GET_ITEM(data, 0)) {
        const Py_ssize_t size = PySequence_Fast_GET_SIZE(data);
        if (!size || ndim == most_dims) return false;
        sizes[ndim++] = size;
    }
    return ndim > 0;
}

bool read(PyObject* object, float& number) {
    if (!PyFloat_CheckExact(object)) return false;
    number = static_cast<float>(PyFloat_AS_DOUBLE(object));
    return true;
}

bool read(PyObject* object, std::int64_t& number) {
    int overflow = 0;
    if (PyLong_CheckExact(object)) number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return PyLong_CheckExact(object) && !overflow;
}

bool read(PyObject* object, bool& truth) {
    truth = object == Py_True;
    return PyBool_Check(object);
}

/// Reads nested lists of these sizes; false where something else is among them.
template <class T>
bool read_all(PyObject* data, int ndim, const npy_intp* sizes, T*& to) {
    if (!ndim) return read(data, *to++);
    if (!is_list(data) || PySequence_Fast_GET_SIZE(data) != sizes[0]) return false;
    for (npy_intp i = 0; i < sizes[0]; ++i)
        if (!read_all(PySequence_Fast_GET_ITEM(data, i), ndim - 1, sizes + 1, to)) return false;
    return true;
}

template <class T>
nb::object array_from(PyObject* data, int ndim, npy_intp* sizes, int type) {
    nb::object out = owned(PyArray_SimpleNew(ndim, sizes, type));
    auto* to = static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(out.ptr())));
    return read_all(data, ndim, sizes, to) ? out : nb::none();
}

/// Nested lists of Python's floats as float32, of whole numbers as int64, or of bools; None where
/// there is anything else in them.
nb::object numbers_in(nb::handle data) {
    int ndim;
    npy_intp sizes[most_dims];
    if (!sizes_of(data.ptr(), ndim, sizes)) return nb::none();
    PyObject* first = data.ptr();
    for (int d = 0; d < ndim; ++d) first = PySequence_Fast_GET_ITEM(first, 0);
    if (PyFloat_CheckExact(first)) return array_from<float>(data.ptr(), ndim, sizes, NPY_FLOAT32);
    if (PyLong_CheckExact(first))
        return array_from<std::int64_t>(data.ptr(), ndim, sizes, NPY_INT64);
    if (PyBool_Check(first)) return array_from<bool>(data.ptr(), ndim, sizes, NPY_BOOL);
    return nb::none();
}

// ---- places -----------------------------------------------------------------------------------

/// x[index] as slices and whole numbers alone, which make a view; None where it is more.
nb::object plain_index(nb::handle index) {
    const bool single = !PyTuple_Check(index.ptr());
    const Py_ssize_t count = single ? 1 : PyTuple_GET_SIZE(index.ptr());
    bool dots = false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* each = single ? index.ptr() : PyTuple_GET_ITEM(index.ptr(), i);
        dots = dots || each == Py_Ellipsis;
        const bool plain = PyLong_CheckExact(each) || PySlice_Check(each) || each == Py_Ellipsis ||
                           each == Py_None;
        if (!plain) return nb::none();
    }
    if (dots && !single) return nb::borrow(index);
    // "..." keeps NumPy from making a number of a single element.
    nb::object out = nb::steal(new_tuple(count + (dots ? 0 : 1)));
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(out.ptr(), i,
                         Py_NewRef(single ? index.ptr() : PyTuple_GET_ITEM(index.ptr(), i)));
    if (!dots) PyTuple_SET_ITEM(out.ptr(), count, Py_NewRef(Py_Ellipsis));
    return out;
}

}  // namespace

void bind_arguments(nb::module_& m) {
    nb::module_ a = m.def_submodule("arguments", "Dimensions, sizes and places as arguments.");
    a.def("one", &one, nb::arg("op"), nb::arg("dim").none(), nb::arg("ndim"),
          nb::sig("def one(op: str, dim: typing.Any, ndim: int) -> int"),
          "A dimension counted from the first; -1 is the last.");
    a.def("several", &several, nb::arg("op"), nb::arg("dim").none(), nb::arg("ndim"),
          nb::arg("keepdim").none() = false,
          nb::sig("def several(op: str, dim: typing.Any, ndim: int, keepdim: typing.Any = False) "
                  "-> tuple[int, ...]"),
          "Dimensions in order, each once; None names all of them. Checks `keepdim`, too.");
    a.def("shape", &shape, nb::arg("op"), nb::arg("given"),
          nb::sig("def shape(op: str, given: tuple[typing.Any, ...]) -> tuple[int, ...]"),
          "The shape of a new tensor: sizes of at least 0, one by one or as a sequence.");
    a.def("sized", &sized, nb::arg("op"), nb::arg("given"), nb::arg("size").none(),
          nb::sig("def sized(op: str, given: tuple[typing.Any, ...], size: typing.Any) -> "
                  "tuple[int, ...]"),
          "The shape of a new tensor: of sizes one by one or together, or by the name `size`.");
    a.def("order", &order, nb::arg("op"), nb::arg("given"), nb::arg("ndim"),
          nb::sig("def order(op: str, given: tuple[typing.Any, ...], ndim: int) -> "
                  "tuple[int, ...]"),
          "Dimensions, each once, given one by one or as a sequence.");
    a.def("exchanged", &exchanged, nb::arg("op"), nb::arg("first").none(), nb::arg("second").none(),
          nb::arg("ndim"),
          nb::sig("def exchanged(op: str, first: typing.Any, second: typing.Any, ndim: int) -> "
                  "tuple[int, ...]"),
          "The order of dimensions with two of them exchanged.");
    a.def("reshaped", &reshaped, nb::arg("have"), nb::arg("given"), nb::arg("op") = "reshape",
          nb::sig("def reshaped(have: tuple[int, ...], given: tuple[typing.Any, ...], op: str = "
                  "'reshape') -> tuple[int, ...]"),
          "The whole shape for the elements of another, where one size may be -1.");
    a.def("flattened", &flattened, nb::arg("have"), nb::arg("start").none(), nb::arg("end").none(),
          nb::sig("def flattened(have: tuple[int, ...], start: typing.Any, end: typing.Any) -> "
                  "tuple[int, ...]"),
          "A shape with the dimensions from start to end as one.");
    a.def("squeezed", &squeezed, nb::arg("have"), nb::arg("dim").none(),
          nb::sig("def squeezed(have: tuple[int, ...], dim: typing.Any) -> tuple[int, ...]"),
          "A shape without dimensions of one element: all of them for None, or those named.");
    a.def("expanded", &expanded, nb::arg("have"), nb::arg("given"),
          nb::sig("def expanded(have: tuple[int, ...], given: tuple[typing.Any, ...]) -> "
                  "tuple[int, ...]"),
          "A shape with dimensions of one element repeated; -1 keeps a size.");
    a.def("pair", &pair, nb::arg("op"), nb::arg("name"), nb::arg("given").none(),
          nb::arg("least") = 0,
          nb::sig("def pair(op: str, name: str, given: typing.Any, least: int = 0) -> "
                  "tuple[int, int]"),
          "One number for height and width, or two.");
    a.def("numbers_in", &numbers_in, nb::arg("data").none(),
          nb::sig("def numbers_in(data: typing.Any) -> numpy.typing.NDArray[typing.Any] | None"),
          "Nested lists of floats as float32, of whole numbers as int64, or of bools; None where "
          "there is anything else.");
    a.def("plain_index", &plain_index, nb::arg("index").none(),
          nb::sig("def plain_index(index: typing.Any) -> tuple[typing.Any, ...] | None"),
          "An index of slices and whole numbers alone; None where it is more.");
}

}  // namespace tapegrad::bindings
