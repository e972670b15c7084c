// core/scalar/sparsity.h -- which output depends on which variable, and groups of variables that
// one sweep can serve together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph.h"

namespace tapegrad {

/// The places of a matrix that may be other than 0, by rows: those of row i are
/// columns[starts[i]] to columns[starts[i + 1]], in order.
struct Pattern {
    std::vector<std::uint32_t> starts{0};
    std::vector<std::uint32_t> columns;
    std::uint32_t width = 0;

    std::size_t rows() const { return starts.size() - 1; }
    std::span<const std::uint32_t> row(std::size_t i) const {
        return {columns.data() + starts[i], starts[i + 1] - starts[i]};
    }
    std::size_t longest_row() const;
    Pattern transposed() const;
    /// With (j, i) wherever (i, j) is; for square matrices.
    Pattern symmetric() const;
};

/// The pattern of the Jacobian of `outputs` by `wrt`.
Pattern dependence(const Graph& graph, std::span<const NodeId> outputs,
                   std::span<const NodeId> wrt);

/// A colour for each column, such that no row has two columns of one colour: the sum of a colour's
/// columns shows each of them.
std::vector<std::uint32_t> colour_columns(const Pattern& pattern);

/// A colour for each column of a symmetric matrix, such that every entry (i, j) stands alone in
/// row i among the columns of j's colour, or in row j among those of i's: a star colouring.
std::vector<std::uint32_t> colour_symmetric(const Pattern& pattern);

}  // namespace tapegrad
