// core/scalar/graph.h -- the record of a scalar computation.
//
// Append-only flat arrays: operands come before their users, so index order is a topological order
// and no walk over a graph recurses. Every node is interned: the same operation on the same
// operands is the same node. Operations on constants are folded; of the algebraic identities only
// those that cannot hide a NaN, an infinity or the sign of a zero are used (x + -0, x - 0, x * 1, x
// / 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops.h"

namespace tapegrad {

class Program;

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

/// A body repeated `count` times: its inputs are the carried values and then the shared ones, its
/// outputs the carried values of the next round.
struct Loop {
    std::uint32_t count;
    std::uint32_t carried;
    std::shared_ptr<const Program> body;
};

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
    const std::string& input_name(std::uint32_t position) const { return input_names_[position]; }

    NodeId constant(double value);
    NodeId unary(Op op, NodeId a);
    NodeId binary(Op op, NodeId a, NodeId b);
    NodeId where(NodeId c, NodeId a, NodeId b);
    /// A node with its operands in the pool and one result.
    NodeId nary(Op op, std::span<const NodeId> operands, std::uint32_t attribute = 0);
    /// A node with `results` results; result i is node `header + 1 + i`.
    NodeId multi(Op op, std::span<const NodeId> operands, std::uint32_t results,
                 std::uint32_t attribute = 0);
    NodeId loop(Loop loop, std::span<const NodeId> operands);
    const Loop& loop_of(NodeId id) const { return loops_[nodes_[id].b]; }

    /// The same node with operands of this graph; an input becomes the next input here.
    NodeId copy(const Graph& source, NodeId id, std::span<const NodeId> operands);
    /// The interned node of a unary operation, or no_node if nobody recorded it.
    NodeId find_unary(Op op, NodeId a) const;

    /// A copy to read from, not to add to: without the table, which is most of a graph's memory.
    Graph compact() const;

    std::size_t bytes() const;
    void reserve(std::size_t nodes);

   private:
    NodeId push(const Node& node);
    NodeId intern(const Node& node);
    template <class Same>
    NodeId lookup(std::uint32_t hash, Same&& same) const;
    std::uint32_t hash(const Node& node) const;
    void insert(NodeId id);
    void rehash(std::size_t size);

    std::vector<Node> nodes_;
    std::vector<NodeId> pool_;
    std::vector<NodeId> table_;  ///< open addressing, at most half full
    std::size_t interned_ = 0;
    std::vector<NodeId> inputs_;
    std::vector<std::string> input_names_;
    std::vector<Loop> loops_;
};

}  // namespace tapegrad
