// core/scalar/terms.h -- sums of derivatives: plain terms g and products g * d become one node, the
// sumdot that the executors run fastest.
#pragma once

#include <span>
#include <vector>

#include "symbol.h"

namespace tapegrad {

/// g * d, or g alone where d is no_node.
struct Term {
    NodeId g, d;
};

/// g * d without the nodes that constants make superfluous; d must not be 0. A `masked` product
/// stays 0 where g is, whatever d is.
inline Term product(Graph& graph, NodeId g, const Symbol& d, bool masked) {
    if (d.is(1.0)) return {g, no_node};
    if (graph.is_constant(g, 1.0)) return {d.in(graph), no_node};
    const NodeId factor = d.in(graph);
    if (masked && !graph.is_constant(factor))
        return {graph.binary(Op::masked_mul, g, factor), no_node};
    if (graph.is_constant(g) && graph.is_constant(factor))
        return {graph.binary(Op::mul, g, factor), no_node};
    return {g, factor};
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
