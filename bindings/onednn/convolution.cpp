// bindings/onednn/convolution.cpp -- two-dimensional convolution on NumPy arrays.
#include "onednn/convolution.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "arrays.h"
#include "functions.h"

namespace tapegrad::bindings {
namespace {

using onednn::Convolution;
using onednn::Layout;
using Pair = std::pair<std::int64_t, std::int64_t>;
using Sizes = std::array<std::int64_t, 4>;

Sizes sizes_of(const nb::object& array) {
    return {size(array, 0), size(array, 1), size(array, 2), size(array, 3)};
}

std::string text(const Sizes& sizes) {
    const npy_intp values[] = {sizes[0], sizes[1], sizes[2], sizes[3]};
    return shape_text(4, values);
}

Layout layout_named(const std::optional<std::string>& name) {
    if (!name) return Layout::chosen;
    if (*name == "plain") return Layout::plain;
    if (*name == "channels_last") return Layout::channels_last;
    if (*name == "blocked") return Layout::blocked;
    raise("OptionError",
          "layout: expected 'plain', 'channels_last', 'blocked' or None, got '" + *name + "'");
}

/// oneDNN computes with 32-bit integers inside, so products of these have to fit.
constexpr std::int64_t most_option = 1 << 14;
constexpr std::int64_t most_size = 1 << 30;

void check_option(const char* op, const char* name, Pair value, std::int64_t least) {
    if (std::min(value.first, value.second) < least ||
        std::max(value.first, value.second) > most_option)
        raise("OptionError", std::string(op) + ": expected " + name + " from " +
                                 std::to_string(least) + " to " + std::to_string(most_option) +
                                 ", got (" + std::to_string(value.first) + ", " +
                                 std::to_string(value.second) + ")");
}

/// Options and sizes as one problem, checked. `op` begins its messages.
Convolution problem(const char* op, const Sizes& x, const Sizes& w, Pair stride, Pair padding,
                    Pair dilation, std::int64_t groups, const std::optional<std::string>& layout) {
    check_option(op, "stride", stride, 1);
    check_option(op, "padding", padding, 0);
    check_option(op, "dilation", dilation, 1);
    check_option(op, "groups", {groups, groups}, 1);
    const std::string given = std::string(", got x ") + text(x) + ", weight " + text(w) +
                              ", groups " + std::to_string(groups);
    if (x[1] % groups || w[0] % groups || x[1] / groups != w[1])
        raise("ShapeError", std::string(op) +
                                ": expected x (n, c, h, w) and weight (k, c / groups, ...) with c "
                                "and k multiples of groups" +
                                given);
    if (std::max({x[1], x[2], x[3], w[0], w[2], w[3]}) > most_size ||
        std::max(w[2], w[3]) > most_option)
        raise("ShapeError", std::string(op) + ": expected sizes below " +
                                std::to_string(most_size) + " and kernels of at most " +
                                std::to_string(most_option) + given);
    if (std::min({x[1], x[2], x[3], w[0], w[2], w[3]}) < 1)
        raise("ShapeError", std::string(op) + ": only the batch may be empty" + given);
    const Convolution p{.n = x[0],
                        .c = x[1],
                        .h = x[2],
                        .w = x[3],
                        .k = w[0],
                        .kernel_h = w[2],
                        .kernel_w = w[3],
                        .stride_h = stride.first,
                        .stride_w = stride.second,
                        .pad_h = padding.first,
                        .pad_w = padding.second,
                        .dilation_h = dilation.first,
                        .dilation_w = dilation.second,
                        .groups = groups,
                        .layout = layout_named(layout)};
    if (p.window_h() > p.h + 2 * p.pad_h || p.window_w() > p.w + 2 * p.pad_w)
        raise("ShapeError", std::string(op) + ": the kernel, dilated, must fit into the padded x" +
                                given + "; give more padding");
    return p;
}

void check_output_grad(const char* op, const Convolution& p, const nb::object& g) {
    const Sizes expected{p.n, p.k, p.out_h(), p.out_w()};
    if (sizes_of(g) != expected)
        raise("ShapeError", std::string(op) + ": expected g of the output's shape " +
                                text(expected) + ", got " + shape_text(array_of(g)));
}

nb::object conv2d(nb::handle x_given, nb::handle w_given, nb::handle bias_given, Pair stride,
                  Pair padding, Pair dilation, std::int64_t groups, nb::handle key,
                  const std::optional<std::string>& layout) {
    const nb::object x = contiguous("conv2d x", x_given, 4), w = contiguous("conv2d w", w_given, 4);
    const Convolution p =
        problem("conv2d", sizes_of(x), sizes_of(w), stride, padding, dilation, groups, layout);
    const nb::object bias = bias_array("conv2d bias", bias_given, p.k);
    const nb::object y = fresh({p.n, p.k, p.out_h(), p.out_w()});
    if (p.n == 0) return y;
    const onednn::WeightKey weight = weight_key(key, w, w_given);
    const Unlocked unlocked(is_long(p.flops()));
    onednn::convolution(p, data_of(x), data_of(w), data_of(bias), data_of(y), weight);
    return y;
}

nb::object conv2d_input_grad(nb::handle g_given, nb::handle w_given, const Sizes& x_shape,
                             Pair stride, Pair padding, Pair dilation, std::int64_t groups,
                             nb::handle key, const std::optional<std::string>& layout) {
    const char* op = "conv2d_input_grad";
    const nb::object g = contiguous("conv2d_input_grad g", g_given, 4);
    const nb::object w = contiguous("conv2d_input_grad w", w_given, 4);
    const Convolution p =
        problem(op, x_shape, sizes_of(w), stride, padding, dilation, groups, layout);
    check_output_grad(op, p, g);
    const nb::object x_grad = fresh({p.n, p.c, p.h, p.w});
    if (p.n == 0) return x_grad;
    const onednn::WeightKey weight = weight_key(key, w, w_given);
    const Unlocked unlocked(is_long(p.flops()));
    onednn::convolution_input_grad(p, data_of(g), data_of(w), data_of(x_grad), weight);
    return x_grad;
}

nb::object conv2d_weight_grad(nb::handle g_given, nb::handle x_given, const Sizes& w_shape,
                              Pair stride, Pair padding, Pair dilation, std::int64_t groups,
                              bool with_bias, const std::optional<std::string>& layout) {
    const char* op = "conv2d_weight_grad";
    const nb::object g = contiguous("conv2d_weight_grad g", g_given, 4);
    const nb::object x = contiguous("conv2d_weight_grad x", x_given, 4);
    const Convolution p =
        problem(op, sizes_of(x), w_shape, stride, padding, dilation, groups, layout);
    check_output_grad(op, p, g);
    const nb::object w_grad = fresh({w_shape[0], w_shape[1], w_shape[2], w_shape[3]});
    nb::object bias_grad;
    if (with_bias) bias_grad = fresh({p.k});
    if (p.n == 0) {
        fill_zero(w_grad);
        if (with_bias) fill_zero(bias_grad);
    } else {
        const Unlocked unlocked(is_long(p.flops()));
        onednn::convolution_weight_grad(p, data_of(g), data_of(x), data_of(w_grad),
                                        data_of(bias_grad));
    }
    return nb::make_tuple(w_grad, with_bias ? bias_grad : nb::none());
}

}  // namespace

void bind_convolution(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "conv2d", &conv2d, "x"_a.none(), "w"_a.none(), "bias"_a.none(), "stride"_a, "padding"_a,
        "dilation"_a, "groups"_a, "key"_a = nb::none(), "layout"_a = nb::none(),
        nb::sig("def conv2d(x: numpy.typing.NDArray[numpy.float32], w: "
                "numpy.typing.NDArray[numpy.float32], bias: numpy.typing.NDArray[numpy.float32] | "
                "None, stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, "
                "int], groups: int, key: tuple[Weight, int] | None = None, layout: str | None = "
                "None) -> numpy.typing.NDArray[numpy.float32]"),
        "The convolution of x (n, c, h, w) with w (k, c / groups, h, w). With a key, (Weight, "
        "version), its packed form is kept until the version changes, where that pays.");
    m.def(
        "conv2d_input_grad", &conv2d_input_grad, "g"_a.none(), "w"_a.none(), "x_shape"_a,
        "stride"_a, "padding"_a, "dilation"_a, "groups"_a, "key"_a = nb::none(),
        "layout"_a = nb::none(),
        nb::sig("def conv2d_input_grad(g: numpy.typing.NDArray[numpy.float32], w: "
                "numpy.typing.NDArray[numpy.float32], x_shape: collections.abc.Sequence[int], "
                "stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], "
                "groups: int, key: tuple[Weight, int] | None = None, layout: str | None = None) -> "
                "numpy.typing.NDArray[numpy.float32]"),
        "The gradient of conv2d with respect to x, from the gradient g with respect to y.");
    m.def("conv2d_weight_grad", &conv2d_weight_grad, "g"_a.none(), "x"_a.none(), "w_shape"_a,
          "stride"_a, "padding"_a, "dilation"_a, "groups"_a, "with_bias"_a, "layout"_a = nb::none(),
          nb::sig("def conv2d_weight_grad(g: numpy.typing.NDArray[numpy.float32], x: "
                  "numpy.typing.NDArray[numpy.float32], w_shape: collections.abc.Sequence[int], "
                  "stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], "
                  "groups: int, with_bias: bool, layout: str | None = None) -> "
                  "tuple[numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.float32] "
                  "| None]"),
          "The gradients of conv2d with respect to w and, if wanted, the bias.");
}

}  // namespace tapegrad::bindings
