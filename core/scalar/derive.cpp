// core/scalar/derive.cpp -- reverse-mode differentiation.
//
// 1. Mark what depends on `wrt` (active). Nothing else receives contributions.
// 2. Sweep from the output down. When a node is reached all its users have contributed, so its
//    adjoint is finished at once as one node: a sum of plain terms g and products g * d. That node
//    (sumdot) is what the executors run fastest, and it needs no accumulation in place.
// 3. The node then contributes to its operands: elementwise operations by the derivative text of
//    ops.def, the others by the rules below.
//
// Masks: the branch that `where` does not take gets the adjoint 0, and 0 times an infinite or NaN
// derivative further up must stay 0. So below a `where` products are masked_mul, whose first factor
// wins when it is 0; everywhere else they are plain products. Its derivative by the second factor
// is masked_both, where either factor wins, and whose derivatives are masked_both again: so the
// same holds for derivatives of any order. All of them are derivatives of a * b, also where a
// factor is 0 by itself. Masks go through loops as through the steps written out.
//
// Of masked_mul(u, log(v)), as in the derivative of pow, u has an infinite adjoint at v = 0, and a
// factor of 0 on the way from u to the variables wins against it: powers vanish faster than
// logarithms grow. That way leads through sums and products, and ends behind the first function.
#include "derive.h"

#include <algorithm>
#include <limits>

#include "../errors.h"
#include "loops.h"
#include "program.h"
#include "terms.h"

namespace tapegrad {
namespace {

class Sweep {
   public:
    Sweep(Graph& graph, std::span<const NodeId> wrt) : graph_(graph), wrt_(wrt) { mark_active(); }

    Derivatives run(std::span<const NodeId> outputs, const Derivatives& given) {
        heads_.assign(active_.size(), none);
        masked_.assign(active_.size(), unmasked);
        terms_.clear();
        NodeId last = 0;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (outputs[i] >= active_.size() || !active_[outputs[i]]) continue;
            give(outputs[i], given.nodes[i], given.masks[i]);
            last = std::max(last, outputs[i]);
        }
        if (!terms_.empty()) sweep(last);
        Derivatives adjoints;
        const NodeId zero = graph_.constant(0.0);
        for (NodeId id : wrt_) {
            const NodeId found = finished_[id];
            adjoints.nodes.push_back(found == no_node ? zero : found);
            adjoints.masks.push_back(found == no_node ? absent : masked_[id]);
        }
        for (NodeId id : wrt_) finished_[id] = no_node;  // the next outputs have their own
        return adjoints;
    }

   private:
    static constexpr std::uint32_t none = 0xffffffff;
    /// The terms of one node are a list.
    struct Link {
        std::uint32_t next;
        Term term;
    };

    void mark_active() {
        active_.assign(graph_.size(), false);
        finished_.assign(graph_.size(), no_node);
        is_wrt_.assign(graph_.size(), false);
        lowest_ = static_cast<NodeId>(graph_.size());
        for (NodeId id : wrt_) {
            active_[id] = is_wrt_[id] = true;
            lowest_ = std::min(lowest_, id);
        }
        for (NodeId id = lowest_; id < active_.size(); ++id)
            if (!active_[id])
                for (NodeId operand : graph_.operands(id))
                    if (active_[operand]) {
                        active_[id] = true;
                        break;
                    }
    }

    void sweep(NodeId output) {
        for (NodeId id = output;; --id) {
            if (graph_.op(id) == Op::projection) {
                // Its header collects the adjoints of all its projections.
                if (is_wrt_[id] && heads_[id] != none) finish(id);
                NodeId header = graph_.node(id).a;
                if (heads_[id] != none && heads_[header] == none) heads_[header] = reached;
            } else if (heads_[id] != none) {
                contribute(id);
            }
            if (id == lowest_) break;
        }
    }

    // ---- contributions ------------------------------------------------------------------------

    void add_term(NodeId to, const Term& term) {
        terms_.push_back({heads_[to], term});
        heads_[to] = static_cast<std::uint32_t>(terms_.size() - 1);
        mask(to, crossing_ ? masking_ : std::min(masking_, by_adjoint));
    }

