// core/scalar/execute_arrays.cpp -- runs pinned programs, whose slots lie in a caller's arrays;
// compiled once per instruction set and number type.
#include "instructions.h"
#include "uniform.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

using Word = std::uint16_t;
using L = Scattered::L;

/// The operands of an instruction; those whose bits are set in `uniform` are loaded once.
template <std::uint32_t uniform, Slot count>
struct Operands {
    L once[count];
    const Real* at[count];

    TG_METHOD Operands(Scattered f, const Word* w) {
        for (Slot i = 0; i < count; ++i) {
            at[i] = f.slots[w[i]];
            if (uniform >> i & 1) once[i] = L::load(at[i]);
        }
    }
    TG_METHOD L load(Slot i, int lane) const {
        return uniform >> i & 1 ? once[i] : L::load(at[i] + lane);
    }
};

/// result = value(operand), `operand` a function of an operand's place.
template <std::uint32_t uniform, Slot count, class Function>
TG_INLINE const Word* with_uniform_operands(Scattered f, const Word* w, Function value) {
    const Operands<uniform, count> operands(f, w + 2);
    Real* result = f.slots[w[1]];
    for (int lane = 0; lane < f.lanes; lane += native)
        value([&](Slot i) TG_LAMBDA { return operands.load(i, lane); }).store(result + lane);
    return w + 2 + count;
}

#define OP1(...)
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)                        \
    template <int place>                                                                \
    const Word* uniform_##name(const Code&, Scattered f, const Word* w) {               \
        return with_uniform_operands<1u << place, 2>(f, w, [](auto operand) TG_LAMBDA { \
            const L a = operand(0), b = operand(1);                                     \
            return L(value);                                                            \
        });                                                                             \
    }
#include "ops.def"
#undef OP1
#undef OP2

template <int p, int q, std::uint32_t uniform>
const Word* uniform_sumdot(const Code&, Scattered f, const Word* w) {
    return with_uniform_operands<uniform, p + 2 * q>(f, w, [](auto operand) TG_LAMBDA {
        return ordered_sum<L>(p + q, [&](Slot i) TG_LAMBDA {
            if (static_cast<int>(i) < p) return operand(i);
            const Slot pair = p + 2 * (i - p);
            return operand(pair) * operand(pair + 1);
        });
    });
}

/// Kernels by an instruction's first word.
struct PinnedTable {
    using Function = Table<Scattered, Word, run_alone>::Function;
    Function entry[pinned_kernel_count]{};

    constexpr PinnedTable() {
        const Table<Scattered, Word, run_alone> plain;
        for (int i = 0; i < kernel_count; ++i) entry[i] = plain.entry[i];
#define OP1(...)
#define OP2(name, ...)                                                          \
    entry[kernel_uniform + 2 * static_cast<int>(Op::name)] = uniform_##name<0>; \
    entry[kernel_uniform + 2 * static_cast<int>(Op::name) + 1] = uniform_##name<1>;
#include "ops.def"
#undef OP1
#undef OP2
        set_sums<0, 1>();
    }
    template <int p, int q, std::uint32_t uniform = 1>
    constexpr void set_sums() {
        if constexpr (has_uniform_sum(p, q, uniform))
            entry[uniform_sum(p, q, uniform)] = uniform_sumdot<p, q, uniform>;
        if constexpr (uniform + 1 < 1u << uniform_operands)
            set_sums<p, q, uniform + 1>();
        else if constexpr (q < uniform_terms)
            set_sums<p, q + 1>();
        else if constexpr (p < uniform_terms)
            set_sums<p + 1, 0>();
    }
};

}  // namespace

void run_arrays(const Code& code, Real* const* slots, int lanes);

void run_arrays(const Code& code, Real* const* slots, int lanes) {
    static constexpr PinnedTable table;
    const Scattered f{slots, lanes};
    const Word *w = static_cast<const Word*>(code.begin), *end = static_cast<const Word*>(code.end);
    while (w != end) w = table.entry[w[0]](code, f, w);
    leave_vectors();
}

}  // namespace TG_ISA
}  // namespace tapegrad
