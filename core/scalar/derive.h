// core/scalar/derive.h -- reverse-mode differentiation: a gradient is more nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "graph.h"

namespace tapegrad {

/// Appends the adjoints of `wrt` for each output; row k of the result belongs to outputs[k]. A wrt
/// node that an output does not depend on gets the constant 0. A wrt node that others of them
/// depend on gets its total derivative, that through the others included. `masked`: an adjoint of 0
/// stays 0, whatever it is multiplied with, as below a `where`.
std::vector<std::vector<NodeId>> derive(Graph& graph, std::span<const NodeId> outputs,
                                        std::span<const NodeId> wrt, bool masked = false);

}  // namespace tapegrad