    void mask(NodeId id, Mask mask) { masked_[id] = std::max(masked_[id], mask); }

    /// g as it is.
    void plain(NodeId to, const Symbol& g) {
        if (active_[to]) add_term(to, {g.in(graph_), no_node});
    }

    void product(NodeId to, NodeId g, const Symbol& d) {
        if (!active_[to] || d.is(0.0)) return;
        if (masking_ == by_both && d.graph && !graph_.is_constant(d.id))
            plain(to, masked_both(symbol(g), d));
        else
            add_term(to, tapegrad::product(graph_, g, d, masking_ != unmasked));
    }

    /// The adjoint of a node from its collected terms.
    NodeId finish(NodeId id) {
        if (is_wrt_[id] && finished_[id] != no_node) return finished_[id];
        for (std::uint32_t t = heads_[id]; t != none && t != reached; t = terms_[t].next)
            collected_.add(terms_[t].term);
        NodeId adjoint = collected_.sum(graph_);
        if (is_wrt_[id]) finished_[id] = adjoint;
        return adjoint;
    }

    // ---- rules --------------------------------------------------------------------------------

    Symbol symbol(NodeId id) { return {graph_, id}; }

    void contribute(NodeId id) {
        const Op op = graph_.op(id);
        // Copied: recording nodes moves the arrays that operands() looks into.
        auto seen = graph_.operands(id);
        operands_.assign(seen.begin(), seen.end());
        masking_ = masked_[id];
        if (op == Op::masked_mul) masking_ = std::max(masking_, by_adjoint);
        if (op == Op::masked_both) masking_ = by_both;
        crossing_ = is_linear(op);
        switch (op) {
            case Op::softmax:
            case Op::softmax_vjp:
                return contribute_multi(id, op);
            case Op::loop:
                return contribute_loop(id);
            case Op::custom:
                return contribute_custom(id);
            default:
                break;
        }
        const NodeId g = finish(id);
        if (op == Op::masked_mul) return contribute_masked_mul(g);
        if (op == Op::masked_both) return contribute_masked_both(g);
        switch (op) {
#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                    \
    case Op::name: {                                                            \
        [[maybe_unused]] const Symbol a = symbol(operands_[0]), y = symbol(id); \
        if (active_[operands_[0]]) product(operands_[0], g, da);                \
        break;                                                                  \
    }
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)                \
    case Op::name: {                                                            \
        [[maybe_unused]] const Symbol a = symbol(operands_[0]);                 \
        [[maybe_unused]] const Symbol b = symbol(operands_[1]), y = symbol(id); \
        if (active_[operands_[0]]) product(operands_[0], g, da);                \
        if (active_[operands_[1]]) product(operands_[1], g, db);                \
        break;                                                                  \
    }
#include "ops.def"
#undef OP1
#undef OP2
            case Op::where: {
                masking_ = std::max(masking_, by_adjoint);
                const Symbol c = symbol(operands_[0]), zero = 0.0;
                if (active_[operands_[1]]) plain(operands_[1], where(c, symbol(g), zero));
                if (active_[operands_[2]]) plain(operands_[2], where(c, zero, symbol(g)));
                break;
            }
            case Op::sum:
                for (NodeId operand : operands_) plain(operand, symbol(g));
                break;
            case Op::dot:
                pair_products(g, 0);
                break;
            case Op::sumdot: {
                std::uint32_t p = graph_.node(id).b;
                for (std::uint32_t i = 0; i < p; ++i) plain(operands_[i], symbol(g));
                pair_products(g, p);
                break;
            }
            case Op::prod:
                contribute_prod(g);
                break;
            case Op::max:
            case Op::min:
                contribute_extreme(id, g);
                break;
            case Op::logsumexp: {
                NodeId header = graph_.multi(Op::softmax, operands_,
                                             static_cast<std::uint32_t>(operands_.size()));
                for (std::uint32_t i = 0; i < operands_.size(); ++i)
                    product(operands_[i], g, symbol(header + 1 + i));
                break;
            }
            default:
                break;  // inputs and constants
        }
    }

