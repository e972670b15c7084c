// core/scalar/compressed.cpp -- sparse derivatives as nodes, several rows or columns by one sweep.
//
// A sweep differentiates along a whole group of variables (forward) or of outputs (reverse) at
// once; a colouring chooses the groups such that no two entries meet. So the Hessian of a sum of
// terms with a few variables each takes a handful of sweeps, whatever its size.
#include "compressed.h"

#include <algorithm>

#include "derive.h"
#include "push.h"

namespace tapegrad {
namespace {

using Colours = std::vector<std::uint32_t>;
/// What each sweep found: by the colour, then by the row or column.
using Sweeps = std::vector<std::vector<NodeId>>;

std::uint32_t count_of(const Colours& colours) {
    return colours.empty() ? 0 : *std::max_element(colours.begin(), colours.end()) + 1;
}

/// Columns or rows in groups that a sweep shows at once.
struct Groups {
    bool of_columns;
    Colours colours;

    std::uint32_t count() const { return count_of(colours); }
};

/// Groups of columns or of rows, whichever are fewer. Each entry of a row is in another group of
/// columns, so a long row may decide before they are made, which takes the square of its length.
Groups fewer_groups(const Pattern& pattern) {
    const Pattern across = pattern.transposed();
    const std::size_t least_columns = pattern.longest_row(), least_rows = across.longest_row();
    Groups columns{true, {}};
    if (least_columns < least_rows) {
        columns.colours = colour_columns(pattern);
        if (columns.count() < least_rows) return columns;
    }
    Groups rows{false, colour_columns(across)};
    if (rows.count() <= least_columns) return rows;
    if (columns.colours.empty()) columns.colours = colour_columns(pattern);
    return columns.count() < rows.count() ? columns : rows;
}

Groups groups_of(const Pattern& pattern, std::optional<bool> of_columns) {
    if (!of_columns) return fewer_groups(pattern);
    return {*of_columns, colour_columns(*of_columns ? pattern : pattern.transposed())};
}

/// How the outputs move with all variables of a colour, for each colour.
Sweeps pushed(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
              const Colours& colours) {
    const NodeId zero = graph.constant(0.0), one = graph.constant(1.0);
    Sweeps sweeps;
    std::vector<NodeId> seeds(wrt.size());
    for (std::uint32_t colour = 0; colour < count_of(colours); ++colour) {
        for (std::size_t i = 0; i < wrt.size(); ++i) seeds[i] = colours[i] == colour ? one : zero;
        sweeps.push_back(push(graph, outputs, wrt, seeds));
    }
    return sweeps;
}

/// The gradient of the sum of all outputs of a colour, for each colour.
Sweeps pulled(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
              const Colours& colours) {
    Sweeps sweeps;
    for (std::uint32_t colour = 0; colour < count_of(colours); ++colour) {
        std::vector<NodeId> group;
        for (std::size_t i = 0; i < outputs.size(); ++i)
            if (colours[i] == colour) group.push_back(outputs[i]);
        const NodeId sum[] = {group.size() == 1 ? group[0] : graph.nary(Op::sum, group)};
        sweeps.push_back(derive(graph, sum, wrt)[0]);
    }
    return sweeps;
}

/// Calls body(row, column) for all entries, by rows.
template <class Body>
void each_entry(const Pattern& pattern, Body body) {
    for (std::uint32_t row = 0; row < pattern.rows(); ++row)
        for (std::uint32_t column : pattern.row(row)) body(row, column);
}

}  // namespace

SparseNodes sparse_jacobian(Graph& graph, std::span<const NodeId> outputs,
                            std::span<const NodeId> wrt, std::optional<bool> forward) {
    SparseNodes out{dependence(graph, outputs, wrt), {}, 0};
    if (out.pattern.columns.empty()) return out;
    const Groups groups = groups_of(out.pattern, forward);
    const Colours& colours = groups.colours;
    const Sweeps sweeps = (groups.of_columns ? pushed : pulled)(graph, outputs, wrt, colours);
    each_entry(out.pattern, [&](std::uint32_t row, std::uint32_t column) {
        out.values.push_back(groups.of_columns ? sweeps[colours[column]][row]
                                               : sweeps[colours[row]][column]);
    });
    out.sweeps = static_cast<std::uint32_t>(sweeps.size());
    return out;
}

SparseNodes sparse_hessian(Graph& graph, NodeId output, std::span<const NodeId> wrt) {
    const NodeId of[] = {output};
    const std::vector<NodeId> gradient = derive(graph, of, wrt)[0];
    // By a node that is computed from other variables the second derivatives are not symmetric.
    if (std::any_of(wrt.begin(), wrt.end(), [&](NodeId id) { return graph.op(id) != Op::input; }))
        return sparse_jacobian(graph, gradient, wrt, std::nullopt);
    SparseNodes out{dependence(graph, gradient, wrt).symmetric(), {}, 0};
    if (out.pattern.columns.empty()) return out;
    const Colours colours = colour_symmetric(out.pattern);
    const Sweeps sweeps = pushed(graph, gradient, wrt, colours);
    std::vector<std::uint32_t> in_row(sweeps.size(), 0);  // columns of each colour
    for (std::uint32_t row = 0; row < out.pattern.rows(); ++row) {
        for (std::uint32_t column : out.pattern.row(row)) ++in_row[colours[column]];
        for (std::uint32_t column : out.pattern.row(row))
            out.values.push_back(in_row[colours[column]] == 1 ? sweeps[colours[column]][row]
                                                              : sweeps[colours[row]][column]);
        for (std::uint32_t column : out.pattern.row(row)) in_row[colours[column]] = 0;
    }
    out.sweeps = static_cast<std::uint32_t>(sweeps.size());
    return out;
}

}  // namespace tapegrad
