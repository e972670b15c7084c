// bindings/tensor/pooling.cpp -- pooling over the last two dimensions.
#include "tensor/pooling.h"

#include <algorithm>

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

Array planes_input(const char* what, nb::handle object) {
    Array x = contiguous(what, object, reals);
    if (x.view.ndim < 3)
        raise("ShapeError", std::string(what) + ": expected [..., height, width] with 3 or more " +
                                "dimensions, got shape " + text_of(Shape(x.view)));
    return x;
}

Size planes_of(const View& v) { return v.size_between(0, v.ndim - 2); }
Size height(const View& v) { return v.shape[v.ndim - 2]; }
Size width(const View& v) { return v.shape[v.ndim - 1]; }

Shape with_plane(const View& v, Size h, Size w) {
    Shape shape(v);
    shape.sizes[v.ndim - 2] = h;
    shape.sizes[v.ndim - 1] = w;
    return shape;
}

/// One dimension of the window with the size of its output, as PyTorch counts it.
WindowAxis axis_of(const char* what, Size in, Size kernel, Size stride, Size padding, Size dilation,
                   bool ceil_mode) {
    if (padding > kernel / 2)
        raise("ShapeError", std::string(what) +
                                ": expected a padding of at most half the kernel, " +
                                std::to_string(kernel) + ", got " + std::to_string(padding));
    // With ceil_mode the last window may reach over the border, and so may one that is the only
    // one.
    const Size room = in + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
    Size out = room < 0 ? 0 : room / stride + 1;
    if (out > 0 && ceil_mode && (out - 1) * stride >= in + padding) --out;
    if (in < 1 || out < 1)
        raise("ShapeError", std::string(what) + ": a window of " + std::to_string(kernel) +
                                " (dilation " + std::to_string(dilation) +
                                ") does not fit into size " + std::to_string(in) +
                                " with padding " + std::to_string(padding));
    return {in, out, kernel, stride, padding, dilation};
}

struct Window {
    WindowAxis h, w;
};

Window window_of(const char* what, const View& x, nb::handle kernel, nb::handle stride,
                 nb::handle padding, nb::handle dilation, bool ceil_mode) {
    const Pair k = pair_argument("kernel", kernel, 1), s = pair_argument("stride", stride, 1),
               p = pair_argument("padding", padding, 0);
    const Pair d = dilation.is_valid() ? pair_argument("dilation", dilation, 1) : Pair{1, 1};
    return {axis_of(what, height(x), k.first, s.first, p.first, d.first, ceil_mode),
            axis_of(what, width(x), k.second, s.second, p.second, d.second, ceil_mode)};
}

// ---- max ---------------------------------------------------------------------------------------

nb::object max_pool_array(nb::handle object, nb::handle kernel, nb::handle stride,
                          nb::handle padding, nb::handle dilation, bool ceil_mode) {
    const Array x = planes_input("max_pool2d: x", object);
    const Window window =
        window_of("max_pool2d", x.view, kernel, stride, padding, dilation, ceil_mode);
    if (window.h.in * window.w.in >= Size{1} << 31)
        raise("ShapeError", "max_pool2d: expected planes of less than 2^31 elements, got shape " +
                                text_of(Shape(x.view)));
    const Shape shape = with_plane(x.view, window.h.out, window.w.out);
    const Array y = fresh(shape, x.view.type), positions = fresh(shape, DType::i64);
    const bool done = with_real(x.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(x.view.size(), [&] {
            return max_pool(x.as<T>(), y.as<T>(), positions.as<std::int64_t>(), planes_of(x.view),
                            window.h, window.w);
        });
    });
    if (!done) raise_memory("max_pool2d");
    return nb::make_tuple(y.object, positions.object);
}

/// g and the shape of x must agree but for the planes' sizes.
Shape input_shape(const char* what, const View& g, nb::handle x_shape) {
    const Shape shape = shape_argument(what, x_shape);
    if (shape.ndim != g.ndim || !std::equal(shape.sizes, shape.sizes + g.ndim - 2, g.shape))
        raise("ShapeError", std::string(what) + ": expected a shape like that of the gradient, " +
                                text_of(Shape(g)) + ", but for the last two, got " +
                                text_of(shape));
    return shape;
}