    void contribute_masked_mul(NodeId g) {
        const Symbol a = symbol(operands_[0]), b = symbol(operands_[1]);
        product(operands_[0], g, b);
        if (active_[operands_[1]]) plain(operands_[1], masked_both(symbol(g), a));
        if (is_log(operands_[1])) mask(operands_[0], by_both);
    }

    void contribute_masked_both(NodeId g) {
        const Symbol a = symbol(operands_[0]), b = symbol(operands_[1]);
        if (active_[operands_[0]]) plain(operands_[0], masked_both(symbol(g), b));
        if (active_[operands_[1]]) plain(operands_[1], masked_both(symbol(g), a));
    }

    /// A logarithm that may be infinite, or that of 0 itself, which is a constant.
    bool is_log(NodeId id) const {
        if (graph_.op(id) == Op::log) return true;
        constexpr double log_of_0 = -std::numeric_limits<double>::infinity();
        return graph_.is_constant(id) && graph_.constant_value(id) == log_of_0;
    }

    /// Sums and products, and what chooses between them.
    static bool is_linear(Op op) {
        switch (op) {
            case Op::neg:
            case Op::add:
            case Op::sub:
            case Op::mul:
            case Op::masked_mul:
            case Op::masked_both:
            case Op::where:
            case Op::sum:
            case Op::dot:
            case Op::sumdot:
                return true;
            default:
                return false;
        }
    }

    void pair_products(NodeId g, std::uint32_t first) {
        for (std::size_t i = first; i + 1 < operands_.size(); i += 2) {
            product(operands_[i], g, symbol(operands_[i + 1]));
            product(operands_[i + 1], g, symbol(operands_[i]));
        }
    }

    void contribute_prod(NodeId g) {
        const std::vector<NodeId> operands = operands_;
        const std::vector<NodeId> others = products_of_others(graph_, operands);
        for (std::size_t i = 0; i < others.size(); ++i) product(operands[i], g, symbol(others[i]));
    }

    void contribute_extreme(NodeId id, NodeId g) {
        std::vector<NodeId> hit;
        for (NodeId operand : operands_) hit.push_back(graph_.binary(Op::eq, operand, id));
        const Symbol share = symbol(g) / symbol(graph_.nary(Op::sum, hit));
        for (std::size_t i = 0; i < hit.size(); ++i)
            if (active_[operands_[i]])
                plain(operands_[i], where(symbol(hit[i]), share, Symbol(0.0)));
    }

    /// y_i (g_i - sum_j y_j g_j). The matrix diag(y) - y y' is symmetric, so the same rule carries
    /// an adjoint back through softmax and through the g operands of softmax_vjp.
    void softmax_rule(std::span<const NodeId> y, std::span<const NodeId> g,
                      std::span<const NodeId> to) {
        const auto n = static_cast<std::uint32_t>(y.size());
        if (masking_) {
            const Symbol mean = dot(g, y);
            for (std::uint32_t i = 0; i < n; ++i)
                plain(to[i], masked_mul(symbol(g[i]) - mean, symbol(y[i])));
            return;
        }
        std::vector<NodeId> both(y.begin(), y.end());
        both.insert(both.end(), g.begin(), g.end());
        NodeId header = graph_.multi(Op::softmax_vjp, both, n);
        for (std::uint32_t i = 0; i < n; ++i) plain(to[i], symbol(header + 1 + i));
    }

    void contribute_multi(NodeId id, Op op) {
        const std::uint32_t results = graph_.results(id);
        const std::vector<NodeId> operands = operands_;
        const std::vector<NodeId> h = finish_all(id);
        if (op == Op::softmax) {
            std::vector<NodeId> y;
            for (std::uint32_t i = 0; i < results; ++i) y.push_back(id + 1 + i);
            softmax_rule(y, h, operands);
            return;
        }
        const std::span<const NodeId> y(operands.data(), results),
            g(operands.data() + results, results);
        softmax_rule(y, h, g);
        contribute_to_y(h, y, g);
    }

