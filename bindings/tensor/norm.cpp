// bindings/tensor/norm.cpp -- batch norm and layer norm.
#include "tensor/norm.h"

#include <type_traits>

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

/// The data of an argument that may be missing.
template <class T>
T* data(const Array& array) {
    return array.object.is_valid() ? array.as<T>() : nullptr;
}

nb::object or_none(const Array& array) {
    return array.object.is_valid() ? array.object : nb::none();
}

Shape vector(Size size) {
    Shape shape;
    shape.append(size);
    return shape;
}

// ---- layer norm --------------------------------------------------------------------------------

nb::object layer_norm_array(nb::handle object, nb::handle weight_object, nb::handle bias_object,
                            int dims, double eps) {
    const Array x = contiguous("layer_norm: x", object, reals);
    const View& v = x.view;
    if (dims < 1 || dims > v.ndim)
        raise("ShapeError", "layer_norm: expected 1 to " + std::to_string(v.ndim) +
                                " normalised dimensions, got " + std::to_string(dims));
    const int kept = v.ndim - dims;
    const Size rows = v.size_between(0, kept), n = v.size_between(kept, v.ndim);
    const Array weight = parameter("layer_norm: weight", weight_object, v.type, n);
    const Array bias = parameter("layer_norm: bias", bias_object, v.type, n);
    Shape outer(v);
    outer.ndim = kept;
    const Array y = fresh_like(v), mean = fresh(outer, v.type), rstd = fresh(outer, v.type);
    with_real(v.type, [&](auto real) {
        using T = decltype(real);
        const LayerNorm<T> p{rows,          n,         x.as<T>(),    data<T>(weight),
                             data<T>(bias), y.as<T>(), mean.as<T>(), rstd.as<T>()};
        unlocked(v.size(), [&] { layer_norm(p, static_cast<T>(eps)); });
    });
    return nb::make_tuple(y.object, mean.object, rstd.object);
}

nb::object layer_norm_backward_array(nb::handle gradient, nb::handle object, nb::handle mean_object,
                                     nb::handle rstd_object, nb::handle weight_object,
                                     nb::handle needs_object) {
    const Array x = contiguous("layer_norm_backward: x", object, reals);
    const View& v = x.view;
    const Array g = contiguous_like("layer_norm_backward: g", gradient, v);
    const Array mean = contiguous("layer_norm_backward: mean", mean_object, 1u << int(v.type));
    const int kept = mean.view.ndim;
    const Size rows = mean.view.size();
    if (kept >= v.ndim || v.size_between(0, kept) != rows)
        raise("ShapeError",
              "layer_norm_backward: expected mean to have the leading dimensions of " +
                  text_of(Shape(v)) + ", got shape " + text_of(Shape(mean.view)));
    const Array rstd = contiguous_like("layer_norm_backward: rstd", rstd_object, mean.view);
    const Size n = v.size_between(kept, v.ndim);
    const Array weight = parameter("layer_norm_backward: weight", weight_object, v.type, n);
    const Shape needs = shape_argument("layer_norm_backward: needs", needs_object);
    if (needs.ndim != 3)
        raise("ShapeError", "layer_norm_backward: needs: expected three truth values, got " +
                                std::to_string(needs.ndim));
    Shape inner;
    for (int d = kept; d < v.ndim; ++d) inner.append(v.shape[d]);
    const Array gx = needs.sizes[0] ? fresh_like(v) : Array{};
    const Array gweight = needs.sizes[1] ? fresh(inner, v.type) : Array{};
    const Array gbias = needs.sizes[2] ? fresh(inner, v.type) : Array{};
    const bool done = with_real(v.type, [&](auto real) {
        using T = decltype(real);
        const LayerNormBackward<T> p{rows,
                                     n,
                                     g.as<T>(),
                                     x.as<T>(),
                                     mean.as<T>(),
                                     rstd.as<T>(),
                                     data<T>(weight),
                                     data<T>(gx),
                                     data<T>(gweight),
                                     data<T>(gbias)};
        return unlocked(v.size(), [&] { return layer_norm_backward(p); });
    });
    if (!done) raise_memory("layer_norm_backward");
    return nb::make_tuple(or_none(gx), or_none(gweight), or_none(gbias));
}

// ---- batch norm --------------------------------------------------------------------------------

Array batch_input(const char* what, nb::handle object) {
    Array x = contiguous(what, object, reals);
    if (x.view.ndim < 2)
        raise("ShapeError", std::string(what) + ": expected [batch, channels, ...], got shape " +
                                text_of(Shape(x.view)));
    return x;
}

template <class T>
BatchNorm<T> batch_problem(const Array& x, const Array& weight, const Array& bias, const Array& y,
                           const Array& mean, const Array& variance, const Array& rstd) {
    return {x.size(0),    x.size(1),       x.view.size_between(2, x.view.ndim),
            x.as<T>(),    data<T>(weight), data<T>(bias),
            y.as<T>(),    mean.as<T>(),    variance.as<T>(),
            data<T>(rstd)};
}

nb::object batch_norm_array(nb::handle object, nb::handle weight_object, nb::handle bias_object,
                            double eps) {
    const Array x = batch_input("batch_norm: x", object);
    const View& v = x.view;
    const Size channels = x.size(1);
    if (v.size() == 0 && channels)
        raise("ShapeError", "batch_norm: expected at least one value per channel, got shape " +
                                text_of(Shape(v)));
    const Array weight = parameter("batch_norm: weight", weight_object, v.type, channels);
    const Array bias = parameter("batch_norm: bias", bias_object, v.type, channels);
    const Array y = fresh_like(v), mean = fresh(vector(channels), v.type),
                variance = fresh(vector(channels), v.type), rstd = fresh(vector(channels), v.type);
    const bool done = with_real(v.type, [&](auto real) {
        using T = decltype(real);
        const auto p = batch_problem<T>(x, weight, bias, y, mean, variance, rstd);
        return unlocked(v.size(), [&] { return batch_norm(p, static_cast<T>(eps)); });
    });
    if (!done) raise_memory("batch_norm");
    return nb::make_tuple(y.object, mean.object, variance.object, rstd.object);
}

