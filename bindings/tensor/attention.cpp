// bindings/tensor/attention.cpp -- scaled dot-product attention and its gradients.
#include "tensor/attention.h"

#include <algorithm>

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

/// An array [batch, heads, rows, columns] of one dtype.
Array heads_input(const char* what, nb::handle object, unsigned types) {
    Array array = input(what, object, types);
    if (array.view.ndim != 4)
        raise("ShapeError", std::string(what) + ": expected [batch, heads, length, width], got " +
                                "shape " + text_of(Shape(array.view)));
    return array;
}

template <class T>
Heads<const T> heads_of(const View& v) {
    Heads<const T> out{v.as<T>()};
    for (int d = 0; d < 4; ++d) out.strides[d] = v.strides[d] / v.itemsize;
    return out;
}

/// q, k and v of one call.
struct Operands {
    Array q, k, v;
    AttentionSizes sizes;

    Operands(nb::handle q_object, nb::handle k_object, nb::handle v_object)
        : q(heads_input("attention: q", q_object, reals)),
          k(heads_input("attention: k", k_object, 1u << int(q.view.type))),
          v(heads_input("attention: v", v_object, 1u << int(q.view.type))),
          sizes{q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3)} {
        const bool fits = std::equal(q.view.shape, q.view.shape + 2, k.view.shape) &&
                          std::equal(k.view.shape, k.view.shape + 3, v.view.shape) &&
                          q.size(3) == k.size(3);
        if (!fits)
            raise("ShapeError",
                  "attention: expected q [b, h, t, d], k [b, h, s, d] and v [b, h, s, e], got " +
                      text_of(Shape(q.view)) + ", " + text_of(Shape(k.view)) + " and " +
                      text_of(Shape(v.view)));
    }
    DType type() const { return q.view.type; }
};

Shape shape_of(const AttentionSizes& s, Size rows, Size columns) {
    Shape shape;
    for (const Size size : {s.batch, s.heads, rows, columns}) shape.append(size);
    return shape;
}

/// A mask that broadcasts to [batch, heads, queries, keys]; missing if it is None.
template <class T>
Heads<const T> mask_of(const Array& mask, const AttentionSizes& s) {
    if (!mask.object.is_valid()) return {};
    const View& v = mask.view;
    const Shape full = shape_of(s, s.queries, s.keys);
    Heads<const T> out{v.as<T>()};
    for (int d = 0; d < v.ndim; ++d) {
        const int at = 4 - v.ndim + d;
        if (at < 0 || (v.shape[d] != 1 && v.shape[d] != full.sizes[at]))
            raise("ShapeError", "attention: mask: expected a shape that broadcasts to " +
                                    text_of(full) + ", got " + text_of(Shape(v)));
        out.strides[at] = v.shape[d] == 1 ? 0 : v.strides[d] / v.itemsize;
    }
    return out;
}

nb::object attention_array(nb::handle q, nb::handle k, nb::handle v, nb::handle mask_object,
                           double scale, bool is_causal) {
    const Operands o(q, k, v);
    const AttentionSizes& s = o.sizes;
    const Array mask = mask_object.is_none()
                           ? Array{}
                           : input("attention: mask", mask_object, 1u << int(o.type()));
    const Array y = fresh(shape_of(s, s.queries, s.value_width), o.type());
    const Array p = fresh(shape_of(s, s.queries, s.keys), o.type());
    const bool done = with_real(o.type(), [&](auto real) {
        using T = decltype(real);
        const Attention<T> a{s,
                             heads_of<T>(o.q.view),
                             heads_of<T>(o.k.view),
                             heads_of<T>(o.v.view),
                             mask_of<T>(mask, s),
                             static_cast<T>(scale),
                             is_causal,
                             y.as<T>(),
                             p.as<T>()};
        return unlocked(s.products(), [&] { return attention(a); });
    });
    if (!done) raise_memory("attention");
    return nb::make_tuple(y.object, p.object);
}

nb::object attention_backward_array(nb::handle gradient, nb::handle q, nb::handle k, nb::handle v,
                                    nb::handle p_object, double scale) {
    const Operands o(q, k, v);
    const AttentionSizes& s = o.sizes;
    const Array g = heads_input("attention_backward: g", gradient, 1u << int(o.type()));
    const Array p = contiguous("attention_backward: p", p_object, 1u << int(o.type()));
    for (const auto& [array, expected] : {std::pair(&g, shape_of(s, s.queries, s.value_width)),
                                          std::pair(&p, shape_of(s, s.queries, s.keys))})
        if (array->view.ndim != 4 ||
            !std::equal(expected.sizes, expected.sizes + 4, array->view.shape))
            raise("ShapeError", "attention_backward: expected shape " + text_of(expected) +
                                    ", got " + text_of(Shape(array->view)));
    const Array gq = fresh_like(o.q.view), gk = fresh_like(o.k.view), gv = fresh_like(o.v.view);
    const bool done = with_real(o.type(), [&](auto real) {
        using T = decltype(real);
        const AttentionBackward<T> a{s,
                                     heads_of<T>(g.view),
                                     heads_of<T>(o.q.view),
                                     heads_of<T>(o.k.view),
                                     heads_of<T>(o.v.view),
                                     p.as<T>(),
                                     static_cast<T>(scale),
                                     gq.as<T>(),
                                     gk.as<T>(),
                                     gv.as<T>()};
        return unlocked(s.products(), [&] { return attention_backward(a); });
    });
    if (!done) raise_memory("attention_backward");
    return nb::make_tuple(gq.object, gk.object, gv.object);
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention", &attention_array, nb::arg("q"), nb::arg("k"), nb::arg("v"),
          nb::arg("mask").none(), nb::arg("scale"), nb::arg("is_causal"),
          nb::sig("def attention(q: " ARRAY ", k: " ARRAY ", v: " ARRAY ", mask: " ARRAY
                  " | None, scale: float, is_causal: bool) -> tuple[" ARRAY ", " ARRAY "]"),
          "softmax(scale q k' + mask) v, and the probabilities.");
    m.def("attention_backward", &attention_backward_array, nb::arg("g"), nb::arg("q"), nb::arg("k"),
          nb::arg("v"), nb::arg("p"), nb::arg("scale"),
          nb::sig("def attention_backward(g: " ARRAY ", q: " ARRAY ", k: " ARRAY ", v: " ARRAY
                  ", p: " ARRAY ", scale: float) -> tuple[" ARRAY ", " ARRAY ", " ARRAY "]"),
          "Gradients of q, k and v.");
}

}  // namespace tapegrad::bindings
