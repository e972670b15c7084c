// core/scalar/lower.cpp -- from graph nodes to instructions over values.
//
// 1. Dead code: only what the outputs reach is lowered.
// 2. A product or square that is used once, by a sum, becomes a pair of that sum: add, mul, sum,
//    dot and sumdot all become one kernel, `p` plain terms and `q` pairs. One that is used once, by
//    a difference, becomes part of that. Products and sums are rounded one by one as before, so
//    this changes no bits of an addition.
// 3. Functions that share their costly part are computed together where both are live: softplus
//    with sigmoid (its derivative), sin with cos.
// 4. Sums of more than `chunk` terms become trees of chunks. A chunk is computed right behind its
//    last operand, while the operands are in the cache, and their slots are free again early;
//    rounding errors of long sums grow with the logarithm of their length.
#include "lower.h"

#include <algorithm>
#include <unordered_map>

#include "loops.h"

namespace tapegrad {
namespace {

constexpr std::size_t chunk = 16;

struct Pairing {
    Op first, second;
    Kernel kernel;
};
constexpr Pairing pairings[] = {{Op::softplus, Op::sigmoid, kernel_softplus_sigmoid},
                                {Op::sin, Op::cos, kernel_sincos}};

class Lowering {
   public:
    Lowering(const Graph& graph, std::span<const NodeId> outputs) : graph_(graph) {
        mark_live(outputs);
    }

    Lowered run(std::span<const NodeId> outputs, std::span<const std::uint32_t> input_position,
                std::uint32_t input_count) {
        out_.inputs.assign(input_count, no_value);
        value_.assign(graph_.size(), no_value);
        out_.instructions.reserve(out_.live_nodes);
        out_.operands.reserve(out_.live_nodes * 3);
        for (NodeId id = 0; id < uses_.size(); ++id)
            if (uses_[id] && !absorbed_[id]) visit(id, input_position);
        for (NodeId id : outputs) out_.outputs.push_back(value_[id]);
        return std::move(out_);
    }

   private:
    /// Counts uses, and finds products that are used once, by a sum or difference.
    void mark_live(std::span<const NodeId> outputs) {
        NodeId top = 0;
        for (NodeId id : outputs) top = std::max(top, id + 1);
        uses_.assign(top, 0);
        absorbed_.assign(top, false);
        // An output counts twice: it must keep a value of its own.
        for (NodeId id : outputs) uses_[id] += 2;
        for (NodeId id = top; id-- > 0;) {
            if (!uses_[id]) continue;
            ++out_.live_nodes;
            // All users come behind a node: its uses are known by now.
            absorbed_[id] = absorbed_[id] && uses_[id] == 1 && is_product(id);
            for (NodeId operand : graph_.operands(id)) ++uses_[operand];
            for (NodeId operand : plain_terms(id)) absorbed_[operand] = true;
            if (graph_.op(id) == Op::sub) absorbed_[product_side(id)] = true;
        }
    }

    bool is_product(NodeId id) const {
        return graph_.op(id) == Op::mul || graph_.op(id) == Op::square;
    }

    /// The side of a difference that may become part of it: one of them only.
    NodeId product_side(NodeId id) const {
        const Node& difference = graph_.node(id);
        return is_product(difference.b) ? difference.b : difference.a;
    }

    /// The factors of a product or square.
    std::pair<NodeId, NodeId> factors(NodeId id) const {
        const Node& node = graph_.node(id);
        return in_order(node.a, node.op() == Op::square ? node.a : node.b);
    }

    /// A constant factor is the second one, where the traits of runs look for it.
    std::pair<NodeId, NodeId> in_order(NodeId a, NodeId b) const {
        return graph_.is_constant(a) ? std::pair(b, a) : std::pair(a, b);
    }

    /// The operands of a sum that may be products themselves; none for other nodes.
    std::span<const NodeId> plain_terms(NodeId id) const {
        auto operands = graph_.operands(id);
        switch (graph_.op(id)) {
            case Op::add:
            case Op::sum:
                return operands;
            case Op::sumdot:
                return operands.first(graph_.node(id).b);
            default:
                return {};
        }
    }

