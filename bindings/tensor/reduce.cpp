// bindings/tensor/reduce.cpp -- reductions and softmax over dimensions of arrays.
#include "tensor/reduce.h"

#include <algorithm>

#include "arrays.h"
#include "tensor/copy.h"
#include "tensor/softmax.h"
#include "tensor/variance.h"

namespace tapegrad::bindings {
namespace {

struct OpName {
    const char* name;
    ReduceOp op;
};

constexpr OpName op_names[] = {{"sum", ReduceOp::sum},   {"mean", ReduceOp::mean},
                               {"max", ReduceOp::max},   {"min", ReduceOp::min},
                               {"prod", ReduceOp::prod}, {"any", ReduceOp::any},
                               {"all", ReduceOp::all}};

ReduceOp op_argument(const char* what, nb::handle op) {
    if (PyUnicode_Check(op.ptr()))
        for (const OpName& known : op_names)
            if (PyUnicode_CompareWithASCIIString(op.ptr(), known.name) == 0) return known.op;
    raise("OptionError",
          std::string(what) +
              ": expected 'sum', 'mean', 'prod', 'max', 'min', 'any' or 'all', got " +
              nb::cast<std::string>(nb::repr(op)));
}

/// Marks the dimensions that a tuple names.
void mark_dims(const char* what, nb::handle dims, int ndim, bool* marked) {
    const Shape named = shape_argument(what, dims);
    std::fill_n(marked, ndim, false);
    for (int i = 0; i < named.ndim; ++i) {
        const int dim = dim_argument(what, named.sizes[i], ndim);
        if (marked[dim])
            raise("ShapeError",
                  std::string(what) + ": expected each dimension once, got " + text_of(named));
        marked[dim] = true;
    }
}

Shape reduced_shape(const View& x, const bool* reduced, bool keepdim) {
    Shape shape;
    for (int d = 0; d < x.ndim; ++d) {
        if (!reduced[d])
            shape.append(x.shape[d]);
        else if (keepdim)
            shape.append(1);
    }
    return shape;
}

void check_not_empty(const char* what, const View& x, const bool* reduced) {
    for (int d = 0; d < x.ndim; ++d)
        if (reduced[d] && x.shape[d] == 0)
            raise("ShapeError", std::string(what) +
                                    ": expected at least one element to choose from, got shape " +
                                    text_of(Shape(x)));
}

nb::object reduce_array(nb::handle name, nb::handle object, nb::handle dims, bool keepdim) {
    const ReduceOp op = op_argument("reduce: op", name);
    const Array x = input("reduce: x", object, all_types);
    bool reduced[max_dims];
    mark_dims("reduce: dims", dims, x.view.ndim, reduced);
    const ResultType type = reduced_type(op, x.view.type);
    if (!type.defined)
        raise("DTypeError", std::string("reduce: the mean needs float32 or float64, got ") +
                                text_of(x.view.type) + "; convert it first");
    const Array out = fresh(reduced_shape(x.view, reduced, keepdim), type.type);
    if ((op == ReduceOp::max || op == ReduceOp::min) && out.view.size())
        check_not_empty("reduce: x", x.view, reduced);
    if (!unlocked(x.view.size(), [&] { return reduce(op, x.view, reduced, out.view); }))
        raise_memory("reduce");
    return out.object;
}

nb::object variance_array(nb::handle object, nb::handle dims, bool keepdim, double correction) {
    const Array x = input("var: x", object, reals);
    bool reduced[max_dims];
    mark_dims("var: dims", dims, x.view.ndim, reduced);
    const Array out = fresh(reduced_shape(x.view, reduced, keepdim), x.view.type);
    if (!unlocked(x.view.size(), [&] { return variance(x.view, reduced, correction, out.view); }))
        raise_memory("var");
    return out.object;
}

nb::object arg_reduce_array(nb::handle name, nb::handle object, Size dim) {
    const ReduceOp op = op_argument("arg_reduce: op", name);
    if (op != ReduceOp::max && op != ReduceOp::min)
        raise("OptionError", "arg_reduce: expected op 'max' or 'min'");
    const Array x = contiguous("arg_reduce: x", object, all_types);
    bool reduced[max_dims] = {};
    reduced[dim_argument("arg_reduce: dim", dim, x.view.ndim)] = true;
    const Shape shape = reduced_shape(x.view, reduced, false);
    const Array values = fresh(shape, x.view.type), where = fresh(shape, DType::i64);
    if (values.view.size()) {
        check_not_empty("arg_reduce: x", x.view, reduced);
        unlocked(x.view.size(), [&] {
            arg_reduce(op == ReduceOp::max, x.view, static_cast<int>(dim), values.view,
                       where.as<std::int64_t>());
        });
    }
    return nb::make_tuple(values.object, where.object);
}

nb::object cumsum_array(nb::handle object, Size dim) {
    const Array x = contiguous("cumsum: x", object, numbers);
    const int checked = dim_argument("cumsum: dim", dim, x.view.ndim);
    const Array out = fresh_like(x.view);
    unlocked(x.view.size(), [&] { cumsum(x.view, checked, out.view); });
    return out.object;
}

// ---- softmax and its kin -----------------------------------------------------------------------

/// A number is an array of one element here.
View with_a_dim(View view) {
    if (!view.ndim) {
        view.shape[0] = 1;
        view.strides[0] = view.itemsize;
        view.ndim = 1;
    }
    return view;
}

template <Softmax kind>
nb::object softmax_array(nb::handle object, Size dim) {
    const Array x = contiguous("softmax: x", object, reals);
    const View view = with_a_dim(x.view);
    const int checked = dim_argument("softmax: dim", dim, view.ndim);
    const Array y = fresh_like(x.view);
    unlocked(view.size(), [&] { softmax(kind, view, checked, with_a_dim(y.view)); });
    return y.object;
}

template <Softmax kind>
nb::object softmax_backward_array(nb::handle gradient, nb::handle result, Size dim) {
    const Array y = contiguous("softmax_backward: y", result, reals);
    const Array g = contiguous_like("softmax_backward: g", gradient, y.view);
    const View view = with_a_dim(y.view);
    const int checked = dim_argument("softmax_backward: dim", dim, view.ndim);
    const Array gx = fresh_like(y.view);
    unlocked(view.size(), [&] {
        softmax_backward(kind, with_a_dim(g.view), view, checked, with_a_dim(gx.view));
    });
    return gx.object;
}

/// Whether the marked dimensions lie side by side; `first` and `last` bound them.
bool side_by_side(const bool* marked, int ndim, int& first, int& last) {
    first = static_cast<int>(std::find(marked, marked + ndim, true) - marked);
    last = first;
    while (last < ndim && marked[last]) ++last;
    return std::find(marked + last, marked + ndim, true) == marked + ndim;
}

/// The array with its marked dimensions at the end.
View with_last(const View& x, const bool* marked) {
    View out = x;
    int d = 0;
    for (const bool last : {false, true})
        for (int i = 0; i < x.ndim; ++i)
            if (marked[i] == last) out.shape[d] = x.shape[i], out.strides[d++] = x.strides[i];
    return out;
}

nb::object logsumexp_array(nb::handle object, nb::handle dims, bool keepdim) {
    Array x = input("logsumexp: x", object, reals);
    bool reduced[max_dims];
    mark_dims("logsumexp: dims", dims, x.view.ndim, reduced);
    const Array y = fresh(reduced_shape(x.view, reduced, keepdim), x.view.type);
    int first, last;
    if (!side_by_side(reduced, x.view.ndim, first, last)) {
        first += static_cast<int>(std::count(reduced + first, reduced + x.view.ndim, false));
        last = x.view.ndim;
        const View moved = with_last(x.view, reduced);
        const Array plain = fresh_like(moved);
        unlocked(moved.size(), [&] { copy(plain.view, moved); });
        x = plain;
    } else if (!PyArray_IS_C_CONTIGUOUS(array_of(x.object))) {
        x = copied(x);
    }
    const Slab slab{x.view.size_between(0, first), x.view.size_between(first, last),
                    x.view.size_between(last, x.view.ndim)};
    unlocked(x.view.size(), [&] { logsumexp(x.view, slab, y.view); });
    return y.object;
}

}  // namespace

void bind_reduce(nb::module_& m) {
    m.def("reduce", &reduce_array, nb::arg("op"), nb::arg("x"), nb::arg("dims"),
          nb::arg("keepdim") = false,
          nb::sig("def reduce(op: str, x: " ARRAY ", dims: collections.abc.Sequence[int], keepdim: "
                  "bool = False) -> " ARRAY),
          "sum, mean, prod, max, min, any or all over dimensions.");
    m.def("var", &variance_array, nb::arg("x"), nb::arg("dims"), nb::arg("keepdim"),
          nb::arg("correction"),
          nb::sig("def var(x: " ARRAY ", dims: collections.abc.Sequence[int], keepdim: bool, "
                  "correction: float) -> " ARRAY),
          "The variance over dimensions.");
    m.def("arg_reduce", &arg_reduce_array, nb::arg("op"), nb::arg("x"), nb::arg("dim"),
          nb::sig("def arg_reduce(op: str, x: " ARRAY ", dim: int) -> tuple[" ARRAY
                  ", numpy.typing.NDArray[numpy.int64]]"),
          "max or min along a dimension, and where it stands first.");
    m.def("cumsum", &cumsum_array, nb::arg("x"), nb::arg("dim"),
          nb::sig("def cumsum(x: " ARRAY ", dim: int) -> " ARRAY), "Running sums.");
    m.def("softmax", &softmax_array<softmax_plain>, nb::arg("x"), nb::arg("dim"),
          nb::sig("def softmax(x: " ARRAY ", dim: int) -> " ARRAY), "e^x over its sum.");
    m.def("log_softmax", &softmax_array<softmax_log>, nb::arg("x"), nb::arg("dim"),
          nb::sig("def log_softmax(x: " ARRAY ", dim: int) -> " ARRAY),
          "The logarithm of softmax.");
    m.def("softmax_backward", &softmax_backward_array<softmax_plain>, nb::arg("g"), nb::arg("y"),
          nb::arg("dim"),
          nb::sig("def softmax_backward(g: " ARRAY ", y: " ARRAY ", dim: int) -> " ARRAY),
          "The gradient from that of the result, g, and the result, y.");
    m.def("log_softmax_backward", &softmax_backward_array<softmax_log>, nb::arg("g"), nb::arg("y"),
          nb::arg("dim"),
          nb::sig("def log_softmax_backward(g: " ARRAY ", y: " ARRAY ", dim: int) -> " ARRAY),
          "The gradient from that of the result, g, and the result, y.");
    m.def("logsumexp", &logsumexp_array, nb::arg("x"), nb::arg("dims"), nb::arg("keepdim") = false,
          nb::sig("def logsumexp(x: " ARRAY ", dims: collections.abc.Sequence[int], keepdim: bool "
                  "= False) -> " ARRAY),
          "The logarithm of the sum of e^x over dimensions.");
}

}  // namespace tapegrad::bindings
