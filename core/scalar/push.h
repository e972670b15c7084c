// core/scalar/push.h -- forward-mode differentiation: tangents are more nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "derive.h"
#include "graph.h"

namespace tapegrad {

/// Appends the tangents of `outputs` along the direction in which wrt[i] moves by seeds[i]. An
/// output that does not move gets the constant 0.
std::vector<NodeId> push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                         std::span<const NodeId> seeds);

/// The same for seeds with masks, and tangents with theirs.
Derivatives push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                 const Derivatives& seeds);

}  // namespace tapegrad