    void visit(NodeId id, std::span<const std::uint32_t> input_position) {
        const Op op = graph_.op(id);
        auto operands = graph_.operands(id);
        switch (op) {
            case Op::input:
                value_[id] = out_.inputs[input_position[graph_.node(id).a]] = out_.values++;
                return;
            case Op::constant:
                out_.constants.push_back({out_.values, graph_.constant_value(id)});
                value_[id] = out_.values++;
                return;
            case Op::projection:
                value_[id] = projected(operands[0], graph_.node(id).b);
                return;
            case Op::add:
            case Op::sum:
            case Op::sumdot:
            case Op::mul:
            case Op::dot:
                value_[id] = lower_sum(id);
                return;
            case Op::sub:
                value_[id] = lower_difference(operands[0], operands[1]);
                return;
            case Op::softmax_vjp:
                // derive() gives it the results of one softmax as y, so they are in a row.
                value_[id] =
                    emit(static_cast<int>(op), operands, half(operands), 0, half(operands));
                return;
            case Op::softmax:
                value_[id] =
                    emit(static_cast<int>(op), operands, size(operands), 0, size(operands));
                return;
            case Op::loop:
                return lower_loop(id);
            case Op::custom:
                out_.customs.push_back(graph_.custom_of(id));
                value_[id] = emit(static_cast<int>(op), operands, graph_.results(id),
                                  size(out_.customs) - 1, graph_.results(id));
                return;
            default:
                break;
        }
        for (const Pairing& pairing : pairings)
            if ((op == pairing.first || op == pairing.second) && lower_pair(id, pairing)) return;
        value_[id] = emit(static_cast<int>(op), operands, size(operands), 0, 1);
    }

    /// A loop whose twin is live, too, is computed by it: the twin's rounds have more results.
    void lower_loop(NodeId id) {
        if (value_[id] != no_value) return;
        const NodeId twin = twin_of(graph_, id);
        if (twin == no_node || twin >= uses_.size() || !uses_[twin]) return emit_loop(id);
        twin_[id] = twin;
        emit_loop(twin);
    }

    void emit_loop(NodeId id) {
        if (value_[id] != no_value) return;
        const Loop& loop = graph_.loop_of(id);
        out_.loops.push_back(&loop);
        value_[id] = emit(static_cast<int>(Op::loop), graph_.operands(id), graph_.results(id),
                          size(out_.loops) - 1, graph_.results(id));
    }

    /// The value of result `k` of a header.
    ValueId projected(NodeId header, std::uint32_t k) const {
        const auto twin = twin_.find(header);
        if (twin == twin_.end()) return value_[header] + k;
        return value_[twin->second] + twin_result(graph_.loop_of(header), k);
    }

    /// True if `id` was computed together with its partner, now or before.
    bool lower_pair(NodeId id, const Pairing& pairing) {
        if (value_[id] != no_value) return true;
        auto operands = graph_.operands(id);
        const bool is_first = graph_.op(id) == pairing.first;
        NodeId partner = graph_.find_unary(is_first ? pairing.second : pairing.first, operands[0]);
        if (partner == no_node || partner >= uses_.size() || !uses_[partner]) return false;
        ValueId both = emit(pairing.kernel, operands, 1, 0, 2);
        value_[is_first ? id : partner] = both;
        value_[is_first ? partner : id] = both + 1;
        return true;
    }

    ValueId lower_difference(NodeId a, NodeId b) {
        if (absorbed_[b]) {
            const auto [first, second] = factors(b);
            const NodeId operands[] = {a, first, second};
            return emit(kernel_sub_product, operands, 3, 0, 1);
        }
        if (absorbed_[a]) {
            const auto [first, second] = factors(a);
            const NodeId operands[] = {first, second, b};
            return emit(kernel_product_sub, operands, 3, 0, 1);
        }
        const NodeId operands[] = {a, b};
        return emit(static_cast<int>(Op::sub), operands, 2, 0, 1);
    }

