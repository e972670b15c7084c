// core/scalar/ops.h -- the operations as an enum and as data, derived from ops.def.
#pragma once

#include <cstdint>
#include <span>

namespace tapegrad {

/// Every kind of graph node. Elementwise operations come from ops.def; the rest take part in the
/// structure of a graph (inputs, several results) or any number of operands.
enum class Op : std::uint8_t {
    input,       ///< attribute: its position among the graph's inputs
    constant,    ///< attribute: the bits of a double
    projection,  ///< one result of a node with several; attribute: which
#define OP1(name, ...) name,
#define OP2(name, ...) name,
#include "ops.def"
#undef OP1
#undef OP2
    where,        ///< where(c, a, b): a where c is not 0, else b
    sum,          ///< a_1 + ... + a_n
    dot,          ///< a_1 b_1 + ... + a_n b_n, operands in pairs
    sumdot,       ///< attribute p: p plain terms, then pairs; what adjoints are made of
    prod,         ///< a_1 * ... * a_n
    max,          ///< the largest; ties share the derivative equally
    min,          ///< the smallest; ties share the derivative equally
    logsumexp,    ///< log(exp a_1 + ... + exp a_n)
    softmax,      ///< n results: exp(a_i) / sum_j exp(a_j)
    softmax_vjp,  ///< operands y_1..y_n, g_1..g_n; n results: y_i (g_i - sum_j y_j g_j)
    loop,         ///< attribute: which loop of the graph; results: carried values, then rounds'
    custom,       ///< attribute: which function of the graph; any number of results
    count_
};

constexpr int op_count = static_cast<int>(Op::count_);

/// What the table says of an operation, for Python, the docs and the tests.
struct OpInfo {
    const char* name;
    int arity;  ///< -1: any number of operands
    bool vector_pace;
    const char* domain;
    int ulp;
    const char* doc;
    const char* oracle;
    const char* da;
    const char* db;
};

/// The record of an operation.
const OpInfo& info(Op op);
/// The elementwise operations, in the order of ops.def.
std::span<const Op> elementwise_ops();
/// Whether operands lie in the graph's operand pool rather than in the node.
constexpr bool is_pooled(Op op) { return op >= Op::sum; }
/// Whether the node stands for several results, each taken by a projection.
constexpr bool has_projections(Op op) { return op >= Op::softmax; }

}  // namespace tapegrad