    /// The y operands of y_i (g_i - sum_j y_j g_j): h_i (g_i - y.g) - (h.y) g_i.
    void contribute_to_y(std::span<const NodeId> h, std::span<const NodeId> y,
                         std::span<const NodeId> g) {
        const Symbol yg = dot(y, g), hy = dot(h, y);
        for (std::size_t i = 0; i < y.size(); ++i)
            if (active_[y[i]])
                plain(y[i], times(symbol(h[i]), symbol(g[i]) - yg) - times(hy, symbol(g[i])));
    }

    /// The adjoints of all results of a header, 0 where there are none.
    std::vector<NodeId> finish_all(NodeId header) {
        std::vector<NodeId> h;
        for (std::uint32_t i = 0, n = graph_.results(header); i < n; ++i) {
            masking_ = std::max(masking_, masked_[header + 1 + i]);
            h.push_back(finish(header + 1 + i));
        }
        return h;
    }

    /// A loop over the same rounds from the last to the first (see loops.h).
    void contribute_loop(NodeId id) {
        const Loop loop = graph_.loop_of(id);
        const std::vector<NodeId> operands = operands_;
        const LoopOperands in = split(loop, operands);
        const Derivatives h = finish_results(id);
        const std::vector<char> marks(h.masks.begin(), h.masks.end());
        const auto outputs = std::span(marks).subspan(loop.carried);
        LoopPattern pattern;
        pattern.carried.assign(marks.begin(), marks.begin() + loop.carried);
        for (NodeId node : in.shared) pattern.shared.push_back(active_[node] ? unmasked : absent);
        pattern.stepped.assign(loop.stepped, absent);
        for (std::size_t i = 0; i < in.stepped.size(); ++i)
            if (active_[in.stepped[i]]) pattern.stepped[i % loop.stepped] = unmasked;

        const Loop twin = storing(loop);
        const NodeId stored = graph_.loop(twin, operands);
        std::vector<NodeId> carried(h.nodes.begin(), h.nodes.begin() + loop.carried), sums;
        std::vector<char> carried_marks = pattern.carried, shared_marks(in.shared.size(), absent);
        for (char mark : pattern.shared)
            if (mark != absent) sums.push_back(graph_.constant(0.0));
        for (const LoopPart& part : pulling(loop, pattern, outputs)) {
            const std::uint32_t end = part.first + part.loop.count;
            LoopOperands out{carried, in.shared, {}, row_of(graph_, loop, in, end - 1)};
            out.carried.insert(out.carried.end(), sums.begin(), sums.end());
            for (std::uint32_t round = end; round-- > part.first;) {
                for (std::uint32_t i = 0; i < loop.carried; ++i)
                    out.stepped.push_back(result_of(twin, stored, round, loop.outputs + i));
                const auto given = operands_of(loop, in, round);
                out.stepped.insert(out.stepped.end(), given.begin(), given.end());
                for (std::uint32_t i = 0; i < loop.outputs; ++i)
                    if (part.taken.outputs[i] != absent)
                        out.stepped.push_back(h.nodes[loop.carried + round * loop.outputs + i]);
            }
            const NodeId header = graph_.loop(part.loop, join(out));
            NodeId result = header + 1;
            for (NodeId& node : carried) node = result++;
            for (NodeId& node : sums) node = result++;
            carried_marks = part.given.carried;
            for (std::size_t i = 0; i < shared_marks.size(); ++i)
                shared_marks[i] = std::max(shared_marks[i], part.given.shared[i]);
            for (std::uint32_t round = part.first; round < end; ++round)
                for (std::uint32_t i = 0, k = 0; i < loop.stepped; ++i)
                    if (pattern.stepped[i] != absent)
                        give(operands_of(loop, in, round)[i],
                             result_of(part.loop, header, end - 1 - round, k++),
                             part.given.stepped[i]);
        }
        for (std::uint32_t i = 0; i < loop.carried; ++i)
            give(in.carried[i], carried[i], carried_marks[i]);
        auto sum = sums.begin();
        for (std::size_t i = 0; i < in.shared.size(); ++i)
            if (pattern.shared[i] != absent) give(in.shared[i], *sum++, shared_marks[i]);
    }