    ValueId lower_sum(NodeId id) {
        plain_.clear();
        pairs_.clear();
        auto operands = graph_.operands(id);
        auto terms = plain_terms(id);
        for (NodeId operand : terms) {
            if (absorbed_[operand])
                push_pair(factors(operand));
            else
                plain_.push_back(value_[operand]);
        }
        const auto pairs = operands.subspan(terms.size());
        for (std::size_t k = 0; k < pairs.size(); k += 2)
            push_pair(in_order(pairs[k], pairs[k + 1]));
        split_long();
        return emit_sum(plain_, pairs_, false);
    }

    void push_pair(std::pair<NodeId, NodeId> factors) {
        pairs_.push_back(value_[factors.first]);
        pairs_.push_back(value_[factors.second]);
    }

    /// Replaces full chunks of terms by partial sums until one chunk is left.
    void split_long() {
        if (pairs_.size() / 2 + plain_.size() <= chunk) return;
        while (pairs_.size() / 2 + plain_.size() > chunk) {
            std::vector<ValueId> partial;
            auto pieces = [&](std::vector<ValueId>& values, std::size_t width, bool paired) {
                std::size_t at = 0;
                for (; at + chunk * width <= values.size(); at += chunk * width) {
                    std::span<const ValueId> piece(values.data() + at, chunk * width);
                    partial.push_back(paired ? emit_sum({}, piece, true)
                                             : emit_sum(piece, {}, true));
                }
                values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at));
            };
            pieces(plain_, 1, false);
            pieces(pairs_, 2, true);
            if (partial.empty()) {  // fewer than a chunk of each kind
                partial.push_back(emit_sum({}, pairs_, true));
                pairs_.clear();
            }
            plain_.insert(plain_.end(), partial.begin(), partial.end());
        }
    }

    ValueId emit_sum(std::span<const ValueId> plain, std::span<const ValueId> pairs, bool early) {
        const std::uint32_t p = size(plain), q = half(pairs);
        const bool small = p <= small_terms && q <= small_terms;
        Instruction i{};
        i.kernel = static_cast<std::uint16_t>(
            small ? kernel_sumdot_small + p * (small_terms + 1) + q : static_cast<int>(Op::sumdot));
        i.early = early;
        i.n = p;
        i.m = q;
        i.operands = static_cast<std::uint32_t>(out_.operands.size());
        i.words = p + 2 * q;
        out_.operands.insert(out_.operands.end(), plain.begin(), plain.end());
        out_.operands.insert(out_.operands.end(), pairs.begin(), pairs.end());
        return push(i, 1);
    }

    ValueId emit(int kernel, std::span<const NodeId> operands, std::uint32_t n, std::uint32_t m,
                 std::uint32_t results) {
        Instruction i{};
        i.kernel = static_cast<std::uint16_t>(kernel);
        i.n = n;
        i.m = m;
        i.operands = static_cast<std::uint32_t>(out_.operands.size());
        i.words = size(operands);
        for (NodeId operand : operands) out_.operands.push_back(value_[operand]);
        return push(i, results);
    }

    ValueId push(Instruction& instruction, std::uint32_t results) {
        instruction.first_result = out_.values;
        instruction.results = results;
        out_.values += results;
        out_.instructions.push_back(instruction);
        return instruction.first_result;
    }

    template <class Span>
    static std::uint32_t size(const Span& span) {
        return static_cast<std::uint32_t>(span.size());
    }
    template <class Span>
    static std::uint32_t half(const Span& span) {
        return size(span) / 2;
    }

    const Graph& graph_;
    Lowered out_;
    std::vector<std::uint32_t> uses_;
    std::vector<char> absorbed_;
    std::vector<ValueId> value_;
    std::vector<ValueId> plain_, pairs_;
    std::unordered_map<NodeId, NodeId> twin_;  ///< loops that are computed by another
};

}  // namespace

Lowered lower(const Graph& graph, std::span<const NodeId> outputs,
              std::span<const std::uint32_t> input_position, std::uint32_t input_count) {
    return Lowering(graph, outputs).run(outputs, input_position, input_count);
}

}  // namespace tapegrad