nb::object max_pool_backward_array(nb::handle gradient, nb::handle index_object,
                                   nb::handle x_shape) {
    const Array g = planes_input("max_pool2d_backward: g", gradient);
    const Array positions = indices("max_pool2d_backward: indices", index_object);
    if (positions.view.size() != g.view.size())
        raise("ShapeError", "max_pool2d_backward: indices: expected shape " +
                                text_of(Shape(g.view)) + ", got " + text_of(Shape(positions.view)));
    const Array gx =
        fresh(input_shape("max_pool2d_backward: x_shape", g.view, x_shape), g.view.type);
    const Size in_size = height(gx.view) * width(gx.view);
    const Size bad = with_real(g.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(g.view.size(), [&] {
            return max_pool_backward(g.as<T>(), positions.as<std::int64_t>(), gx.as<T>(),
                                     planes_of(g.view), height(g.view) * width(g.view), in_size);
        });
    });
    if (bad >= 0) {
        PyErr_SetString(PyExc_IndexError, ("max_pool2d_backward: index " +
                                           std::to_string(positions.as<std::int64_t>()[bad]) +
                                           " is out of range for size " + std::to_string(in_size))
                                              .c_str());
        throw nb::python_error();
    }
    return gx.object;
}

// ---- average -----------------------------------------------------------------------------------

nb::object avg_pool_array(nb::handle object, nb::handle kernel, nb::handle stride,
                          nb::handle padding, bool ceil_mode, bool count_include_pad,
                          Size divisor) {
    const Array x = planes_input("avg_pool2d: x", object);
    const Window window =
        window_of("avg_pool2d", x.view, kernel, stride, padding, nb::handle(), ceil_mode);
    const Array y = fresh(with_plane(x.view, window.h.out, window.w.out), x.view.type);
    with_real(x.view.type, [&](auto real) {
        using T = decltype(real);
        unlocked(x.view.size(), [&] {
            average_pool(x.as<T>(), y.as<T>(), planes_of(x.view), window.h, window.w,
                         Divisor{count_include_pad, divisor});
        });
    });
    return y.object;
}

nb::object avg_pool_backward_array(nb::handle gradient, nb::handle x_shape, nb::handle kernel,
                                   nb::handle stride, nb::handle padding, bool ceil_mode,
                                   bool count_include_pad, Size divisor) {
    const Array g = planes_input("avg_pool2d_backward: g", gradient);
    const Array gx =
        fresh(input_shape("avg_pool2d_backward: x_shape", g.view, x_shape), g.view.type);
    const Window window =
        window_of("avg_pool2d_backward", gx.view, kernel, stride, padding, nb::handle(), ceil_mode);
    if (height(g.view) != window.h.out || width(g.view) != window.w.out)
        raise("ShapeError", "avg_pool2d_backward: g: expected shape " +
                                text_of(with_plane(g.view, window.h.out, window.w.out)) + ", got " +
                                text_of(Shape(g.view)));
    const bool done = with_real(g.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(gx.view.size(), [&] {
            return average_pool_backward(g.as<T>(), gx.as<T>(), planes_of(g.view), window.h,
                                         window.w, Divisor{count_include_pad, divisor});
        });
    });
    if (!done) raise_memory("avg_pool2d_backward");
    return gx.object;
}

// ---- adaptive average --------------------------------------------------------------------------

Planes checked_planes(const char* what, const View& x, Size out_h, Size out_w) {
    if (height(x) < 1 || width(x) < 1)
        raise("ShapeError", std::string(what) + ": expected planes that are not empty, got shape " +
                                text_of(Shape(x)));
    return {planes_of(x), height(x), width(x), out_h, out_w};
}

nb::object adaptive_pool_array(nb::handle object, nb::handle out_hw) {
    const Array x = planes_input("adaptive_avg_pool2d: x", object);
    const Pair out = pair_argument("adaptive_avg_pool2d: out_hw", out_hw, 1);
    const Planes planes = checked_planes("adaptive_avg_pool2d: x", x.view, out.first, out.second);
    const Array y = fresh(with_plane(x.view, out.first, out.second), x.view.type);
    const bool done = with_real(x.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(x.view.size(), [&] { return adaptive_pool(x.as<T>(), y.as<T>(), planes); });
    });
    if (!done) raise_memory("adaptive_avg_pool2d");
    return y.object;
}

