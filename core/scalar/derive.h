// core/scalar/derive.h -- reverse-mode differentiation: a gradient is more nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "graph.h"

namespace tapegrad {

/// Appends the adjoints of `wrt` for each output; row k of the result belongs to outputs[k]. A wrt
/// node that an output does not depend on gets the constant 0. A wrt node that others of them
/// depend on gets its total derivative, that through the others included.
std::vector<std::vector<NodeId>> derive(Graph& graph, std::span<const NodeId> outputs,
                                        std::span<const NodeId> wrt);

/// Which factor of 0 wins a product of an adjoint (or a tangent) and a slope; `absent`: there is no
/// adjoint, since no result depends on the node (or no tangent, since it stands still).
enum Mask : char { absent = -1, unmasked, by_adjoint, by_both };

/// Adjoints or tangents with their masks, one for each node.
struct Derivatives {
    std::vector<NodeId> nodes;
    std::vector<Mask> masks;
};

/// The same for one sum of outputs, each with an adjoint that it has already, unless it is absent.
Derivatives derive(Graph& graph, std::span<const NodeId> outputs, const Derivatives& given,
                   std::span<const NodeId> wrt);

}  // namespace tapegrad
