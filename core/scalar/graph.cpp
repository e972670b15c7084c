// core/scalar/graph.cpp -- recording: interning, folding, growing.
#include "graph.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "../errors.h"
#include "kernels.h"
#include "program.h"

namespace tapegrad {
namespace {

constexpr std::uint64_t mix = 0x9e3779b97f4a7c15;

std::uint64_t stir(std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * mix;
    return hash ^ (hash >> 32);
}

std::uint32_t op_arity(Op op, std::size_t arity) {
    return static_cast<std::uint32_t>(op) | static_cast<std::uint32_t>(arity) << 8;
}

bool commutes(Op op) { return op == Op::add || op == Op::mul || op == Op::eq || op == Op::ne; }

[[noreturn]] void throw_left() {
    throw GraphError(
        "scan: an argument of the step function was used outside of it; return what is needed as a "
        "carried value or as an output of the step");
}

}  // namespace

std::uint32_t Loop::shared() const {
    return body->code().input_count - carried - stepped - columns();
}

std::size_t Loop::operands() const {
    return std::size_t{carried} + shared() + std::size_t{count} * stepped + (table ? 1 : 0);
}

double Graph::constant_value(NodeId id) const {
    const Node& n = nodes_[id];
    return std::bit_cast<double>(std::uint64_t{n.b} << 32 | n.a);
}

bool Graph::is_constant(NodeId id, double value) const {
    return is_constant(id) &&
           std::bit_cast<std::uint64_t>(constant_value(id)) == std::bit_cast<std::uint64_t>(value);
}

NodeId Graph::push(const Node& node) {
    if (nodes_.size() >= no_node - 1)
        throw GraphError("graph: more than 4,294,967,294 nodes; split the computation");
    nodes_.push_back(node);
    if (here) [[unlikely]] {
        places_.resize(nodes_.size() - 1, no_node);
        places_.push_back(here());
    }
    return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Graph::input(std::string name) {
    NodeId id = push({op_arity(Op::input, 0), static_cast<NodeId>(inputs_.size()), 0, 0});
    inputs_.push_back(id);
    input_names_.push_back(std::move(name));
    return id;
}

NodeId Graph::placeholder() { return push({op_arity(Op::input, 0), no_node, 0, 0}); }

bool Graph::needs_left(NodeId id) const {
    const auto of = operands(id);
    return std::any_of(of.begin(), of.end(), [&](NodeId operand) { return left_[operand]; });
}

void Graph::look(NodeId end) {
    for (auto id = static_cast<NodeId>(left_.size()); id < end; ++id)
        left_.push_back(needs_left(id));
}

void Graph::leave(std::span<const NodeId> placeholders) {
    if (placeholders.empty()) return;
    look(static_cast<NodeId>(size()));
    for (NodeId id : placeholders) left_[id] = true;
    for (NodeId id = *std::min_element(placeholders.begin(), placeholders.end()); id < size(); ++id)
        left_[id] |= needs_left(id);
}

void Graph::check_left(std::span<const NodeId> nodes) {
    if (left_.empty()) return;
    for (NodeId id : nodes) {
        look(id + 1);
        if (left_[id]) throw_left();
    }
}

NodeId Graph::constant(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    Recent& recent = recent_[(bits >> 50) % std::size(recent_)];
    if (recent.id == no_node || recent.bits != bits)
        recent = {bits, intern({op_arity(Op::constant, 0), static_cast<NodeId>(bits),
                                static_cast<NodeId>(bits >> 32), 0})};
    return recent.id;
}

NodeId Graph::unary(Op op, NodeId a) {
    if (is_constant(a)) return constant(fold(op, constant_value(a), 0.0));
    return intern({op_arity(op, 1), a, 0, 0});
}

NodeId Graph::binary(Op op, NodeId a, NodeId b) {
    if (is_constant(a) && is_constant(b))
        return constant(fold(op, constant_value(a), constant_value(b)));
    if (commutes(op) && b < a) std::swap(a, b);
    switch (op) {
        case Op::add:
            if (is_constant(b, -0.0)) return a;
            if (is_constant(a, -0.0)) return b;
            break;
        case Op::sub:
            if (is_constant(b, 0.0)) return a;
            break;
        case Op::mul:
            if (is_constant(b, 1.0)) return a;
            if (is_constant(a, 1.0)) return b;
            break;
        case Op::div:
            if (is_constant(b, 1.0)) return a;
            break;
        default:
            break;
    }
    return intern({op_arity(op, 2), a, b, 0});
}

NodeId Graph::where(NodeId c, NodeId a, NodeId b) {
    if (a == b) return a;
    if (is_constant(c)) return constant_value(c) != 0.0 ? a : b;
    return intern({op_arity(Op::where, 3), c, a, b});
}

NodeId Graph::nary(Op op, std::span<const NodeId> operands, std::uint32_t attribute) {
    if (operands.size() > max_arity)
        throw GraphError(std::string(info(op).name) + ": at most 16,777,215 operands, got " +
                         std::to_string(operands.size()) + "; combine partial results");
    // The candidate lies at the pool's end while it is compared, and stays there only if it is new.
    auto offset = static_cast<NodeId>(pool_.size());
    if (pool_.size() + operands.size() > no_node)
        throw GraphError("graph: more than 4,294,967,295 operands; split the computation");
    pool_.insert(pool_.end(), operands.begin(), operands.end());
    auto before = nodes_.size();
    NodeId id = intern({op_arity(op, operands.size()), offset, attribute, 0});
    if (nodes_.size() == before) pool_.resize(offset);
    return id;
}

NodeId Graph::multi(Op op, std::span<const NodeId> operands, std::uint32_t results,
                    std::uint32_t attribute) {
    auto before = nodes_.size();
    NodeId header = nary(op, operands, attribute);
    if (nodes_.size() != before)
        for (std::uint32_t i = 0; i < results; ++i)
            push({op_arity(Op::projection, 1), header, i, 0});
    return header;
}

NodeId Graph::loop(const Loop& loop, std::span<const NodeId> operands) {
    if (loop.operands() > max_arity || loop.results() > max_arity)
        throw GraphError(
            "loop: more than 16,777,215 operands or results of all rounds together; sum results up "
            "in the carried values, and leave the checkpoint of a long scan small");
    const auto next = static_cast<std::uint32_t>(loops_.size());
    const auto [number, is_new] = loop_numbers_.try_emplace(loop, next);
    if (is_new) loops_.push_back(loop);
    return multi(Op::loop, operands, static_cast<std::uint32_t>(loop.results()), number->second);
}

NodeId Graph::find_loop(const Loop& loop, std::span<const NodeId> operands) const {
    const auto found = loop_numbers_.find(loop);
    if (found == loop_numbers_.end()) return no_node;
    std::uint64_t h = stir(op_arity(Op::loop, operands.size()), found->second);
    for (NodeId operand : operands) h = stir(h, operand);
    return lookup(static_cast<std::uint32_t>(h >> 24), [&](const Node& other) {
        return other.op() == Op::loop && other.b == found->second &&
               std::equal(operands.begin(), operands.end(), pool_.data() + other.a);
    });
}

NodeId Graph::custom(const std::shared_ptr<const Custom>& custom,
                     std::span<const NodeId> operands) {
    const auto found = std::find(customs_.begin(), customs_.end(), custom);
    const auto number = static_cast<std::uint32_t>(found - customs_.begin());
    if (found == customs_.end()) customs_.push_back(custom);
    return multi(Op::custom, operands, custom->results, number);
}

std::uint32_t Graph::results(NodeId id) const {
    switch (op(id)) {
        case Op::softmax:
            return node(id).arity();
        case Op::softmax_vjp:
            return node(id).arity() / 2;
        case Op::loop:
            return static_cast<std::uint32_t>(loop_of(id).results());
        case Op::custom:
            return custom_of(id)->results;
        default:
            return 0;
    }
}

void Graph::copy_place(NodeId id, const Graph& source, NodeId from) {
    if (source.places_.empty()) return;
    if (places_.size() <= id) places_.resize(id + 1, no_node);
    places_[id] = source.place(from);
}

void Graph::guard(Guard guard) {
    if (guarded_.insert(guard.condition).second) guards_.push_back(std::move(guard));
}

NodeId Graph::copy(const Graph& source, NodeId id, std::span<const NodeId> operands) {
    const Node& n = source.node(id);
    switch (n.op()) {
        case Op::input:
            if (source.is_placeholder(id)) throw_left();
            return input(source.input_name(n.a));
        case Op::projection:
            return operands[0] + 1 + n.b;
        case Op::softmax:
        case Op::softmax_vjp:
            return multi(n.op(), operands, source.results(id));
        case Op::loop:
            return loop(source.loop_of(id), operands);
        case Op::custom:
            return custom(source.custom_of(id), operands);
        default:
            break;
    }
    if (is_pooled(n.op())) return nary(n.op(), operands, n.b);
    if (n.op() == Op::constant) return constant(source.constant_value(id));
    return as_it_is(n.op(), operands);  // folding has been done in the source
}

NodeId Graph::as_it_is(Op op, std::span<const NodeId> operands) {
    Node node{op_arity(op, operands.size()), operands[0], 0, 0};
    if (operands.size() > 1) node.b = operands[1];
    if (operands.size() > 2) node.c = operands[2];
    return intern(node);
}

std::uint32_t Graph::hash(const Node& node) const {
    std::uint64_t h = stir(node.op_arity, node.b);
    if (is_pooled(node.op())) {
        const NodeId* p = pool_.data() + node.a;
        for (std::uint32_t i = 0, n = node.arity(); i < n; ++i) h = stir(h, p[i]);
    } else {
        h = stir(h, std::uint64_t{node.a} << 32 | node.c);
    }
    return static_cast<std::uint32_t>(h >> 24);
}

template <class Same>
std::size_t Graph::find(std::uint32_t hash, Same&& same) const {
    const std::size_t mask = table_.size() - 1;
    std::size_t i = hash & mask;
    while (table_[i] != no_node && !same(nodes_[table_[i]])) i = (i + 1) & mask;
    return i;
}

template <class Same>
NodeId Graph::lookup(std::uint32_t hash, Same&& same) const {
    return table_.empty() ? no_node : table_[find(hash, same)];
}

NodeId Graph::intern(const Node& node) {
    if (interned_ * 2 >= table_.size()) grow();
    const bool pooled = is_pooled(node.op());
    const std::size_t place = find(hash(node), [&](const Node& other) {
        if (other.op_arity != node.op_arity || other.b != node.b) return false;
        if (!pooled) return other.a == node.a && other.c == node.c;
        return std::equal(pool_.data() + node.a, pool_.data() + node.a + node.arity(),
                          pool_.data() + other.a);
    });
    if (table_[place] != no_node) return table_[place];
    ++interned_;
    return table_[place] = push(node);
}

NodeId Graph::find_unary(Op op, NodeId a) const {
    Node node{op_arity(op, 1), a, 0, 0};
    return lookup(hash(node), [&](const Node& other) {
        return other.op_arity == node.op_arity && other.a == a;
    });
}

// A node that is not in the table cannot be found, nor can what is made of it.
NodeId Graph::apart(NodeId a) { return unary(Op::neg, push({op_arity(Op::neg, 1), a, 0, 0})); }

/// Small tables grow in large steps: most of the time goes into placing nodes again.
void Graph::grow() {
    constexpr std::size_t first = 256, small = 16 * 1024;
    rehash(table_.empty() ? first : table_.size() * (table_.size() < small ? 4 : 2));
}

void Graph::rehash(std::size_t size) {
    std::vector<NodeId> old(size, no_node);
    old.swap(table_);
    for (NodeId id : old)
        if (id != no_node) enter(id);
}

void Graph::enter(NodeId id) {
    table_[find(hash(nodes_[id]), [](const Node&) { return false; })] = id;
}

void Graph::reserve(std::size_t nodes) {
    nodes_.reserve(nodes);
    pool_.reserve(nodes);
    if (std::size_t size = std::bit_ceil(nodes * 2); size > table_.size()) rehash(size);
}

Graph Graph::compact() const {
    Graph out;
    out.nodes_ = nodes_;
    out.pool_ = pool_;
    out.inputs_ = inputs_;
    out.input_names_ = input_names_;
    out.loops_ = loops_;
    out.customs_ = customs_;
    out.places_ = places_;
    return out;
}

Graph Graph::copy(std::size_t room) const {
    Graph out = compact();
    out.reserve(room);
    for (NodeId id : table_)
        if (id != no_node) out.enter(id);
    out.interned_ = interned_;
    return out;
}

std::size_t Graph::bytes() const {
    return nodes_.capacity() * sizeof(Node) + (pool_.capacity() + table_.capacity()) * 4;
}

}  // namespace tapegrad
