// core/tensor/attention.cpp -- scaled dot-product attention, one head per task.
#include "attention.h"

#include <algorithm>
#include <limits>

#include "kernels.h"
#include "pool.h"
#include "threads.h"
#include "work.h"

namespace tapegrad {
namespace {

/// Calls body(batch, head, scratch) for all heads; each thread has `elements` of scratch.
template <class T, class Body>
bool over_heads(const AttentionSizes& s, Size elements, Body body) {
    const int parts = parts_of(s.tasks(), s.products() / products_per_element);
    Scratch<T> scratch(static_cast<std::size_t>(parts * elements));
    if (!scratch.data()) return false;
    in_parts(s.tasks(), parts, [&](int part, Size low, Size high) {
        for (Size task = low; task < high; ++task)
            body(task / s.heads, task % s.heads, scratch.data() + part * elements);
    });
    return true;
}

/// The largest scratch that products of these sizes need.
template <class T>
Size gemm_scratch(std::initializer_list<Product<T>> products) {
    Size most = 0;
    for (const Product<T>& p : products)
        most = std::max(most, tensor_kernels<T>().gemm->scratch(p.m, p.n, p.k));
    return most;
}

template <class T>
void scale_by(T* values, Size count, T factor) {
    for (Size i = 0; i < count; ++i) values[i] *= factor;
}

/// A copy of a matrix times a number.
template <class T>
void scaled(const Matrix<T>& from, Size rows, Size columns, T factor, T* to) {
    for (Size r = 0; r < rows; ++r)
        for (Size c = 0; c < columns; ++c)
            to[r * columns + c] = factor * from.data[r * from.row_stride + c * from.column_stride];
}

template <class T>
bool sees_nothing(const T* row, Size n) {
    for (Size i = 0; i < n; ++i)
        if (!(row[i] == -std::numeric_limits<T>::infinity())) return false;
    return true;
}

/// Scores of one head to probabilities, in place.
template <class T>
void probabilities(const Attention<T>& a, Size batch, Size head, T* scores) {
    const auto softmax = tensor_kernels<T>().softmax->rows[softmax_plain];
    const AttentionSizes& s = a.sizes;
    if (!a.mask.data && !a.causal) return softmax(scores, scores, s.queries, s.keys);
    const T* mask = a.mask.data ? a.mask.at(batch, head) : nullptr;
    for (Size i = 0; i < s.queries; ++i) {
        T* row = scores + i * s.keys;
        const Size seen = a.causal ? std::min(i + 1, s.keys) : s.keys;
        if (mask)
            for (Size j = 0; j < seen; ++j)
                row[j] += mask[i * a.mask.strides[2] + j * a.mask.strides[3]];
        std::fill(row + seen, row + s.keys, T(0));
        if (mask && sees_nothing(row, seen))
            std::fill_n(row, seen, T(0));
        else
            softmax(row, row, 1, seen);
    }
}

}  // namespace

template <class T>
bool attention(const Attention<T>& a) {
    const auto gemm = tensor_kernels<T>().gemm->multiply;
    const AttentionSizes& s = a.sizes;
    const Product<T> scores{s.queries, s.keys, s.width, {}, {}, nullptr, s.keys, false};
    const Product<T> values{s.queries, s.value_width, s.keys,        {},
                            {},        nullptr,       s.value_width, false};
    const Size queries = s.queries * s.width;
    const Size elements = queries + gemm_scratch<T>({scores, values});
    return over_heads<T>(s, elements, [&](Size batch, Size head, T* scratch) {
        const Size task = batch * s.heads + head;
        T *p = a.p + task * s.queries * s.keys, *memory = scratch + queries;
        scaled(a.q.matrix(batch, head), s.queries, s.width, a.scale, scratch);
        Product<T> product = scores;
        product.a = {scratch, s.width, 1};
        product.b = a.k.matrix(batch, head).transposed();
        product.c = p;
        gemm(product, memory);
        probabilities(a, batch, head, p);
        product = values;
        product.a = {p, s.keys, 1};
        product.b = a.v.matrix(batch, head);
        product.c = a.y + task * s.queries * s.value_width;
        gemm(product, memory);
    });
}

template <class T>
bool attention_backward(const AttentionBackward<T>& a) {
    const auto& kernels = tensor_kernels<T>();
    const auto gemm = kernels.gemm->multiply;
    const AttentionSizes& s = a.sizes;
    const Product<T> to_v{s.keys, s.value_width, s.queries, {}, {}, nullptr, s.value_width, false};
    const Product<T> to_p{s.queries, s.keys, s.value_width, {}, {}, nullptr, s.keys, false};
    const Product<T> to_q{s.queries, s.width, s.keys, {}, {}, nullptr, s.width, false};
    const Product<T> to_k{s.keys, s.width, s.queries, {}, {}, nullptr, s.width, false};
    const Size scores = s.queries * s.keys;
    const Size elements = scores + gemm_scratch<T>({to_v, to_p, to_q, to_k});
    return over_heads<T>(s, elements, [&](Size batch, Size head, T* gp) {
        const Size task = batch * s.heads + head;
        const T* p = a.p + task * scores;
        T* memory = gp + scores;
        const auto run = [&](Product<T> product, Matrix<T> left, Matrix<T> right, T* to) {
            product.a = left, product.b = right, product.c = to;
            gemm(product, memory);
        };
        const Matrix<T> rows{p, s.keys, 1}, gradient{gp, s.keys, 1};
        const Matrix<T> g = a.g.matrix(batch, head);
        T *gq = a.gq + task * s.queries * s.width, *gk = a.gk + task * s.keys * s.width;
        run(to_v, rows.transposed(), g, a.gv + task * s.keys * s.value_width);
        run(to_p, g, a.v.matrix(batch, head).transposed(), gp);
        kernels.softmax->rows_backward[softmax_plain](gp, p, gp, s.queries, s.keys);
        run(to_q, gradient, a.k.matrix(batch, head), gq);
        run(to_k, gradient.transposed(), a.q.matrix(batch, head), gk);
        scale_by(gq, s.queries * s.width, a.scale);
        scale_by(gk, s.keys * s.width, a.scale);
    });
}

#define TG_INSTANTIATE(T)                         \
    template bool attention(const Attention<T>&); \
    template bool attention_backward(const AttentionBackward<T>&);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE

}  // namespace tapegrad
