// core/scalar/graph.h -- the record of a scalar computation.
//
// Append-only flat arrays: operands come before their users, so index order is a topological order
// and no walk over a graph recurses. Every node is interned: the same operation on the same
// operands is the same node. Operations on constants are folded; of the algebraic identities only
// those that cannot hide a NaN, an infinity or the sign of a zero are used (x + -0, x - 0, x * 1, x
// / 1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "ops.h"

namespace tapegrad {

class Program;
struct CustomCall;

/// Index of a node in its graph.
using NodeId = std::uint32_t;
constexpr NodeId no_node = 0xffffffff;

/// Sixteen bytes, four to a cache line: compile() walks all of them several times.
struct Node {
    std::uint32_t op_arity;  ///< op in the low 8 bits, number of operands above
    NodeId a, b, c;  ///< operands; of a pooled node: offset into the pool, attribute, unused

    Op op() const { return static_cast<Op>(op_arity & 0xff); }
    std::uint32_t arity() const { return op_arity >> 8; }
};
static_assert(sizeof(Node) == 16);

/// Numbers that a loop reads, a row a round: part of no node, so a loop is as long as it likes.
struct Table {
    std::uint32_t columns;
    std::vector<double> values;

    std::size_t rows() const { return values.size() / columns; }
};

/// A body repeated `count` times. Its inputs are the carried values, the shared ones, those of the
/// round and the round's row of the table; its outputs the carried values of the next round, and
/// results of the round. The node's operands are carried, shared, those of all rounds, and with a
/// table the number of the first row; its results the carried values, and those of all rounds.
struct Loop {
    std::uint32_t count;
    std::uint32_t carried;
    std::uint32_t stepped;  ///< operands of a round
    std::uint32_t outputs;  ///< results of a round
    std::shared_ptr<const Program> body;
    std::shared_ptr<const Table> table;  ///< or none
    bool backward = false;               ///< through the table, and the steps of a scan
    /// Of a scan: its first step here, and steps of one round; for messages only.
    std::uint32_t first_step = 0, steps = 1;

    std::uint32_t columns() const { return table ? table->columns : 0; }
    std::uint32_t shared() const;
    std::size_t operands() const;
    std::size_t results() const { return carried + std::size_t{count} * outputs; }
    auto operator<=>(const Loop&) const = default;
};

/// A function from outside that programs call.
class Custom {
   public:
    virtual ~Custom() = default;
    virtual void call(const CustomCall& call) const = 0;

    std::string name;
    std::uint32_t operands = 0, results = 0;
    std::uint32_t cotangents = 0;  ///< first operands of a vjp, with which its results are 0
    /// Of cotangents and operands to adjoints of the operands; none if it has no derivative.
    std::shared_ptr<const Custom> vjp;
};

/// A branch that was taken while recording, and with which the record stands and falls.
struct Guard {
    NodeId condition;
    bool taken;
    std::string text;   ///< the condition in words
    std::string place;  ///< file and line
};

class Example;

class Graph {
   public:
    static constexpr std::uint32_t max_arity = (1u << 24) - 1;

    std::size_t size() const { return nodes_.size(); }
    const Node& node(NodeId id) const { return nodes_[id]; }
    Op op(NodeId id) const { return nodes_[id].op(); }
    /// The operands of a node, whether in the node or in the pool.
    std::span<const NodeId> operands(NodeId id) const {
        const Node& n = nodes_[id];
        const NodeId* first = is_pooled(n.op()) ? pool_.data() + n.a : &n.a;
        return {first, n.arity()};
    }
    bool is_constant(NodeId id) const { return op(id) == Op::constant; }
    double constant_value(NodeId id) const;
    bool is_constant(NodeId id, double value) const;

    NodeId input(std::string name = {});
    std::span<const NodeId> inputs() const { return inputs_; }
    const std::string& input_name(std::uint32_t position) const {
        static const std::string nameless;
        return position < input_names_.size() ? input_names_[position] : nameless;
    }
    /// An argument of a function that is recorded as the body of a loop: no input of the graph, and
    /// of no use outside that body.
    NodeId placeholder();
    bool is_placeholder(NodeId id) const { return op(id) == Op::input && node(id).a == no_node; }
    /// Says that the function is recorded: from now on nothing may depend on its arguments.
    void leave(std::span<const NodeId> placeholders);
    /// Raises if a node depends on arguments of a function that was left. Together all calls take
    /// time in proportion to the graph, and none at all without such functions.
    void check_left(std::span<const NodeId> nodes);