nb::object adaptive_pool_backward_array(nb::handle gradient, nb::handle x_shape) {
    const Array g = planes_input("adaptive_avg_pool2d_backward: g", gradient);
    const Array gx =
        fresh(input_shape("adaptive_avg_pool2d_backward: x_shape", g.view, x_shape), g.view.type);
    checked_planes("adaptive_avg_pool2d_backward: g", g.view, 1, 1);
    const Planes planes = checked_planes("adaptive_avg_pool2d_backward: x_shape", gx.view,
                                         height(g.view), width(g.view));
    const bool done = with_real(g.view.type, [&](auto real) {
        using T = decltype(real);
        return unlocked(gx.view.size(),
                        [&] { return adaptive_pool_backward(g.as<T>(), gx.as<T>(), planes); });
    });
    if (!done) raise_memory("adaptive_avg_pool2d_backward");
    return gx.object;
}

}  // namespace

void bind_pooling(nb::module_& m) {
    m.def("max_pool2d", &max_pool_array, nb::arg("x"), nb::arg("kernel"), nb::arg("stride"),
          nb::arg("padding"), nb::arg("dilation"), nb::arg("ceil_mode"),
          nb::sig("def max_pool2d(x: " ARRAY ", kernel: " PAIR ", stride: " PAIR ", padding: " PAIR
                  ", dilation: " PAIR ", ceil_mode: bool) -> tuple[" ARRAY
                  ", numpy.typing.NDArray[numpy.int64]]"),
          "The largest of each window, and where it stands within its plane.");
    m.def("max_pool2d_backward", &max_pool_backward_array, nb::arg("g"), nb::arg("indices"),
          nb::arg("x_shape"),
          nb::sig("def max_pool2d_backward(g: " ARRAY ", indices: " ARRAY ", x_shape: " PAIR
                  ") -> " ARRAY),
          "The gradient of x: g added at the indices.");
    m.def("avg_pool2d", &avg_pool_array, nb::arg("x"), nb::arg("kernel"), nb::arg("stride"),
          nb::arg("padding"), nb::arg("ceil_mode"), nb::arg("count_include_pad"),
          nb::arg("divisor") = 0,
          nb::sig("def avg_pool2d(x: " ARRAY ", kernel: " PAIR ", stride: " PAIR ", padding: " PAIR
                  ", ceil_mode: bool, count_include_pad: bool, divisor: int = 0) -> " ARRAY),
          "The mean of each window; or its sum over a divisor that is not 0.");
    m.def("avg_pool2d_backward", &avg_pool_backward_array, nb::arg("g"), nb::arg("x_shape"),
          nb::arg("kernel"), nb::arg("stride"), nb::arg("padding"), nb::arg("ceil_mode"),
          nb::arg("count_include_pad"), nb::arg("divisor") = 0,
          nb::sig("def avg_pool2d_backward(g: " ARRAY ", x_shape: " PAIR ", kernel: " PAIR
                  ", stride: " PAIR ", padding: " PAIR
                  ", ceil_mode: bool, count_include_pad: bool, divisor: int = 0) -> " ARRAY),
          "The gradient of x.");
    m.def("adaptive_avg_pool2d", &adaptive_pool_array, nb::arg("x"), nb::arg("out_hw"),
          nb::sig("def adaptive_avg_pool2d(x: " ARRAY ", out_hw: " PAIR ") -> " ARRAY),
          "Means of windows that cut a plane into out_hw pieces.");
    m.def("adaptive_avg_pool2d_backward", &adaptive_pool_backward_array, nb::arg("g"),
          nb::arg("x_shape"),
          nb::sig("def adaptive_avg_pool2d_backward(g: " ARRAY ", x_shape: " PAIR ") -> " ARRAY),
          "The gradient of x.");
}

}  // namespace tapegrad::bindings
