// bindings/tensor/loss.cpp -- losses that pick one entry per element.
#include "tensor/loss.h"

#include <limits>

#include "arrays.h"
#include "tensor/index.h"

namespace tapegrad::bindings {
namespace {

/// Classes with the arrays that they lie in.
struct Given {
    Array target, weight;
    Classes classes;
};

/// The shape of the classes: that of the scores without the dimension of the classes.
Shape without(const Shape& scores, int dim) {
    Shape shape;
    for (int d = 0; d < scores.ndim; ++d)
        if (d != dim) shape.append(scores.sizes[d]);
    return shape;
}

Slab slab_of_shape(const Shape& shape, int dim) {
    Slab slab{1, shape.sizes[dim], 1};
    for (int d = 0; d < shape.ndim; ++d)
        if (d != dim) (d < dim ? slab.outer : slab.inner) *= shape.sizes[d];
    return slab;
}

Given given(const Shape& scores, DType type, nb::handle target, nb::handle weight, Size dim,
            Size ignored) {
    const int d = dim_argument("nll_loss: dim", dim, scores.ndim);
    Given out{indices("nll_loss: target", target),
              parameter("nll_loss: weight", weight, type, scores.sizes[d]),
              {}};
    const Shape wanted = without(scores, d), have(out.target.view);
    if (text_of(wanted) != text_of(have))
        raise("ShapeError",
              "nll_loss: expected a target of shape " + text_of(wanted) + ", got " + text_of(have));
    out.classes = {slab_of_shape(scores, d), out.target.as<const std::int64_t>(),
                   out.weight.view.data, ignored};
    return out;
}

void check_classes(Size bad, const Given& g) {
    if (bad == no_position) return;
    PyErr_SetString(PyExc_IndexError,
                    ("nll_loss: class " + std::to_string(g.classes.target[bad]) +
                     " is out of range for " + std::to_string(g.classes.slab.n) +
                     " classes (position " + std::to_string(bad) + " of the target)")
                        .c_str());
    throw nb::python_error();
}

enum class Reduction { none, sum, mean };

Reduction reduction_of(const std::string& name) {
    if (name == "mean") return Reduction::mean;
    if (name == "sum") return Reduction::sum;
    if (name == "none") return Reduction::none;
    raise("OptionError", "reduction: expected 'mean', 'sum' or 'none', got '" + name + "'");
}

nb::object number(double value, DType type) {
    const Array out = fresh(Shape(), type);
    with_real(type, [&](auto real) { *out.as<decltype(real)>() = decltype(real)(value); });
    return out.object;
}

nb::tuple nll(nb::handle scores, nb::handle target, nb::handle weight, Size dim, Size ignored,
              const std::string& reduction) {
    const Array x = contiguous("nll_loss: x", scores, reals);
    const Given g = given(Shape(x.view), x.view.type, target, weight, dim, ignored);
    const Reduction how = reduction_of(reduction);
    Array losses;
    if (how == Reduction::none) losses = fresh(Shape(g.target.view), x.view.type);
    Totals totals;
    const Size bad = unlocked(g.classes.count(), [&] {
        return negative_log_likelihood(x.view, g.classes, losses.view.data, totals);
    });
    check_classes(bad, g);
    const nb::object total = number(totals.weight, x.view.type);
    if (how == Reduction::none) return nb::make_tuple(losses.object, total);
    const double loss = how == Reduction::sum ? totals.loss : totals.loss / totals.weight;
    return nb::make_tuple(number(loss, x.view.type), total);
}

nb::object nll_backward(nb::handle gradient, nb::handle target, nb::handle weight, nb::handle total,
                        nb::handle shape, Size dim, Size ignored, const std::string& reduction) {
    const Array g = contiguous("nll_loss_backward: g", gradient, reals);
    const Array sum = contiguous("nll_loss_backward: total", total, 1u << int(g.view.type));
    const Shape scores = shape_argument("nll_loss_backward: shape", shape);
    const Given known = given(scores, g.view.type, target, weight, dim, ignored);
    const Reduction how = reduction_of(reduction);
    const Size wanted = how == Reduction::none ? known.classes.count() : 1;
    if (g.view.size() != wanted || sum.view.size() != 1)
        raise("ShapeError", "nll_loss_backward: expected a gradient of " + std::to_string(wanted) +
                                " elements, got shape " + text_of(Shape(g.view)));
    double scale = 1;
    if (how == Reduction::mean)
        scale = with_real(g.view.type,
                          [&](auto real) { return 1 / double(*sum.as<decltype(real)>()); });
    const Array out = fresh(scores, g.view.type);
    View step = g.view;
    step.ndim = how == Reduction::none ? 1 : 0;
    const Size bad = unlocked(out.view.size(), [&] {
        return negative_log_likelihood_gradient(out.view, known.classes, step, scale);
    });
    check_classes(bad, known);
    return out.object;
}

}  // namespace

void bind_loss(nb::module_& m) {
#define OPTIONS "dim: int, ignore_index: int, reduction: str) -> "
    m.def("nll_loss", &nll, nb::arg("x"), nb::arg("target"), nb::arg("weight").none(),
          nb::arg("dim"), nb::arg("ignore_index"), nb::arg("reduction"),
          nb::sig("def nll_loss(x: " ARRAY ", target: " ARRAY ", weight: " ARRAY " | None, " OPTIONS
                  "tuple[" ARRAY ", " ARRAY "]"),
          "Minus the log-probabilities of classes, and the sum of their weights.");
    m.def(
        "nll_loss_backward", &nll_backward, nb::arg("g"), nb::arg("target"),
        nb::arg("weight").none(), nb::arg("total"), nb::arg("shape"), nb::arg("dim"),
        nb::arg("ignore_index"), nb::arg("reduction"),
        nb::sig("def nll_loss_backward(g: " ARRAY ", target: " ARRAY ", weight: " ARRAY
                " | None, total: " ARRAY ", shape: collections.abc.Sequence[int], " OPTIONS ARRAY),
        "The gradient of nll_loss by the log-probabilities.");
#undef OPTIONS
}

}  // namespace tapegrad::bindings
