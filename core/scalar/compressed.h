// core/scalar/compressed.h -- sparse derivatives as nodes, several rows or columns by one sweep.
#pragma once

#include <optional>

#include "sparsity.h"

namespace tapegrad {

/// A sparse matrix of nodes: the entries of `pattern`, by rows.
struct SparseNodes {
    Pattern pattern;
    std::vector<NodeId> values;
    std::uint32_t sweeps = 0;
};

/// The derivatives of outputs by variables: forward, a colour of columns at a time, or in reverse,
/// a colour of rows at a time; whichever takes fewer sweeps if nothing is said.
SparseNodes sparse_jacobian(Graph& graph, std::span<const NodeId> outputs,
                            std::span<const NodeId> wrt, std::optional<bool> forward);

/// The second derivatives of one output: forward over reverse. Of (i, j) and (j, i), alike,
/// whichever a sweep shows alone.
SparseNodes sparse_hessian(Graph& graph, NodeId output, std::span<const NodeId> wrt);

}  // namespace tapegrad
