// core/scalar/push.cpp -- forward-mode differentiation.
//
// Nodes are visited in their order, from the first variable to the last output, those only that
// move and that an output needs; what has the number 0 for a seed stands still. A variable that
// depends on others moves with them, too: what comes out is the Jacobian of derive.h times the
// seeds. A tangent is one node, the sum of the operands' tangents times the derivative text of
// ops.def; the other operations have the rules below. `where` chooses between tangents, so it masks
// nothing: what the branch not taken would give is not looked at.
#include "push.h"

#include <algorithm>

#include "../errors.h"
#include "loops.h"
#include "terms.h"

namespace tapegrad {
namespace {

class Push {
   public:
    Push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt)
        : graph_(graph),
          first_(*std::min_element(wrt.begin(), wrt.end())),
          end_(std::max(first_, *std::max_element(outputs.begin(), outputs.end()) + 1)) {
        needed_.assign(end_ - first_, false);
        for (NodeId id : outputs)
            if (id >= first_) needed_[id - first_] = true;
        for (NodeId id = end_; id-- > first_;)
            if (needed_[id - first_])
                for (NodeId operand : graph.operands(id))
                    if (operand >= first_) needed_[operand - first_] = true;
        tangents_.assign(end_ - first_, no_node);
        masked_.assign(end_ - first_, unmasked);
    }

    Derivatives run(std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                    const Derivatives& seeds) {
        for (std::size_t i = 0; i < wrt.size(); ++i) give(wrt[i], seeds.nodes[i], seeds.masks[i]);
        for (NodeId id = first_; id < end_; ++id) {
            if (!needed_[id - first_] || !any_moves(graph_.operands(id))) continue;
            masking_ = unmasked;
            for (NodeId operand : graph_.operands(id)) masking_ = std::max(masking_, mask(operand));
            visit(id);
        }
        Derivatives tangents{tangents_of(outputs), {}};
        for (NodeId id : outputs) tangents.masks.push_back(mask(id));
        return tangents;
    }

   private:
    /// Moves a node by `value` besides how it moves already: a variable that is named twice moves
    /// by both, one that depends on others by its own seed and with them.
    void move(NodeId id, NodeId value) {
        if (id >= end_ || graph_.is_constant(value, 0.0)) return;
        NodeId& known = tangents_[id - first_];
        known = known == no_node ? value : graph_.binary(Op::add, known, value);
        masked_[id - first_] = std::max(masked_[id - first_], masking_);
    }
    /// Moves a node with a mask of its own.
    void give(NodeId id, NodeId value, Mask mask) {
        masking_ = mask;
        if (mask != absent) move(id, value);
    }