    NodeId constant(double value);
    NodeId unary(Op op, NodeId a);
    NodeId binary(Op op, NodeId a, NodeId b);
    NodeId where(NodeId c, NodeId a, NodeId b);
    /// The same number as a node of its own: nothing that was recorded before depends on it, and
    /// nothing that does not ask for it by its number will.
    NodeId apart(NodeId a);
    /// A node of one to three operands, neither folded nor its operands put in order.
    NodeId as_it_is(Op op, std::span<const NodeId> operands);
    /// A node with its operands in the pool and one result.
    NodeId nary(Op op, std::span<const NodeId> operands, std::uint32_t attribute = 0);
    /// A node with `results` results; result i is node `header + 1 + i`.
    NodeId multi(Op op, std::span<const NodeId> operands, std::uint32_t results,
                 std::uint32_t attribute = 0);
    NodeId loop(const Loop& loop, std::span<const NodeId> operands);
    const Loop& loop_of(NodeId id) const { return loops_[nodes_[id].b]; }
    NodeId custom(const std::shared_ptr<const Custom>& custom, std::span<const NodeId> operands);
    const std::shared_ptr<const Custom>& custom_of(NodeId id) const {
        return customs_[nodes_[id].b];
    }
    /// How many results a node has that are taken by projections.
    std::uint32_t results(NodeId id) const;

    /// Adds a guard, once per condition.
    void guard(Guard guard);
    std::span<const Guard> guards() const { return guards_; }

    /// Whether nobody can differentiate by a node, so that sums of derivatives may leave it out: in
    /// 3 * (2 * x) the product 2 * x, if that was made for derivatives alone.
    bool is_hidden(NodeId id) const {
        const auto edge = std::upper_bound(hidden_.begin(), hidden_.end(), id);
        return (edge - hidden_.begin()) % 2 == 1 && !shown_.contains(id);
    }
    /// Makes all nodes known, those to come too: graphs that others record in. In all other graphs
    /// all nodes are hidden.
    void show_all() { hidden_.clear(); }
    /// Makes a node known.
    void show(NodeId id) {
        if (hidden_.empty()) return;
        if (op(id) == Op::neg || op(id) == Op::mul) shown_.insert(id);  // no other is left out
    }
    /// Hides what is recorded in its lifetime.
    class Hiding {
       public:
        explicit Hiding(Graph& graph) : graph_(graph), first_(graph.size()) {
            graph_.hidden_.push_back(static_cast<NodeId>(first_));
        }
        ~Hiding() {
            if (graph_.size() == first_)
                graph_.hidden_.pop_back();
            else
                graph_.hidden_.push_back(static_cast<NodeId>(graph_.size()));
        }
        Hiding(const Hiding&) = delete;
        Hiding& operator=(const Hiding&) = delete;

       private:
        Graph& graph_;
        std::size_t first_;
    };

    /// The same node with operands of this graph; an input becomes the next input here.
    NodeId copy(const Graph& source, NodeId id, std::span<const NodeId> operands);
    /// The interned node of a unary operation, or no_node if nobody recorded it.
    NodeId find_unary(Op op, NodeId a) const;
    NodeId find_loop(const Loop& loop, std::span<const NodeId> operands) const;

    /// A copy to read from, not to add to: without the table, which is most of a graph's memory.
    Graph compact() const;
    /// A copy of a graph without loops to add to, with room for so many nodes.
    Graph copy(std::size_t room) const;
    /// Whether nodes can be found and added: not in a compact copy.
    bool is_growing() const { return !table_.empty(); }

    std::size_t bytes() const;
    void reserve(std::size_t nodes);

    /// Where new nodes are recorded, as a number; asked for every node if it is given.
    std::uint32_t (*here)() = nullptr;
    /// What `here` said of a node; no_node without it.
    std::uint32_t place(NodeId id) const { return id < places_.size() ? places_[id] : no_node; }
    /// Says the same of a node as `source` does of its own.
    void copy_place(NodeId id, const Graph& source, NodeId from);
    /// Values for branches; none unless they are to be frozen.
    std::shared_ptr<Example> example;

   private:
    NodeId push(const Node& node);
    NodeId intern(const Node& node);
    bool needs_left(NodeId id) const;
    /// Looks at all nodes before `end`.
    void look(NodeId end);
    /// The place in the table of a node that is the `same`, or of none.
    template <class Same>
    std::size_t find(std::uint32_t hash, Same&& same) const;
    template <class Same>
    NodeId lookup(std::uint32_t hash, Same&& same) const;
    std::uint32_t hash(const Node& node) const;
    void grow();
    void rehash(std::size_t size);
    /// Puts a node that is new to the table into it.
    void enter(NodeId id);

    std::vector<Node> nodes_;
    std::vector<NodeId> pool_;
    /// Numbers that were asked for last: derivatives ask for the same few again and again.
    struct Recent {
        std::uint64_t bits = 0;
        NodeId id = no_node;
    };
    Recent recent_[8];
    std::vector<NodeId> table_;  ///< open addressing, at most half full
    std::size_t interned_ = 0;
    std::vector<NodeId> inputs_;
    std::vector<std::string> input_names_;
    std::vector<Loop> loops_;
    std::map<Loop, std::uint32_t> loop_numbers_;
    std::vector<std::shared_ptr<const Custom>> customs_;
    std::vector<Guard> guards_;
    std::unordered_set<NodeId> guarded_;
    std::vector<NodeId> hidden_{0};     ///< where nodes begin to be hidden, end, begin, ...
    std::unordered_set<NodeId> shown_;  ///< those among them that are known
    std::vector<std::uint32_t> places_;
    std::vector<char> left_;  ///< what depends on such arguments, of the nodes looked at so far
};

}  // namespace tapegrad
