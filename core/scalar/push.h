// core/scalar/push.h -- forward-mode differentiation: tangents are more nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "graph.h"

namespace tapegrad {

/// Appends the tangents of `outputs` along the direction in which wrt[i] moves by seeds[i]. An
/// output that does not move gets the constant 0.
std::vector<NodeId> push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                         std::span<const NodeId> seeds);

}  // namespace tapegrad
