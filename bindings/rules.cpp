// bindings/rules.cpp -- rules of operations that come with many calls: what their operands must be
// like, and the shapes of their results.
//
// An operation of the table may have any callable as its rule; these took longer in Python than the
// work on a few numbers does.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "python.h"
#include "state.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

// ---- operands ---------------------------------------------------------------------------------

TensorState* tensor_in(const char* op, nb::handle object) {
    if (!is_tensor(object.ptr()))
        raise("DTypeError", std::string(op) + ": expected tensors, got " + type_name(object.ptr()) +
                                "; make one with tg.tensor");
    return tensor_of(object.ptr());
}

/// The array of a tensor, if it is NumPy's.
PyArrayObject* plain_array(const TensorState* tensor) {
    return PyArray_Check(tensor->array) ? reinterpret_cast<PyArrayObject*>(tensor->array) : nullptr;
}

/// The shape of a tensor of any device; -1 counts from the last dimension.
class Sizes {
   public:
    explicit Sizes(const TensorState* tensor) {
        if (PyArrayObject* array = plain_array(tensor)) {
            ndim_ = PyArray_NDIM(array);
            sizes_ = PyArray_DIMS(array);
            return;
        }
        const nb::object shape = nb::steal(shape_of(tensor->array));
        for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(shape.ptr()); ++d)
            kept_.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(shape.ptr(), d)));
        ndim_ = static_cast<int>(kept_.size());
        sizes_ = kept_.data();
    }
    Sizes(const Sizes&) = delete;
    Sizes& operator=(const Sizes&) = delete;

    int ndim() const { return ndim_; }
    npy_intp operator[](int d) const { return sizes_[d < 0 ? d + ndim_ : d]; }
    std::string text() const { return shape_text(ndim_, sizes_); }
    /// Whether the dimensions from `first` up to `end` are those of another.
    bool equals(const Sizes& other, int first, int end) const {
        return std::equal(sizes_ + first, sizes_ + end, other.sizes_ + first);
    }
    /// The first `count` sizes.
    std::vector<npy_intp> begin(int count) const { return {sizes_, sizes_ + count}; }

   private:
    int ndim_;
    const npy_intp* sizes_;
    std::vector<npy_intp> kept_;
};

nb::object as_tuple(const std::vector<npy_intp>& sizes) {
    nb::object out = nb::steal(new_tuple(static_cast<Py_ssize_t>(sizes.size())));
    for (std::size_t i = 0; i < sizes.size(); ++i)
        PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromSsize_t(sizes[i]));
    return out;
}

/// Whether all are NumPy's and of one number type, floating point or of whole numbers as well.
bool of_one_type(std::initializer_list<const TensorState*> tensors, bool whole) {
    int first = -1;
    for (const TensorState* each : tensors) {
        if (!each) continue;
        PyArrayObject* array = plain_array(each);
        if (!array || !(PyArray_ISFLOAT(array) || (whole && PyArray_ISINTEGER(array))))
            return false;
        if (first >= 0 && first != PyArray_TYPE(array)) return false;
        first = PyArray_TYPE(array);
    }
    return true;
}

/// Raises unless all are of one type; Python knows the words, and other devices.
void check_types(const char* op, std::initializer_list<const TensorState*> tensors, bool whole) {
    if (of_one_type(tensors, whole)) return;
    nb::list given;
    for (const TensorState* each : tensors)
        if (each)
            given.append(nb::handle(reinterpret_cast<PyObject*>(const_cast<TensorState*>(each))));
    nb::module_::import_("tapegrad.tensors.ops.matmul")
        .attr("check_types")(op, *given, nb::arg("kinds") = whole ? "if" : "f");
}

// ---- products ---------------------------------------------------------------------------------

/// Whether operands are matrices, stacks of equal size, or a stack and one matrix.
bool is_plain(const Sizes& x, const Sizes& y) {
    if (y.ndim() == 2) return x.ndim() >= 2;
    return x.ndim() == y.ndim() && x.ndim() > 2 && x.equals(y, 0, x.ndim() - 2);
}

nb::object matmul(nb::handle a, nb::handle b) {
    const TensorState *left = tensor_in("matmul", a), *right = tensor_in("matmul", b);
    const Sizes x(left), y(right);
    const bool plain = is_plain(x, y);
    if (!plain || x[-1] != y[-2])
        raise("ShapeError",
              "matmul: shapes " + x.text() + " and " + y.text() + " do not fit: expected " +
                  (plain ? std::to_string(x[-1]) + " rows on the right, as many as columns on " +
                               "the left, got " + std::to_string(y[-2])
                         : "matrices, stacks of one size, or a stack and a matrix"));
    check_types("matmul", {left, right}, true);
    std::vector<npy_intp> sizes = x.begin(x.ndim() - 1);
    sizes.push_back(y[-1]);
    return as_tuple(sizes);
}

