// core/scalar/symbol.h -- expressions over graph nodes, so that the derivative column of ops.def is
// C++ text: `y * (1.0 - y)` on Symbols records those nodes.
#pragma once

#include "graph.h"

namespace tapegrad {

/// A node, or a number that becomes a node of whatever graph it meets.
struct Symbol {
    Graph* graph = nullptr;
    NodeId id = no_node;
    double number = 0.0;

    Symbol(double value) : number(value) {}
    Symbol(Graph& g, NodeId node) : graph(&g), id(node) {}

    NodeId in(Graph& g) const { return graph ? id : g.constant(number); }
    bool is(double value) const { return graph ? graph->is_constant(id, value) : number == value; }
};

inline Symbol record(Op op, const Symbol& a) { return {*a.graph, a.graph->unary(op, a.id)}; }
inline Symbol record(Op op, const Symbol& a, const Symbol& b) {
    Graph& g = a.graph ? *a.graph : *b.graph;
    NodeId first = a.in(g), second = b.in(g);
    return {g, g.binary(op, first, second)};
}
inline Symbol where(const Symbol& c, const Symbol& a, const Symbol& b) {
    Graph& g = *c.graph;
    NodeId first = a.in(g), second = b.in(g);
    return {g, g.where(c.id, first, second)};
}

#define OP1(name, ...) \
    inline Symbol name(const Symbol& a) { return record(Op::name, a); }
#define OP2(name, ...) \
    inline Symbol name(const Symbol& a, const Symbol& b) { return record(Op::name, a, b); }
#include "ops.def"
#undef OP1
#undef OP2

inline Symbol operator-(const Symbol& a) { return neg(a); }
inline Symbol operator+(const Symbol& a, const Symbol& b) { return add(a, b); }
inline Symbol operator-(const Symbol& a, const Symbol& b) { return sub(a, b); }
inline Symbol operator*(const Symbol& a, const Symbol& b) { return mul(a, b); }
/// A reciprocal by its own divisor is its square, which takes no second division.
inline Symbol operator/(const Symbol& a, const Symbol& b) {
    if (a.graph && b.graph && a.graph->op(a.id) == Op::div) {
        const auto operands = a.graph->operands(a.id);
        if (a.graph->is_constant(operands[0], 1.0) && operands[1] == b.id) return a * a;
    }
    return div(a, b);
}
inline Symbol operator<(const Symbol& a, const Symbol& b) { return lt(a, b); }
inline Symbol operator>(const Symbol& a, const Symbol& b) { return gt(a, b); }
inline Symbol operator==(const Symbol& a, const Symbol& b) { return eq(a, b); }
inline Symbol operator!=(const Symbol& a, const Symbol& b) { return ne(a, b); }

}  // namespace tapegrad
