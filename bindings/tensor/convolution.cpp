// bindings/tensor/convolution.cpp -- two-dimensional convolution and its gradients.
#include "tensor/convolution.h"

#include <algorithm>

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

/// The options of a convolution, as PyTorch names them.
struct Options {
    Pair stride, padding, dilation;
    Size groups;

    Options(nb::handle stride_object, nb::handle padding_object, nb::handle dilation_object,
            Size group_count)
        : stride(pair_argument("conv2d: stride", stride_object, 1)),
          padding(pair_argument("conv2d: padding", padding_object, 0)),
          dilation(pair_argument("conv2d: dilation", dilation_object, 1)),
          groups(group_count) {}
};

WindowAxis axis_of(Size in, Size kernel, Size stride, Size padding, Size dilation) {
    const Size room = in + 2 * padding - dilation * (kernel - 1) - 1;
    if (room < 0 || kernel < 1)
        raise("ShapeError", "conv2d: a kernel of " + std::to_string(kernel) + " (dilation " +
                                std::to_string(dilation) + ") does not fit into size " +
                                std::to_string(in) + " with padding " + std::to_string(padding));
    return {in, room / stride + 1, kernel, stride, padding, dilation};
}

/// Checks that the shapes belong together.
ConvolutionSizes sizes_of(const Shape& x, const Shape& w, const Options& o) {
    const bool fits = x.ndim == 4 && w.ndim == 4 && o.groups >= 1 && w.sizes[0] % o.groups == 0 &&
                      x.sizes[1] == w.sizes[1] * o.groups;
    if (!fits)
        raise("ShapeError",
              "conv2d: expected x [batch, channels, height, width] and weight [filters, channels / "
              "groups, height, width] with filters that " +
                  std::to_string(o.groups) + " groups divide, got " + text_of(x) + " and " +
                  text_of(w));
    return {x.sizes[0],
            o.groups,
            w.sizes[1],
            w.sizes[0] / o.groups,
            axis_of(x.sizes[2], w.sizes[2], o.stride.first, o.padding.first, o.dilation.first),
            axis_of(x.sizes[3], w.sizes[3], o.stride.second, o.padding.second, o.dilation.second)};
}

Shape output_shape(const ConvolutionSizes& s) {
    Shape shape;
    for (const Size size : {s.batch, s.groups * s.filters, s.h.out, s.w.out}) shape.append(size);
    return shape;
}

void check_gradient(const View& g, const ConvolutionSizes& s) {
    const Shape expected = output_shape(s);
    if (g.ndim != 4 || !std::equal(g.shape, g.shape + 4, expected.sizes))
        raise("ShapeError",
              "conv2d: g: expected shape " + text_of(expected) + ", got " + text_of(Shape(g)));
}

nb::object conv2d(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                  nb::handle stride, nb::handle padding, nb::handle dilation, Size groups) {
    const Array x = contiguous("conv2d: x", x_object, reals);
    const Array w = contiguous("conv2d: weight", w_object, 1u << int(x.view.type));
    const auto s =
        sizes_of(Shape(x.view), Shape(w.view), Options(stride, padding, dilation, groups));
    const Array bias = parameter("conv2d: bias", bias_object, x.view.type, s.groups * s.filters);
    const Array y = fresh(output_shape(s), x.view.type);
    const bool done = with_real(x.view.type, [&](auto real) {
        using T = decltype(real);
        const T* b = bias.object.is_valid() ? bias.as<T>() : nullptr;
        return unlocked(s.products(),
                        [&] { return convolution<T>(s, x.as<T>(), w.as<T>(), b, y.as<T>()); });
    });
    if (!done) raise_memory("conv2d");
    return y.object;
}

nb::object input_grad(nb::handle g_object, nb::handle w_object, nb::handle x_shape,
                      nb::handle stride, nb::handle padding, nb::handle dilation, Size groups) {
    const Array g = contiguous("conv2d_input_grad: g", g_object, reals);
    const Array w = contiguous("conv2d_input_grad: weight", w_object, 1u << int(g.view.type));
    const Shape shape = shape_argument("conv2d_input_grad: x_shape", x_shape);
    const auto s = sizes_of(shape, Shape(w.view), Options(stride, padding, dilation, groups));
    check_gradient(g.view, s);
    const Array gx = fresh(shape, g.view.type);
    const bool done = with_real(g.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(s.products(), [&] {
            return convolution_input_grad<T>(s, g.as<T>(), w.as<T>(), gx.as<T>());
        });
    });
    if (!done) raise_memory("conv2d_input_grad");
    return gx.object;
}

nb::object weight_grad(nb::handle g_object, nb::handle x_object, nb::handle w_shape,
                       nb::handle stride, nb::handle padding, nb::handle dilation, Size groups) {
    const Array g = contiguous("conv2d_weight_grad: g", g_object, reals);
    const Array x = contiguous("conv2d_weight_grad: x", x_object, 1u << int(g.view.type));
    const Shape shape = shape_argument("conv2d_weight_grad: w_shape", w_shape);
    const auto s = sizes_of(Shape(x.view), shape, Options(stride, padding, dilation, groups));
    check_gradient(g.view, s);
    const Array gw = fresh(shape, g.view.type);
    const bool done = with_real(g.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(s.products(), [&] {
            return convolution_weight_grad<T>(s, g.as<T>(), x.as<T>(), gw.as<T>());
        });
    });
    if (!done) raise_memory("conv2d_weight_grad");
    return gw.object;
}

}  // namespace

#define OPTIONS "stride: " PAIR ", padding: " PAIR ", dilation: " PAIR ", groups: int"

void bind_convolution(nb::module_& m) {
    m.def("conv2d", &conv2d, nb::arg("x"), nb::arg("weight"), nb::arg("bias").none(),
          nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"), nb::arg("groups"),
          nb::sig("def conv2d(x: " ARRAY ", weight: " ARRAY ", bias: " ARRAY " | None, " OPTIONS
                  ") -> " ARRAY),
          "Two-dimensional convolution.");
    m.def("conv2d_input_grad", &input_grad, nb::arg("g"), nb::arg("weight"), nb::arg("x_shape"),
          nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"), nb::arg("groups"),
          nb::sig("def conv2d_input_grad(g: " ARRAY ", weight: " ARRAY ", x_shape: " PAIR
                  ", " OPTIONS ") -> " ARRAY),
          "The gradient of x.");
    m.def("conv2d_weight_grad", &weight_grad, nb::arg("g"), nb::arg("x"), nb::arg("w_shape"),
          nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"), nb::arg("groups"),
          nb::sig("def conv2d_weight_grad(g: " ARRAY ", x: " ARRAY ", w_shape: " PAIR ", " OPTIONS
                  ") -> " ARRAY),
          "The gradient of the weight.");
}

}  // namespace tapegrad::bindings