nb::object linear(nb::handle object, nb::handle weight, nb::handle bias) {
    const TensorState *x = tensor_in("linear", object), *w = tensor_in("linear", weight);
    const TensorState* b = bias.is_none() ? nullptr : tensor_in("linear", bias);
    const Sizes have(x), shape(w);
    if (shape.ndim() != 2 || !have.ndim() || have[-1] != shape[1])
        raise("ShapeError", "linear: expected weight (out, in) and x (..., in), got " +
                                shape.text() + " and " + have.text());
    if (b) {
        const Sizes own(b);
        if (own.ndim() != 1 || own[0] != shape[0])
            raise("ShapeError", "linear: expected bias of shape (" + std::to_string(shape[0]) +
                                    ",), got " + own.text());
    }
    check_types("linear", {x, w, b}, true);
    std::vector<npy_intp> sizes = have.begin(have.ndim() - 1);
    sizes.push_back(shape[0]);
    return as_tuple(sizes);
}

// ---- places along a dimension -----------------------------------------------------------------

void check_index(const char* op, nb::handle index) {
    static PyObject *name = name_of("dtype"), *kind = name_of("kind");
    const TensorState* tensor = is_tensor(index.ptr()) ? tensor_of(index.ptr()) : nullptr;
    PyArrayObject* array = tensor ? plain_array(tensor) : nullptr;
    if (array && PyArray_ISSIGNED(array)) return;
    std::string got = type_name(index.ptr());
    if (tensor) {
        const nb::object dtype = get(tensor->array, name);
        if (nb::cast<std::string>(get(dtype.ptr(), kind)) == "i") return;
        got = nb::cast<std::string>(nb::repr(index.attr("dtype")));
    }
    raise("DTypeError",
          std::string(op) + ": expected a tensor of int32 or int64 as index, got " + got);
}

/// An index with the dimensions of x, none of them larger but `dim`.
void along(const char* op, nb::handle x, nb::handle index, Py_ssize_t dim) {
    check_index(op, index);
    const Sizes have(tensor_in(op, x)), places(tensor_in(op, index));
    bool fits = have.ndim() == places.ndim();
    for (int d = 0; fits && d < have.ndim(); ++d) fits = d == dim || places[d] <= have[d];
    if (!fits)
        raise("ShapeError", std::string(op) + ": expected an index with the dimensions of shape " +
                                have.text() + ", none larger but " + std::to_string(dim) +
                                ", got " + places.text());
}

// ---- joining ----------------------------------------------------------------------------------

void cat(const nb::args& tensors, Py_ssize_t dim) {
    const Sizes first(tensor_in("cat", tensors[0]));
    if (!first.ndim())
        raise("ShapeError", "cat: tensors without dimensions cannot be joined; use stack()");
    for (nb::handle each : tensors) {
        const Sizes shape(tensor_in("cat", each));
        bool agrees = shape.ndim() == first.ndim();
        for (int d = 0; agrees && d < shape.ndim(); ++d) agrees = d == dim || shape[d] == first[d];
        if (!agrees)
            raise("ShapeError", "cat: shapes must agree in all dimensions but " +
                                    std::to_string(dim) + ", got " + first.text() + " and " +
                                    shape.text());
    }
}

void stack(const nb::args& tensors, Py_ssize_t) {
    const Sizes first(tensor_in("stack", tensors[0]));
    for (nb::handle each : tensors) {
        const Sizes shape(tensor_in("stack", each));
        if (shape.ndim() != first.ndim() || !shape.equals(first, 0, first.ndim()))
            raise("ShapeError", "stack: expected tensors of one shape, got " + first.text() +
                                    " and " + shape.text());
    }
}

// ---- windows ----------------------------------------------------------------------------------

using Wide = __int128;  ///< for products of any two sizes

/// How many windows there are; with ceil_mode the last may reach over the border.
/// None if the window does not fit.
Py_ssize_t pooled_size(Wide size, Wide kernel, Wide stride, Wide padding, Wide dilation,
                       bool ceil_mode) {
    const Wide room = size + 2 * padding - dilation * (kernel - 1) - 1;
    const Wide reach = room + (ceil_mode ? stride - 1 : 0);
    if (reach < 0) return 0;
    const Wide count = reach / stride + 1;
    // a window that begins in the border behind the image sees nothing
    const bool beyond = ceil_mode && (count - 1) * stride >= size + padding;
    return static_cast<Py_ssize_t>(beyond ? count - 1 : count);
}

using Pair = std::pair<Py_ssize_t, Py_ssize_t>;

/// Two numbers, which the caller has read by `pair` of arguments.cpp.
Pair pair_of(const nb::tuple& given) {
    if (given.size() != 2) raise("ShapeError", "pooling: expected two numbers for both dimensions");
    return {nb::cast<Py_ssize_t>(given[0]), nb::cast<Py_ssize_t>(given[1])};
}

