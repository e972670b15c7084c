// core/tensor/maps.cpp -- loops over arrays; compiled once per instruction set and number type.
#include "maps.h"

#include "../scalar/maths.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

using Real = TG_REAL;
constexpr std::size_t native = native_lanes<Real>;
using L = Lanes<Real, native>;

/// As in execute.cpp: vector registers' upper halves are cleared once, at the end.
TG_INLINE void leave_vectors() {
#if defined(__AVX__)
    _mm256_zeroupper();
#endif
}

/// A tail runs through a vector of its own, filled up with ones: the same code, the same bits.
template <class Function>
TG_INLINE void over(const Real* a, const Real* b, Real* y, std::size_t n, Function value) {
    std::size_t i = 0;
    for (; i + native <= n; i += native) value(L::load(a + i), L::load(b + i)).store(y + i);
    if (i == n) return;
    Real tail[3][native];
    for (std::size_t k = 0; k < native; ++k) {
        tail[0][k] = i + k < n ? a[i + k] : Real(1);
        tail[1][k] = i + k < n ? b[i + k] : Real(1);
    }
    value(L::load(tail[0]), L::load(tail[1])).store(tail[2]);
    for (std::size_t k = 0; i + k < n; ++k) y[i + k] = tail[2][k];
}

#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                  \
    void map_##name(const Real* first, const Real*, Real* y, std::size_t n) { \
        over(first, first, y, n, [](L a, L) TG_LAMBDA { return L(value); });  \
        leave_vectors();                                                      \
    }
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)                     \
    void map_##name(const Real* first, const Real* second, Real* y, std::size_t n) { \
        over(first, second, y, n, [](L a, L b) TG_LAMBDA { return L(value); });      \
        leave_vectors();                                                             \
    }
#include "../scalar/ops.def"
#undef OP1
#undef OP2

constexpr Maps<Real> table() {
    Maps<Real> out{};
#define OP1(name, ...) out.op[static_cast<std::size_t>(Op::name)] = &map_##name;
#define OP2(name, ...) OP1(name)
#include "../scalar/ops.def"
#undef OP1
#undef OP2
    return out;
}

}  // namespace

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
extern const Maps<Real> TG_EXPAND(maps_, TG_REAL);
constinit const Maps<Real> TG_EXPAND(maps_, TG_REAL) = table();

}  // namespace TG_ISA
}  // namespace tapegrad