nb::object batch_norm_inference_array(nb::handle object, nb::handle weight_object,
                                      nb::handle bias_object, nb::handle mean_object,
                                      nb::handle variance_object, double eps) {
    const Array x = batch_input("batch_norm_inference: x", object);
    const View& v = x.view;
    const Size channels = x.size(1);
    const Array weight = parameter("batch_norm_inference: weight", weight_object, v.type, channels);
    const Array bias = parameter("batch_norm_inference: bias", bias_object, v.type, channels);
    const Array mean = parameter("batch_norm_inference: mean", mean_object, v.type, channels);
    const Array variance =
        parameter("batch_norm_inference: var", variance_object, v.type, channels);
    const Array y = fresh_like(v);
    const bool done = with_real(v.type, [&](auto real) {
        using T = decltype(real);
        const auto p = batch_problem<T>(x, weight, bias, y, mean, variance, {});
        return unlocked(v.size(), [&] { return batch_norm_inference(p, static_cast<T>(eps)); });
    });
    if (!done) raise_memory("batch_norm_inference");
    return y.object;
}

nb::object batch_norm_backward_array(nb::handle gradient, nb::handle object,
                                     nb::handle weight_object, nb::handle mean_object,
                                     nb::handle rstd_object) {
    const Array x = batch_input("batch_norm_backward: x", object);
    const View& v = x.view;
    const Size channels = x.size(1);
    const Array g = contiguous_like("batch_norm_backward: g", gradient, v);
    const Array weight = parameter("batch_norm_backward: weight", weight_object, v.type, channels);
    const Array mean = parameter("batch_norm_backward: mean", mean_object, v.type, channels);
    const Array rstd = parameter("batch_norm_backward: rstd", rstd_object, v.type, channels);
    const Array gx = fresh_like(v), gweight = fresh(vector(channels), v.type),
                gbias = fresh(vector(channels), v.type);
    const bool done = with_real(v.type, [&](auto real) {
        using T = decltype(real);
        const BatchNormBackward<T> p{x.size(0),       channels,     v.size_between(2, v.ndim),
                                     g.as<T>(),       x.as<T>(),    data<T>(weight),
                                     mean.as<T>(),    rstd.as<T>(), gx.as<T>(),
                                     gweight.as<T>(), gbias.as<T>()};
        return unlocked(v.size(), [&] { return batch_norm_backward(p); });
    });
    if (!done) raise_memory("batch_norm_backward");
    return nb::make_tuple(gx.object, gweight.object, gbias.object);
}

}  // namespace

#define TRIPLE "tuple[" ARRAY ", " ARRAY ", " ARRAY "]"
#define OPTIONAL ARRAY " | None"

void bind_norm(nb::module_& m) {
    m.def("layer_norm", &layer_norm_array, nb::arg("x"), nb::arg("weight").none(),
          nb::arg("bias").none(), nb::arg("dims"), nb::arg("eps"),
          nb::sig("def layer_norm(x: " ARRAY ", weight: " OPTIONAL ", bias: " OPTIONAL
                  ", dims: int, eps: float) -> " TRIPLE),
          "Normalised over the last dims dimensions: (y, mean, 1 / deviation).");
    m.def(
        "layer_norm_backward", &layer_norm_backward_array, nb::arg("g"), nb::arg("x"),
        nb::arg("mean"), nb::arg("rstd"), nb::arg("weight").none(), nb::arg("needs"),
        nb::sig("def layer_norm_backward(g: " ARRAY ", x: " ARRAY ", mean: " ARRAY ", rstd: " ARRAY
                ", weight: " OPTIONAL ", needs: collections.abc.Sequence[bool]) -> tuple[" OPTIONAL
                ", " OPTIONAL ", " OPTIONAL "]"),
        "Gradients of x, weight and bias, None for those that `needs` says are not wanted.");
    m.def("batch_norm", &batch_norm_array, nb::arg("x"), nb::arg("weight").none(),
          nb::arg("bias").none(), nb::arg("eps"),
          nb::sig("def batch_norm(x: " ARRAY ", weight: " OPTIONAL ", bias: " OPTIONAL
                  ", eps: float) -> tuple[" ARRAY ", " ARRAY ", " ARRAY ", " ARRAY "]"),
          "Normalised over all but dimension 1: (y, mean, biased variance, 1 / deviation).");
    m.def("batch_norm_inference", &batch_norm_inference_array, nb::arg("x"),
          nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("mean"), nb::arg("var"),
          nb::arg("eps"),
          nb::sig("def batch_norm_inference(x: " ARRAY ", weight: " OPTIONAL ", bias: " OPTIONAL
                  ", mean: " ARRAY ", var: " ARRAY ", eps: float) -> " ARRAY),
          "Normalised with given statistics.");
    m.def("batch_norm_backward", &batch_norm_backward_array, nb::arg("g"), nb::arg("x"),
          nb::arg("weight").none(), nb::arg("mean"), nb::arg("rstd"),
          nb::sig("def batch_norm_backward(g: " ARRAY ", x: " ARRAY ", weight: " OPTIONAL
                  ", mean: " ARRAY ", rstd: " ARRAY ") -> " TRIPLE),
          "Gradients of x, weight and bias, where mean and rstd come from x itself.");
}

}  // namespace tapegrad::bindings