    /// The adjoints of all results of a header, each with its mask.
    Derivatives finish_results(NodeId header) {
        Derivatives h;
        for (std::uint32_t i = 0, n = graph_.results(header); i < n; ++i) {
            const NodeId id = header + 1 + i;
            h.masks.push_back(heads_[id] == none ? absent : masked_[id]);
            h.nodes.push_back(finish(id));
        }
        return h;
    }

    /// An adjoint as a loop gives it, with the mask that its body found.
    void give(NodeId to, NodeId adjoint, char mark) {
        if (mark == absent) return;
        masking_ = static_cast<Mask>(mark);
        crossing_ = true;
        plain(to, symbol(adjoint));
    }

    void contribute_custom(NodeId id) {
        const std::shared_ptr<const Custom> custom = graph_.custom_of(id);
        if (!custom->vjp)
            throw GradError("grad: the custom operation '" + custom->name +
                            "' has no derivative; give tg.custom a vjp");
        const std::vector<NodeId> operands = operands_, h = finish_all(id);
        std::vector<NodeId> given = h;
        given.insert(given.end(), operands.begin(), operands.end());
        const NodeId header = graph_.custom(custom->vjp, given);
        const std::span<const NodeId> all = operands, taken = all.first(custom->cotangents);
        for (std::uint32_t i = 0; i < operands.size(); ++i) {
            const Symbol adjoint = symbol(header + 1 + i);
            if (!masking_)
                plain(operands[i], adjoint);
            else if (i < taken.size() || taken.empty())
                plain(operands[i], finite_or_zero(any_nonzero(graph_, h), adjoint));
            else
                plain(operands[i],
                      finite_or_zero(any_nonzero(graph_, h) * any_nonzero(graph_, taken), adjoint));
        }
    }

    /// a * b, masked by a where products have to be.
    Symbol times(const Symbol& a, const Symbol& b) { return masking_ ? masked_mul(a, b) : a * b; }

    Symbol dot(std::span<const NodeId> a, std::span<const NodeId> b) {
        std::vector<NodeId> terms;
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (masking_) {
                terms.push_back(graph_.binary(Op::masked_mul, a[i], b[i]));
            } else {
                terms.push_back(a[i]);
                terms.push_back(b[i]);
            }
        }
        return symbol(graph_.nary(masking_ ? Op::sum : Op::dot, terms));
    }

    /// Marks a header whose projections have terms.
    static constexpr std::uint32_t reached = 0xfffffffe;

    Graph& graph_;
    std::span<const NodeId> wrt_;
    std::vector<char> active_, is_wrt_;
    std::vector<Mask> masked_;
    std::vector<NodeId> finished_;  ///< adjoints of wrt nodes
    std::vector<std::uint32_t> heads_;
    std::vector<Link> terms_;
    Terms collected_;
    std::vector<NodeId> operands_;
    NodeId lowest_ = 0;
    Mask masking_ = unmasked;  ///< of the node whose turn it is
    bool crossing_ = false;    ///< whether by_both goes on to its operands
};

}  // namespace

std::vector<std::vector<NodeId>> derive(Graph& graph, std::span<const NodeId> outputs,
                                        std::span<const NodeId> wrt) {
    std::vector<std::vector<NodeId>> rows;
    Sweep sweep(graph, wrt);
    const Derivatives one{{graph.constant(1.0)}, {unmasked}};
    for (const NodeId& output : outputs) rows.push_back(sweep.run({&output, 1}, one).nodes);
    return rows;
}

Derivatives derive(Graph& graph, std::span<const NodeId> outputs, const Derivatives& given,
                   std::span<const NodeId> wrt) {
    return Sweep(graph, wrt).run(outputs, given);
}

}  // namespace tapegrad
