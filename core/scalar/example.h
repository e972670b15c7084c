// core/scalar/example.h -- the values that nodes have for example inputs, computed while a graph is
// recorded: `if` on a Var takes the branch that these take.
#pragma once

#include <optional>
#include <vector>

#include "graph.h"

namespace tapegrad {

class Example {
   public:
    void set_input(std::uint32_t position, double value);
    /// The value of a node; none if it depends on an input without one. All nodes before it are
    /// evaluated that have not been, so a graph costs one pass, however many branches it has.
    std::optional<double> value(const Graph& graph, NodeId id);

   private:
    std::optional<double> evaluate(const Graph& graph, NodeId id) const;
    void evaluate_several(const Graph& graph, NodeId header);

    std::vector<std::optional<double>> inputs_, values_;
};

/// The values of nodes that depend on no input, through the same code that programs run.
std::vector<double> evaluate_constants(const Graph& graph, std::span<const NodeId> nodes);

}  // namespace tapegrad
