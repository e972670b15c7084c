// core/scalar/rates.cpp -- splits the nodes of a program by how often they change.
//
// Rows must have the bits that they have without shared inputs. So a product that lowering makes
// part of a sum stays with that sum, and so does a softmax with the vjp that wants its results in a
// row; only their operands are computed once.
#include "rates.h"

#include <algorithm>

namespace tapegrad {
namespace {

class Splitter {
   public:
    Splitter(Expanded nodes, std::span<const char> is_shared)
        : nodes_(std::move(nodes)), graph_(nodes_.graph) {
        find_shared(is_shared);
        count_uses();
        // Users come behind their operands: one sweep back finds what each of them needs.
        hoisted_.assign(graph_.size(), false);
        in_rows_.assign(graph_.size(), false);
        for (NodeId id : nodes_.targets) need(id);
        for (auto id = static_cast<NodeId>(graph_.size()); id-- > 0;)
            if (in_rows_[id]) {
                hoisted_[id] = false;  // some user wants it there
                for (NodeId operand : graph_.operands(id)) need(operand, id);
            }
    }

    bool is_possible() const {
        for (NodeId id = 0; id < graph_.size(); ++id)
            if (graph_.op(id) == Op::loop) return false;
        return std::find(hoisted_.begin(), hoisted_.end(), char(true)) != hoisted_.end();
    }

    Split parts(const Program& program) const {
        Graph once, rows;
        std::vector<NodeId> once_inputs, rows_inputs;
        for (const std::string& name : program.input_names()) {
            once_inputs.push_back(once.input(name));
            rows_inputs.push_back(rows.input(name));
        }
        const std::vector<NodeId> in_once = copy(once, once_inputs, shared_, {});
        std::vector<NodeId> in_rows(graph_.size(), no_node), results;
        for (NodeId id = 0; id < graph_.size(); ++id)
            if (hoisted_[id]) {
                results.push_back(in_once[id]);
                rows_inputs.push_back(in_rows[id] = rows.input());
            }
        in_rows = copy(rows, rows_inputs, in_rows_, std::move(in_rows));
        std::vector<NodeId> targets;
        for (NodeId id : nodes_.targets) targets.push_back(in_rows[id]);
        return {
            Program::compile(once, results, {}, false, once_inputs),
            Program::restore(rows, targets, program.values(), program.derivatives(), rows_inputs)};
    }

   private:
    void find_shared(std::span<const char> is_shared) {
        shared_.assign(graph_.size(), true);
        for (NodeId id = 0; id < graph_.size(); ++id)
            if (graph_.op(id) == Op::input)
                shared_[id] = is_shared[nodes_.positions[graph_.node(id).a]];
            else
                for (NodeId operand : graph_.operands(id)) shared_[id] &= shared_[operand];
    }

    void count_uses() {
        uses_.assign(graph_.size(), 0);
        for (NodeId id = 0; id < graph_.size(); ++id)
            for (NodeId operand : graph_.operands(id)) ++uses_[operand];
        for (NodeId id : nodes_.targets) uses_[id] += 2;
    }

    /// Puts a node where `user`, one of the rows' part, finds it; no_node: the results.
    void need(NodeId id, NodeId user = no_node) {
        const Op op = graph_.op(id);
        const bool stays = !shared_[id] || op == Op::input || op == Op::constant ||
                           op == Op::softmax || belongs_to(id, user);
        (stays ? in_rows_ : hoisted_)[id] = true;
    }

    bool belongs_to(NodeId id, NodeId user) const {
        if (user == no_node) return false;
        const Op op = graph_.op(id), of = graph_.op(user);
        const bool is_sum = of == Op::add || of == Op::sum || of == Op::sumdot;
        const bool is_product = op == Op::mul || op == Op::square;
        // Of a shared vjp that another takes results of, all is hoisted: a result alone, without
        // the node that it is a result of, cannot be.
        const bool is_probability =
            op == Op::projection && graph_.op(graph_.operands(id)[0]) == Op::softmax;
        return (of == Op::softmax_vjp && is_probability) ||
               (is_sum && is_product && uses_[id] == 1);
    }

    /// Nodes of one part as a graph of their own; `now` has those that are there already.
    std::vector<NodeId> copy(Graph& to, const std::vector<NodeId>& inputs,
                             const std::vector<char>& which, std::vector<NodeId> now) const {
        now.resize(graph_.size(), no_node);
        std::vector<NodeId> operands;
        for (NodeId id = 0; id < graph_.size(); ++id) {
            if (!which[id] || now[id] != no_node) continue;
            if (graph_.op(id) == Op::input) {
                now[id] = inputs[nodes_.positions[graph_.node(id).a]];
                continue;
            }
            operands.clear();
            for (NodeId operand : graph_.operands(id)) operands.push_back(now[operand]);
            now[id] = to.copy(graph_, id, operands);
        }
        return now;
    }

    Expanded nodes_;
    const Graph& graph_;
    std::vector<char> shared_, hoisted_, in_rows_;
    std::vector<std::uint32_t> uses_;
};

}  // namespace

Split split(const Program& program, std::span<const char> is_shared) {
    // Branches are checked, and functions from outside called, by the program as a whole.
    if (program.code().guard_count || program.code().calls) return {};
    const Splitter splitter(program.expanded(), is_shared);
    if (!splitter.is_possible()) return {};
    Split parts = splitter.parts(program);
    if (parts.rows->stats().instructions >= program.stats().instructions) return {};
    return parts;
}

}  // namespace tapegrad