nb::object pooling(nb::handle object, const nb::tuple& kernel, const nb::tuple& stride,
                   const nb::tuple& padding, bool ceil_mode, nb::handle dilation,
                   const nb::kwargs&) {
    const TensorState* tensor = tensor_in("pooling", object);
    const Sizes have(tensor);
    if (have.ndim() != 4)
        raise("ShapeError",
              "pooling: expected images (N, C, H, W) or (C, H, W), got " + have.text());
    check_types("pooling", {tensor}, false);
    const Pair k = pair_of(kernel), s = pair_of(stride), p = pair_of(padding);
    const Pair step = dilation.is_none() ? Pair{1, 1} : pair_of(nb::cast<nb::tuple>(dilation));
    if (s.first < 1 || s.second < 1)
        raise("ShapeError", "pooling: expected a stride of at least 1");
    std::vector<npy_intp> sizes = have.begin(4);
    const auto place = [&](int d, Py_ssize_t kernel_, Py_ssize_t stride_, Py_ssize_t padding_,
                           Py_ssize_t dilation_) {
        if (padding_ > kernel_ / 2)
            raise("ShapeError", "pooling: padding " + std::to_string(padding_) +
                                    " is more than half the kernel " + std::to_string(kernel_));
        npy_intp& size = sizes[static_cast<std::size_t>(d)];
        size = pooled_size(have[d], kernel_, stride_, padding_, dilation_, ceil_mode);
        if (size < 1)
            raise("ShapeError", "pooling: kernel " + nb::cast<std::string>(nb::repr(kernel)) +
                                    " does not fit into images of (" + std::to_string(have[2]) +
                                    ", " + std::to_string(have[3]) + ")");
    };
    place(2, k.first, s.first, p.first, step.first);
    place(3, k.second, s.second, p.second, step.second);
    return as_tuple(sizes);
}

}  // namespace

void bind_rules(nb::module_& m) {
    nb::module_ r = m.def_submodule("rules", "Rules of operations: checks, and shapes of results.");
#define SHAPE "tuple[int, ...]"
#define ANY "typing.Any"
    r.def("matmul", &matmul, nb::arg("a").none(), nb::arg("b").none(),
          nb::sig("def matmul(a: " ANY ", b: " ANY ") -> " SHAPE),
          "Matrices, stacks of equal size, or a stack and one matrix.");
    r.def("linear", &linear, nb::arg("x").none(), nb::arg("weight").none(), nb::arg("bias").none(),
          nb::sig("def linear(x: " ANY ", weight: " ANY ", bias: " ANY ") -> " SHAPE),
          "x (..., in), weight (out, in) and bias (out) or None.");
    r.def("check_index", &check_index, nb::arg("op"), nb::arg("index").none(),
          nb::sig("def check_index(op: str, index: " ANY ") -> None"),
          "Raises unless an index is a tensor of int32 or int64.");
    r.def(
        "gather",
        [](nb::handle x, nb::handle index, Py_ssize_t dim) { along("gather", x, index, dim); },
        nb::arg("x").none(), nb::arg("index").none(), nb::arg("dim"),
        nb::sig("def gather(x: " ANY ", index: " ANY ", dim: int) -> None"),
        "An index with the dimensions of x, none larger but `dim`.");
    r.def(
        "scatter_add",
        [](nb::handle x, nb::handle index, nb::handle, Py_ssize_t dim) {
            along("scatter_add", x, index, dim);
        },
        nb::arg("x").none(), nb::arg("index").none(), nb::arg("y").none(), nb::arg("dim"),
        nb::sig("def scatter_add(x: " ANY ", index: " ANY ", y: " ANY ", dim: int) -> None"),
        "An index with the dimensions of x, none larger but `dim`.");
    r.def("cat", &cat, nb::arg("tensors"), nb::arg("dim"),
          nb::sig("def cat(*tensors: " ANY ", dim: int) -> None"),
          "Shapes that agree in all dimensions but one.");
    r.def("stack", &stack, nb::arg("tensors"), nb::arg("dim"),
          nb::sig("def stack(*tensors: " ANY ", dim: int) -> None"), "Tensors of one shape.");
    r.def(
        "pooled_size",
        [](Py_ssize_t size, Py_ssize_t kernel, Py_ssize_t stride, Py_ssize_t padding,
           Py_ssize_t dilation, bool ceil_mode) {
            if (stride < 1) raise("ShapeError", "pooling: expected a stride of at least 1");
            return pooled_size(size, kernel, stride, padding, dilation, ceil_mode);
        },
        nb::arg("size"), nb::arg("kernel"), nb::arg("stride"), nb::arg("padding"),
        nb::arg("dilation"), nb::arg("ceil_mode"),
        "How many windows there are; with ceil_mode the last may reach over the border.");
    r.def("pooling", &pooling, nb::arg("x").none(), nb::arg("kernel"), nb::arg("stride"),
          nb::arg("padding"), nb::arg("ceil_mode"), nb::arg("dilation") = nb::none(),
          nb::arg("options"),
          nb::sig("def pooling(x: " ANY ", kernel: " SHAPE ", stride: " SHAPE ", padding: " SHAPE
                  ", ceil_mode: bool, dilation: " SHAPE " | None = None, **options: " ANY
                  ") -> " SHAPE),
          "Images and windows that fit into them.");
#undef SHAPE
#undef ANY
}

}  // namespace tapegrad::bindings
