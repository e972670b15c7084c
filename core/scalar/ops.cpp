// core/scalar/ops.cpp -- the operation records, printed from ops.def.
#include "ops.h"

namespace tapegrad {
namespace {

constexpr OpInfo structural(const char* name, int arity, const char* doc) {
    return {name, arity, false, "real", 2, doc, "", "", ""};
}

#define PACE_vector true
#define PACE_scalar false
#define OP1(name, pace, domain, ulp, doc, oracle, value, da) \
    {#name, 1, PACE_##pace, #domain, ulp, doc, oracle, #da, ""},
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db) \
    {#name, 2, PACE_##pace, #domain, ulp, doc, oracle, #da, #db},

constexpr OpInfo infos[op_count] = {
    structural("input", 0, "a variable of the graph"),
    structural("constant", 0, "a number"),
    structural("projection", 1, "one result of a node with several"),
#include "ops.def"
    structural("where", 3, "a where c is not 0, else b; the branch not taken gets adjoint 0"),
    structural("sum", -1, "sum of the operands"),
    structural("dot", -1, "sum of products of two sequences"),
    structural("sumdot", -1, "plain terms plus products"),
    structural("prod", -1, "product of the operands"),
    structural("max", -1, "largest operand; ties share the derivative equally"),
    structural("min", -1, "smallest operand; ties share the derivative equally"),
    structural("logsumexp", -1, "log(exp a_1 + ... + exp a_n) without overflow"),
    structural("softmax", -1, "exp(a_i) / (exp a_1 + ... + exp a_n), a list of n results"),
    structural("softmax_vjp", -1, "y_i * (g_i - dot(y, g)), a list of n results"),
    structural("loop", -1, "a body program repeated, carrying values"),
    structural("custom", -1, "a function of the user's own"),
};
#undef OP1
#undef OP2

constexpr Op elementwise[] = {
#define OP1(name, ...) Op::name,
#define OP2(name, ...) Op::name,
#include "ops.def"
#undef OP1
#undef OP2
};

}  // namespace

const OpInfo& info(Op op) { return infos[static_cast<int>(op)]; }
std::span<const Op> elementwise_ops() { return elementwise; }

}  // namespace tapegrad
