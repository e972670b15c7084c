// core/scalar/terms.h -- sums of derivatives: plain terms g and products g * d become one node, the
// sumdot that the executors run fastest.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "symbol.h"

namespace tapegrad {

/// g * d, or g alone where d is no_node.
struct Term {
    NodeId g, d;
};

/// A node as a number times another node, which is no_node where the number is all. Nodes that are
/// known stay whole: what is made of them must depend on them.
struct Scaled {
    double factor;
    NodeId node;
};

inline Scaled scaled(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    if (node.op() == Op::constant) return {graph.constant_value(id), no_node};
    const Scaled whole{1.0, id};
    if (node.op() == Op::neg) return graph.is_hidden(id) ? Scaled{-1.0, node.a} : whole;
    if (node.op() != Op::mul) return whole;
    for (const auto& [number, other] : {std::pair(node.a, node.b), std::pair(node.b, node.a)})
        if (graph.is_constant(number))
            return graph.is_hidden(id) ? Scaled{graph.constant_value(number), other} : whole;
    return whole;
}

/// The product of two numbers, 0 where it is so large or small that it could make products with it
/// overflow or vanish that did not before: in float32, which a graph may be compiled for.
inline double joined(double a, double b) {
    const double product = a * b;
    return std::abs(product) < 1e30 && std::abs(product) > 1e-30 ? product : 0.0;
}

/// Whether 0 times a node may be other than 0: a number shows that it is finite.
inline bool needs_mask(const Graph& graph, NodeId id) {
    return !graph.is_constant(id) || !std::isfinite(graph.constant_value(id));
}

/// g * d without the nodes that constants make superfluous; d must not be 0. Of numbers on both
/// sides one is left: 100 * (2 x) is 200 x. A `masked` product stays 0 where g is, whatever d is.
inline Term product(Graph& graph, NodeId g, const Symbol& d, bool masked) {
    if (d.is(1.0)) return {g, no_node};
    if (graph.is_constant(g, 1.0)) return {d.in(graph), no_node};
    const NodeId factor = d.in(graph);
    if (masked && needs_mask(graph, factor))
        return {graph.binary(Op::masked_mul, g, factor), no_node};
    if (graph.is_constant(g) && graph.is_constant(factor))
        return {graph.binary(Op::mul, g, factor), no_node};
    const Scaled left = scaled(graph, g);
    if (left.node == g) return {g, factor};
    const Scaled right = scaled(graph, factor);
    const double number = joined(left.factor, right.factor);
    if (right.node == factor || number == 0.0) return {g, factor};
    const NodeId constant = graph.constant(number);
    if (left.node != no_node && right.node != no_node)
        return {graph.binary(Op::mul, constant, left.node), right.node};
    const NodeId node = left.node == no_node ? right.node : left.node;
    return number == 1.0 ? Term{node, no_node} : Term{constant, node};
}

/// Collects terms and sums them up.
class Terms {
   public:
    void add(const Term& term) {
        if (term.d == no_node) {
            plain_.push_back(term.g);
        } else {
            pairs_.push_back(term.g);
            pairs_.push_back(term.d);
        }
    }
    bool empty() const { return plain_.empty() && pairs_.empty(); }

    /// Adds up the plain terms that are numbers.
    void join_constants(Graph& graph) {
        const auto is_number = [&](NodeId id) { return graph.is_constant(id); };
        if (std::count_if(plain_.begin(), plain_.end(), is_number) < 2) return;
        double total = 0.0;
        for (NodeId id : plain_)
            if (is_number(id)) total += graph.constant_value(id);
        std::erase_if(plain_, is_number);
        plain_.push_back(graph.constant(total));
    }

    /// The node of their sum, 0 if there are none; starts anew.
    NodeId sum(Graph& graph) {
        const NodeId node = combine(graph);
        plain_.clear();
        pairs_.clear();
        return node;
    }

   private:
    NodeId combine(Graph& graph) {
        if (pairs_.empty()) {
            if (plain_.empty()) return graph.constant(0.0);
            if (plain_.size() == 1) return plain_[0];
            if (plain_.size() == 2) return graph.binary(Op::add, plain_[0], plain_[1]);
            return graph.nary(Op::sum, plain_);
        }
        if (plain_.empty() && pairs_.size() == 2)
            return graph.binary(Op::mul, pairs_[0], pairs_[1]);
        const auto p = static_cast<std::uint32_t>(plain_.size());
        plain_.insert(plain_.end(), pairs_.begin(), pairs_.end());
        return graph.nary(Op::sumdot, plain_, p);
    }

    std::vector<NodeId> plain_, pairs_;
};

/// How many of the nodes are other than 0.
inline Symbol any_nonzero(Graph& graph, std::span<const NodeId> nodes) {
    std::vector<NodeId> hits;
    for (NodeId node : nodes) hits.push_back(graph.binary(Op::ne, node, graph.constant(0.0)));
    return {graph, graph.nary(Op::sum, hits)};
}

/// A derivative, or 0 where it is not finite and `wanted` is 0. One that is 0 by itself stays what
/// it is, since its own derivatives may be others.
inline Symbol finite_or_zero(const Symbol& wanted, const Symbol& derivative) {
    const Symbol zero = 0.0, is_finite = derivative - derivative == zero;
    return where(wanted + is_finite, derivative, zero);
}

/// For each operand the product of all others, by products from the left and from the right: right
/// also where operands are 0.
inline std::vector<NodeId> products_of_others(Graph& graph, std::span<const NodeId> operands) {
    const auto n = operands.size();
    std::vector<NodeId> left(n), right(n), others(n);
    left[0] = right[n - 1] = graph.constant(1.0);
    for (std::size_t i = 1; i < n; ++i) {
        left[i] = graph.binary(Op::mul, left[i - 1], operands[i - 1]);
        right[n - 1 - i] = graph.binary(Op::mul, right[n - i], operands[n - i]);
    }
    for (std::size_t i = 0; i < n; ++i) others[i] = graph.binary(Op::mul, left[i], right[i]);
    return others;
}

}  // namespace tapegrad
