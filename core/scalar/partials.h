// core/scalar/partials.h -- the derivative columns of the op table over nodes of the caller's
// choice.
#pragma once

#include <array>

#include "symbol.h"

namespace tapegrad {

/// The derivatives of y = op(a, b) by a and b, with y a node of its own: what was computed once
/// need not be computed again. The second is 0 for operations of one operand.
inline std::array<Symbol, 2> partials(Op op, [[maybe_unused]] const Symbol& a,
                                      [[maybe_unused]] const Symbol& b,
                                      [[maybe_unused]] const Symbol& y) {
    switch (op) {
#define OP1(name, pace, domain, ulp, doc, oracle, value, da) \
    case Op::name:                                           \
        return {Symbol(da), Symbol(0.0)};
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db) \
    case Op::name:                                               \
        return {Symbol(da), Symbol(db)};
#include "ops.def"
#undef OP1
#undef OP2
        default:
            return {Symbol(0.0), Symbol(0.0)};
    }
}

/// The same, by the result alone where that is far cheaper: over arrays it is saved anyway. Such a
/// slope is as exact as the result, and so not beside numbers that are far smaller than that, as
/// the table's are: tanh has slope 0 at 20, as in PyTorch.
inline std::array<Symbol, 2> partials_over_arrays(Op op, const Symbol& a, const Symbol& b,
                                                  const Symbol& y) {
    switch (op) {
        case Op::tanh:
            return {1.0 - y * y, Symbol(0.0)};
        case Op::sigmoid:
            return {y - y * y, Symbol(0.0)};
        default:
            return partials(op, a, b, y);
    }
}

}  // namespace tapegrad