    /// The tangent of a node, if it moves.
    NodeId found(NodeId id) const {
        return id < first_ || id >= end_ ? no_node : tangents_[id - first_];
    }
    bool moves(NodeId id) const { return found(id) != no_node; }
    bool any_moves(std::span<const NodeId> nodes) const {
        return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) { return moves(id); });
    }

    Mask mask(NodeId id) const { return moves(id) ? masked_[id - first_] : absent; }

    Symbol symbol(NodeId id) { return {graph_, id}; }
    Symbol tangent(NodeId id) { return moves(id) ? symbol(found(id)) : Symbol(0.0); }

    /// The operand's tangent times d.
    void along(NodeId operand, const Symbol& d) {
        if (moves(operand) && !d.is(0.0))
            terms_.add(product(graph_, found(operand), d, mask(operand) != unmasked));
    }
    void plain(const Symbol& t) {
        if (!t.is(0.0)) terms_.add({t.in(graph_), no_node});
    }

    void visit(NodeId id) {
        // Copied: recording nodes moves the arrays that operands() looks into.
        auto seen = graph_.operands(id);
        operands_.assign(seen.begin(), seen.end());
        const std::span<const NodeId> operands = operands_;
        switch (graph_.op(id)) {
            case Op::softmax:
                return visit_softmax(id, operands);
            case Op::softmax_vjp:
                return visit_softmax_vjp(id, operands);
            case Op::projection:
                return;  // its header has done it
            case Op::loop:
                return visit_loop(id, operands);
            case Op::custom:
                return visit_custom(id, operands);
            case Op::masked_mul:
            case Op::masked_both:
                collect_masked(graph_.op(id), operands);
                break;
            default:
                collect(id, operands);
        }
        if (terms_.empty()) return;
        terms_.join_constants(graph_);
        move(id, terms_.sum(graph_));
    }

    void collect_masked(Op op, std::span<const NodeId> operands) {
        const Symbol a = symbol(operands[0]), b = symbol(operands[1]);
        if (moves(operands[0])) plain(record(op, tangent(operands[0]), b));
        if (moves(operands[1])) plain(masked_both(tangent(operands[1]), a));
    }

    void collect(NodeId id, std::span<const NodeId> operands) {
        switch (graph_.op(id)) {
#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                   \
    case Op::name: {                                                           \
        [[maybe_unused]] const Symbol a = symbol(operands[0]), y = symbol(id); \
        along(operands[0], da);                                                \
        break;                                                                 \
    }
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)               \
    case Op::name: {                                                           \
        [[maybe_unused]] const Symbol a = symbol(operands[0]);                 \
        [[maybe_unused]] const Symbol b = symbol(operands[1]), y = symbol(id); \
        if (moves(operands[0])) along(operands[0], da);                        \
        if (moves(operands[1])) along(operands[1], db);                        \
        break;                                                                 \
    }
#include "ops.def"
#undef OP1
#undef OP2
            case Op::where: {
                const Symbol a = tangent(operands[1]), b = tangent(operands[2]);
                if (!(a.is(0.0) && b.is(0.0))) plain(where(symbol(operands[0]), a, b));
                break;
            }
            case Op::sum:
                for (NodeId operand : operands) plain(tangent(operand));
                break;
            case Op::dot:
                collect_pairs(operands);
                break;
            case Op::sumdot: {
                const std::uint32_t p = graph_.node(id).b;
                for (NodeId operand : operands.first(p)) plain(tangent(operand));
                collect_pairs(operands.subspan(p));
                break;
            }
            case Op::prod: {
                const std::vector<NodeId> others = products_of_others(graph_, operands);
                for (std::size_t i = 0; i < operands.size(); ++i)
                    along(operands[i], symbol(others[i]));
                break;
            }
            case Op::max:
            case Op::min:
                collect_extreme(id, operands);
                break;
            case Op::logsumexp: {
                const auto n = static_cast<std::uint32_t>(operands.size());
                const NodeId header = graph_.multi(Op::softmax, operands, n);
                for (std::uint32_t i = 0; i < n; ++i) along(operands[i], symbol(header + 1 + i));
                break;
            }
            default:
                break;  // inputs and constants
        }
    }

    void collect_pairs(std::span<const NodeId> operands) {
        for (std::size_t i = 0; i + 1 < operands.size(); i += 2) {
            along(operands[i], symbol(operands[i + 1]));
            along(operands[i + 1], symbol(operands[i]));
        }
    }

    /// The mean of the tangents of those operands that are the extreme: none is where one is NaN.
    void collect_extreme(NodeId id, std::span<const NodeId> operands) {
        std::vector<NodeId> hits, moved;
        for (NodeId operand : operands) {
            hits.push_back(graph_.binary(Op::eq, operand, id));
            if (moves(operand))
                moved.push_back(
                    where(symbol(hits.back()), tangent(operand), Symbol(0.0)).in(graph_));
        }
        const Symbol count = maximum(symbol(graph_.nary(Op::sum, hits)), Symbol(1.0));
        plain(symbol(graph_.nary(Op::sum, moved)) / count);
    }

    // ---- softmax ------------------------------------------------------------------------------

    std::vector<NodeId> tangents_of(std::span<const NodeId> nodes) {
        std::vector<NodeId> found;
        for (NodeId node : nodes) found.push_back(tangent(node).in(graph_));
        return found;
    }

    /// y_i (t_i - y.t) for all i, as a header: the matrix diag(y) - y y' is softmax's Jacobian.
    NodeId rotated(std::span<const NodeId> y, std::span<const NodeId> t) {
        std::vector<NodeId> both(y.begin(), y.end());
        both.insert(both.end(), t.begin(), t.end());
        return graph_.multi(Op::softmax_vjp, both, static_cast<std::uint32_t>(y.size()));
    }

    void visit_softmax(NodeId id, std::span<const NodeId> operands) {
        std::vector<NodeId> y;
        for (std::uint32_t i = 0; i < operands.size(); ++i) y.push_back(id + 1 + i);
        const NodeId header = rotated(y, tangents_of(operands));
        move_results(id, y.size(), [&](std::uint32_t i) { return header + 1 + i; });
    }

    /// Of y_i (g_i - y.g): the same matrix times the tangents of g, and by the product rule
    /// ty_i (g_i - y.g) - y_i (ty.g).
    void visit_softmax_vjp(NodeId id, std::span<const NodeId> operands) {
        const auto n = operands.size() / 2;
        const auto y = operands.first(n), g = operands.subspan(n);
        std::vector<Terms> parts(n);
        if (any_moves(g)) {
            const NodeId header = rotated(y, tangents_of(g));
            for (std::uint32_t i = 0; i < n; ++i) parts[i].add({header + 1 + i, no_node});
        }
        if (any_moves(y)) {
            const std::vector<NodeId> ty = tangents_of(y);
            const Symbol mean = symbol(dot(y, g)), change = symbol(dot(ty, g));
            for (std::uint32_t i = 0; i < n; ++i) {
                parts[i].add({ty[i], (symbol(g[i]) - mean).in(graph_)});
                parts[i].add({y[i], (-change).in(graph_)});
            }
        }
        move_results(id, n, [&](std::uint32_t i) { return parts[i].sum(graph_); });
    }

    NodeId dot(std::span<const NodeId> a, std::span<const NodeId> b) {
        std::vector<NodeId> pairs;
        for (std::size_t i = 0; i < a.size(); ++i) {
            pairs.push_back(a[i]);
            pairs.push_back(b[i]);
        }
        return graph_.nary(Op::dot, pairs);
    }

    // ---- loops and functions from outside -----------------------------------------------------

    /// A loop that carries tangents besides values (see loops.h).
    void visit_loop(NodeId id, std::span<const NodeId> operands) {
        const Loop loop = graph_.loop_of(id);
        const LoopOperands in = split(loop, operands);
        const LoopPattern pattern{marks_of(in.carried), marks_of(in.shared), {}, {}};
        const std::vector<char> stepped = marks_of(in.stepped);
        std::vector<NodeId> values = in.carried, tangents = tangents_of(in.carried);
        std::vector<char> marks = pattern.carried;
        for (const LoopPart& part : pushing(loop, pattern, stepped)) {
            LoopOperands out{values, in.shared, {}, row_of(graph_, loop, in, part.first)};
            out.carried.insert(out.carried.end(), tangents.begin(), tangents.end());
            follow(out.shared, in.shared, pattern.shared);
            for (std::uint32_t k = 0; k < part.loop.count; ++k) {
                const auto given = operands_of(loop, in, part.first + k);
                out.stepped.insert(out.stepped.end(), given.begin(), given.end());
                follow(out.stepped, given, part.taken.stepped);
            }
            const NodeId header = graph_.loop(part.loop, join(out));
            for (std::uint32_t i = 0; i < loop.carried; ++i) {
                values[i] = header + 1 + i;
                tangents[i] = header + 1 + loop.carried + i;
            }
            for (std::uint32_t k = 0; k < part.loop.count; ++k)
                for (std::uint32_t i = 0; i < loop.outputs; ++i)
                    give(result_of(loop, id, part.first + k, i), result_of(part.loop, header, k, i),
                         static_cast<Mask>(part.given.outputs[i]));
            marks = part.given.carried;
        }
        for (std::uint32_t i = 0; i < loop.carried; ++i)
            give(id + 1 + i, tangents[i], static_cast<Mask>(marks[i]));
    }

    /// What moves, as marks of a LoopPattern.
    std::vector<char> marks_of(std::span<const NodeId> nodes) const {
        std::vector<char> marks;
        for (NodeId node : nodes) marks.push_back(mask(node));
        return marks;
    }

    /// Appends the tangents of those that are marked.
    void follow(std::vector<NodeId>& list, std::span<const NodeId> nodes,
                const std::vector<char>& marks) {
        for (std::size_t i = 0; i < nodes.size(); ++i)
            if (marks[i] != absent) list.push_back(tangent(nodes[i]).in(graph_));
    }

    /// Rows of the Jacobian by the function's vjp, one for each result. What is a vjp itself stands
    /// still where its cotangents are 0: a branch that is not taken may be infinite.
    void visit_custom(NodeId id, std::span<const NodeId> operands) {
        const std::shared_ptr<const Custom> custom = graph_.custom_of(id);
        if (!custom->vjp)
            throw GradError("jvp: the custom operation '" + custom->name +
                            "' has no derivative; give tg.custom a vjp");
        move_results(id, custom->results, [&](std::uint32_t row) {
            std::vector<NodeId> given(custom->results, graph_.constant(0.0));
            given[row] = graph_.constant(1.0);
            given.insert(given.end(), operands.begin(), operands.end());
            const NodeId header = graph_.custom(custom->vjp, given);
            const auto taken = operands.first(custom->cotangents);
            for (std::uint32_t i = 0; i < operands.size(); ++i) {
                const Symbol slope = symbol(header + 1 + i);
                const bool masked = !taken.empty() && i >= taken.size();
                if (moves(operands[i]))
                    along(operands[i],
                          masked ? finite_or_zero(any_nonzero(graph_, taken), slope) : slope);
            }
            return terms_.sum(graph_);
        });
    }

    /// Moves the results of a header by their tangents.
    template <class Tangent>
    void move_results(NodeId header, std::size_t count, Tangent&& tangent) {
        for (std::uint32_t i = 0; i < count; ++i) move(header + 1 + i, tangent(i));
    }

    Graph& graph_;
    /// Nodes before the first variable do not move, and no output needs those behind the last.
    const NodeId first_, end_;
    std::vector<char> needed_;
    std::vector<NodeId> tangents_, operands_;
    std::vector<Mask> masked_;
    Mask masking_ = unmasked;  ///< of the node whose turn it is
    Terms terms_;
};

}  // namespace

std::vector<NodeId> push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                         std::span<const NodeId> seeds) {
    const std::vector<Mask> masks(seeds.size(), unmasked);
    return push(graph, outputs, wrt, Derivatives{{seeds.begin(), seeds.end()}, masks}).nodes;
}

Derivatives push(Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt,
                 const Derivatives& seeds) {
    if (wrt.empty() || outputs.empty()) {
        const auto n = outputs.size();
        return {std::vector(n, graph.constant(0.0)), std::vector(n, absent)};
    }
    return Push(graph, outputs, wrt).run(outputs, wrt, seeds);
}

}  // namespace tapegrad
