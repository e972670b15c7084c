// core/scalar/execute.cpp -- runs compiled code over slots; compiled once per instruction set and
// number type.
#include "instructions.h"
#include "trait_kernels.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

template <int N, bool one>
void execute_any(const Code& code, Real* slots, int shift);

/// Where a loop starts in its table; a number that is none of its rows counts as the first.
TG_INLINE size_t first_row(const LoopCode& l, Real start) {
    const size_t row =
        start >= 0 && start < static_cast<Real>(l.rows) ? static_cast<size_t>(start) : 0;
    const bool fits = l.backward ? row + 1 >= l.count : row + l.count <= l.rows;
    return fits ? row : l.backward ? l.rows - 1 : 0;
}

/// Repeats the body in the slots behind the program's own.
template <int N, bool one, class W>
const W* loop(const Code& code, Frame<N, one> f, const W* w, Slot count, Slot which) {
    const LoopCode& l = code.loops[which];
    const Code& body = *l.body;
    const size_t bytes = sizeof(Real) * static_cast<size_t>(f.width());
    const Frame<N, one> inner{f.at(code.slots), f.shift};
    const auto fill = [&](Slot slot, double value) {
        for (int lane = 0; lane < f.width(); ++lane)
            inner.at(slot)[lane] = static_cast<Real>(value);
    };
    for (; count; --count, w += 1 + l.operands) {
        const W *carried = w + 1, *shared = carried + l.carried, *stepped = shared + l.shared;
        Slot result = w[0] + l.carried;
        for (Slot i = 0; i < l.carried; ++i)
            __builtin_memcpy(f.at(w[0] + i), f.at(carried[i]), bytes);
        for (Slot i = 0; i < body.constant_count; ++i)
            fill(body.constants[i].slot, body.constants[i].value);
        size_t row = l.columns ? first_row(l, *f.at(w[l.operands])) : 0;
        for (Slot round = 0; round < l.count; ++round) {
            const std::uint32_t* input = body.inputs;
            const auto give = [&](Slot slot) {
                if (*input != no_slot) __builtin_memcpy(inner.at(*input), f.at(slot), bytes);
                ++input;
            };
            for (Slot i = 0; i < l.carried; ++i) give(w[0] + i);
            for (Slot i = 0; i < l.shared; ++i) give(shared[i]);
            for (Slot i = 0; i < l.stepped; ++i) give(*stepped++);
            for (Slot i = 0; i < l.columns; ++i, ++input)
                if (*input != no_slot) fill(*input, l.table[row * l.columns + i]);
            row = l.backward ? row - 1 : row + 1;
            execute_any<N, one>(body, inner.slots, f.shift);
            for (Slot i = 0; i < l.carried; ++i)
                __builtin_memcpy(f.at(w[0] + i), inner.at(body.outputs[i]), bytes);
            for (Slot i = 0; i < l.outputs; ++i)
                __builtin_memcpy(f.at(result++), inner.at(body.outputs[l.carried + i]), bytes);
        }
    }
    return w;
}

template <class F, class W>
const W* custom(const Code& code, F f, const W* w, Slot count, Slot results, Slot which) {
    const CustomCode& c = code.customs[which];
    leave_vectors();  // the code outside knows nothing of them
    for (; count; --count, w += 1 + c.operands)
        c.call(c.self,
               {f.slots, f.width(), sizeof(Real) == 4, w, sizeof(W) == 4, c.operands, results});
    return w;
}

template <int N, bool one, class W>
void execute(const Code& code, Real* slots, int shift) {
    using F = Frame<N, one>;
    // Wide streams are too large for traits to matter.
    using Runs =
        std::conditional_t<sizeof(W) == 2,
                           Table<F, W, run_alone, run_dependent, run_independent, run_traits>,
                           Table<F, W, run_alone, run_dependent, run_independent>>;
    static constexpr Runs table;
    const F f{slots, shift};
    const W *w = static_cast<const W*>(code.begin), *end = static_cast<const W*>(code.end);
    while (w != end) w = table.entry[w[0]](code, f, w);
}

template <int N, bool one>
void execute_any(const Code& code, Real* slots, int shift) {
    if (code.wide)
        execute<N, one, std::uint32_t>(code, slots, shift);
    else
        execute<N, one, std::uint16_t>(code, slots, shift);
}

void run_lanes(const Code& code, Real* slots, int width) {
    if (width == native)
        execute_any<native, true>(code, slots, 0);
    else
        execute_any<native, false>(code, slots, __builtin_ctz(static_cast<unsigned>(width)));
    leave_vectors();
}

void run_single(const Code& code, Real* slots) {
    execute_any<1, true>(code, slots, 0);
    leave_vectors();
}

Real fold_one(Op op, Real first, Real second) {
    [[maybe_unused]] const Lanes<Real, 1> a(first), b(second);
    switch (op) {
#define OP1(name, pace, domain, ulp, doc, oracle, value, da) \
    case Op::name:                                           \
        return (value)[0];
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db) \
    case Op::name:                                               \
        return (value)[0];
#include "ops.def"
#undef OP1
#undef OP2
        default:
            return 0;
    }
}

}  // namespace

void run_arrays(const Code& code, Real* const* slots, int lanes);

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
extern const Kernels<Real> TG_EXPAND(kernels_, TG_REAL);
const Kernels<Real> TG_EXPAND(kernels_, TG_REAL) = {native, run_lanes, run_arrays, run_single,
                                                    fold_one};

}  // namespace TG_ISA
}  // namespace tapegrad
