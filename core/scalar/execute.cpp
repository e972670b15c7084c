// core/scalar/execute.cpp -- runs compiled code; compiled once per instruction set and number type.
//
// The same kernel text serves every width: N lanes per vector for batches, one lane for a single
// evaluation, and vectors gathered from a run of independent instructions (packs). Since a lane's
// arithmetic does not depend on N, single and batch give the same bits.
//
// Sums are taken in a fixed order, whatever the width: four accumulators, term i into i % 4, then
// (s0 + s1) + (s2 + s3).
#include "kernels.h"
#include "maths.h"

#define TG_LAMBDA __attribute__((always_inline))

namespace tapegrad {
namespace TG_ISA {
namespace {

using Real = TG_REAL;
using Word = std::uint32_t;
constexpr int native = native_lanes<Real>;

/// Below this magnitude exp neither overflows nor underflows, so softmax needs no shift.
constexpr Real exp_safe = sizeof(Real) == 8 ? 300.0 : 40.0;

/// The slots of one evaluation, seen through vectors of N lanes. N = 1 means one lane in all.
template <int N>
struct Frame {
    using L = Lanes<Real, N>;
    Real* slots;
    int lanes;

    TG_METHOD int width() const { return N == 1 ? 1 : lanes; }
    TG_METHOD L load(Word slot, int lane) const {
        return L::load(slots + static_cast<size_t>(slot) * width() + lane);
    }
    TG_METHOD void store(Word slot, int lane, L value) const {
        value.store(slots + static_cast<size_t>(slot) * width() + lane);
    }
};

/// Calls body(words, lane) for every instruction of the run and every vector of lanes.
template <int N, class Body>
TG_INLINE const Word* each(Frame<N> f, const Word* w, Word count, Word words, Body body) {
    for (; count; --count, w += words)
        for (int lane = 0; lane < f.width(); lane += N) body(w, lane);
    return w;
}

/// Sum of `n` terms in the fixed order; n is a compile-time constant wherever it is small.
template <class L, class Term>
TG_INLINE L ordered_sum(Word n, Term term) {
    if (n == 1) return term(0);
    if (n == 2) return term(0) + term(1);
    if (n == 3) return (term(0) + term(1)) + term(2);
    L s0 = term(0), s1 = term(1), s2 = term(2), s3 = term(3);
    Word i = 4;
    for (; i + 4 <= n; i += 4) {
        s0 = s0 + term(i);
        s1 = s1 + term(i + 1);
        s2 = s2 + term(i + 2);
        s3 = s3 + term(i + 3);
    }
    if (i < n) s0 = s0 + term(i);
    if (i + 1 < n) s1 = s1 + term(i + 1);
    if (i + 2 < n) s2 = s2 + term(i + 2);
    return (s0 + s1) + (s2 + s3);
}

template <int N, class F>
TG_INLINE const Word* unary(Frame<N> f, const Word* w, Word count, F value) {
    return each(f, w, count, 2, [&](const Word* r, int lane) {
        f.store(r[0], lane, value(f.load(r[1], lane)));
    });
}

template <int N, class F>
TG_INLINE const Word* binary(Frame<N> f, const Word* w, Word count, F value) {
    return each(f, w, count, 3, [&](const Word* r, int lane) {
        f.store(r[0], lane, value(f.load(r[1], lane), f.load(r[2], lane)));
    });
}

template <int N>
TG_INLINE const Word* where(Frame<N> f, const Word* w, Word count) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 4, [&](const Word* r, int lane) {
        f.store(r[0], lane,
                select(f.load(r[1], lane) != L(0), f.load(r[2], lane), f.load(r[3], lane)));
    });
}

template <int N, class F>
TG_INLINE const Word* paired(Frame<N> f, const Word* w, Word count, F both) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 3, [&](const Word* r, int lane) {
        L first, second;
        both(f.load(r[2], lane), first, second);
        f.store(r[0], lane, first);
        f.store(r[1], lane, second);
    });
}

template <int N>
TG_INLINE const Word* sumdot(Frame<N> f, const Word* w, Word count, Word p, Word q) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 1 + p + 2 * q, [&](const Word* r, int lane) {
        f.store(r[0], lane, ordered_sum<L>(p + q, [&](Word i) TG_LAMBDA {
            if (i < p) return f.load(r[1 + i], lane);
            const Word* pair = r + 1 + p + 2 * (i - p);
            return f.load(pair[0], lane) * f.load(pair[1], lane);
        }));
    });
}

template <int N, class F>
TG_INLINE const Word* fold_left(Frame<N> f, const Word* w, Word count, Word n, F combine) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 1 + n, [&](const Word* r, int lane) {
        L value = f.load(r[1], lane);
        for (Word i = 1; i < n; ++i) value = combine(value, f.load(r[1 + i], lane));
        f.store(r[0], lane, value);
    });
}

template <int N>
TG_INLINE const Word* logsumexp(Frame<N> f, const Word* w, Word count, Word n) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 1 + n, [&](const Word* r, int lane) {
        L top = f.load(r[1], lane);
        for (Word i = 1; i < n; ++i) top = maximum(top, f.load(r[1 + i], lane));
        L shift = select(abs(top) < L(__builtin_inf()), top, L(0));
        L total = ordered_sum<L>(
            n, [&](Word i) TG_LAMBDA { return exp(f.load(r[1 + i], lane) - shift); });
        f.store(r[0], lane, shift + log(total));
    });
}

/// The shift of a softmax: nothing while exp is safe, else the largest operand.
template <int N>
TG_INLINE Lanes<Real, N> softmax_shift(Frame<N> f, const Word* in, Word n, int lane) {
    using L = Lanes<Real, N>;
    L top = f.load(in[0], lane), reach = abs(top);
    for (Word i = 1; i < n; ++i) {
        L x = f.load(in[i], lane);
        top = select(x > top, x, top);
        reach = select(abs(x) > reach, abs(x), reach);
    }
    return select(reach > L(exp_safe), top, L(0));
}

template <int N>
TG_INLINE const Word* softmax(Frame<N> f, const Word* w, Word count, Word n) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 2 * n, [&](const Word* r, int lane) {
        L shift = softmax_shift(f, r + n, n, lane);
        L total = ordered_sum<L>(n, [&](Word i) TG_LAMBDA {
            L e = exp(f.load(r[n + i], lane) - shift);
            f.store(r[i], lane, e);
            return e;
        });
        L scale = L(1) / total;
        for (Word i = 0; i < n; ++i) f.store(r[i], lane, f.load(r[i], lane) * scale);
    });
}

template <int N>
TG_INLINE const Word* softmax_vjp(Frame<N> f, const Word* w, Word count, Word n) {
    using L = Lanes<Real, N>;
    return each(f, w, count, 3 * n, [&](const Word* r, int lane) {
        const Word *y = r + n, *g = r + 2 * n;
        L mean = ordered_sum<L>(
            n, [&](Word i) TG_LAMBDA { return f.load(y[i], lane) * f.load(g[i], lane); });
        for (Word i = 0; i < n; ++i)
            f.store(r[i], lane, f.load(y[i], lane) * (f.load(g[i], lane) - mean));
    });
}

/// A single softmax of up to four operands as one vector. The test for a needed shift is a branch,
/// almost never taken, so the shift is off the critical path of chained softmaxes.
template <int lanes = 4>
TG_INLINE const Word* softmax_across(Real* slots, const Word* w, Word count, Word n) {
    using L = Lanes<Real, lanes>;
    for (; count; --count, w += 2 * n) {
        const Word* in = w + n;
        const Word index[4] = {in[0], in[n > 1 ? 1 : 0], in[n > 2 ? 2 : 0], in[n > 3 ? 3 : 0]};
        L x = L::gather(slots, index, 1);
        if (__builtin_expect(any(abs(x) > L(exp_safe)), 0)) {
            Frame<1> f{slots, 1};
            x = x - L(softmax_shift(f, in, n, 0)[0]);
        }
        L e = exp(x);
        using S = Lanes<Real, 1>;
        S total = ordered_sum<S>(n, [&](Word i) TG_LAMBDA { return S(e[static_cast<int>(i)]); });
        L y = e * L((S(1) / total)[0]);
        for (Word i = 0; i < n; ++i) slots[w[i]] = y[static_cast<int>(i)];
    }
    return w;
}

/// Runs `count` independent instructions through vectors of gathered operands. `outs` results and
/// one operand each; the last vector repeats its final instruction.
template <int outs, class F>
TG_INLINE const Word* packs(Real* slots, const Word* w, Word count, F value) {
    constexpr int words = outs + 1;
    constexpr Word N = native;
    using L = Lanes<Real, native>;
    L result[outs];
    Word i = 0;
    for (; i + N <= count; i += N, w += words * N) {
        value(L::gather(slots, w + outs, words), result);
        for (int k = 0; k < outs; ++k) result[k].scatter(slots, w + k, words);
    }
    if (i < count) {
        Word rest = count - i, index[native];
        for (Word k = 0; k < N; ++k) index[k] = w[words * (k < rest ? k : rest - 1) + outs];
        value(L::gather(slots, index, 1), result);
        for (int k = 0; k < outs; ++k)
            for (Word j = 0; j < rest; ++j)
                slots[w[words * j + k]] = result[k][static_cast<int>(j)];
        w += words * rest;
    }
    return w;
}

/// Fewer instructions than this are faster one by one.
constexpr Word pack_from = 3;
constexpr bool pace_vector = true, pace_scalar = false;

template <int N>
void execute(const Code& code, Real* slots, int width);

/// Repeats the body in the slots behind the program's own.
template <int N>
const Word* loop(const Code& code, Frame<N> f, const Word* w, Word count, Word n, Word which) {
    const LoopCode& l = code.loops[which];
    const Code& body = *l.body;
    const size_t bytes = sizeof(Real) * static_cast<size_t>(f.width());
    const auto slot = [&](Real* base, Word s) { return base + static_cast<size_t>(s) * f.width(); };
    Real* inner = slot(f.slots, code.slots);
    for (; count; --count, w += n + l.operands) {
        for (Word i = 0; i < n; ++i)
            __builtin_memmove(slot(f.slots, w[i]), slot(f.slots, w[n + i]), bytes);
        for (Word i = 0; i < body.constant_count; ++i)
            for (int lane = 0; lane < f.width(); ++lane)
                slot(inner, body.constants[i].slot)[lane] =
                    static_cast<Real>(body.constants[i].value);
        for (Word round = 0; round < l.count; ++round) {
            for (Word i = 0; i < l.operands; ++i)
                if (body.inputs[i] != no_slot)
                    __builtin_memcpy(slot(inner, body.inputs[i]),
                                     slot(f.slots, i < n ? w[i] : w[n + i]), bytes);
            execute<N>(body, inner, f.width());
            for (Word i = 0; i < n; ++i)
                __builtin_memcpy(slot(f.slots, w[i]), slot(inner, body.outputs[i]), bytes);
        }
    }
    return w;
}

#define VALUE1(value) [](auto a) TG_LAMBDA { return value; }
#define VALUE2(value) [](auto a, auto b) TG_LAMBDA { return value; }

template <int N>
void execute(const Code& code, Real* slots, int width) {
    const Frame<N> f{slots, width};
    const Word* w = code.words;
    for (const Run *run = code.runs, *end = run + code.run_count; run != end; ++run) {
        const Word count = run->count, n = run->n, m = run->m;
        [[maybe_unused]] const bool pack = N == 1 && run->independent && count >= pack_from;
        switch (run->kernel) {
#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                               \
    case static_cast<int>(Op::name):                                                       \
        if constexpr (N == 1 && pace_##pace) {                                             \
            if (pack) {                                                                    \
                w = packs<1>(slots, w, count, [](auto a, auto* y) TG_LAMBDA { *y = value; }); \
                break;                                                                     \
            }                                                                              \
        }                                                                                  \
        w = unary(f, w, count, VALUE1(value));                                             \
        break;
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db) \
    case static_cast<int>(Op::name):                             \
        w = binary(f, w, count, VALUE2(value));                  \
        break;
#include "ops.def"
#undef OP1
#undef OP2
#define PAIRED(name)                                                                       \
    case kernel_##name:                                                                    \
        if constexpr (N == 1) {                                                            \
            if (pack) {                                                                    \
                w = packs<2>(slots, w, count,                                              \
                             [](auto a, auto* y) TG_LAMBDA { name(a, y[0], y[1]); });      \
                break;                                                                     \
            }                                                                              \
        }                                                                                  \
        w = paired(f, w, count, [](auto a, auto& y, auto& z) TG_LAMBDA { name(a, y, z); }); \
        break;
            PAIRED(softplus_sigmoid)
            PAIRED(sincos)
#undef PAIRED
#define SMALL(p, q)                                                \
    case kernel_sumdot_small + (p) * (small_terms + 1) + (q):      \
        w = sumdot(f, w, count, p, q);                             \
        break;
#define SMALL_ROW(p) SMALL(p, 0) SMALL(p, 1) SMALL(p, 2) SMALL(p, 3) SMALL(p, 4)
            static_assert(small_terms == 4);
            SMALL(0, 1)
            SMALL(0, 2)
            SMALL(0, 3)
            SMALL(0, 4)
            SMALL_ROW(1)
            SMALL_ROW(2)
            SMALL_ROW(3)
            SMALL_ROW(4)
#undef SMALL_ROW
#undef SMALL
            case static_cast<int>(Op::sumdot):
                w = sumdot(f, w, count, n, m);
                break;
            case static_cast<int>(Op::where):
                w = where(f, w, count);
                break;
            case static_cast<int>(Op::prod):
                w = fold_left(f, w, count, n, VALUE2(a * b));
                break;
            case static_cast<int>(Op::max):
                w = fold_left(f, w, count, n, VALUE2(maximum(a, b)));
                break;
            case static_cast<int>(Op::min):
                w = fold_left(f, w, count, n, VALUE2(minimum(a, b)));
                break;
            case static_cast<int>(Op::logsumexp):
                w = logsumexp(f, w, count, n);
                break;
            case static_cast<int>(Op::softmax):
                if constexpr (N == 1 && native >= 4) {
                    if (n <= 4) {
                        w = n == 4 ? softmax_across(slots, w, count, 4)
                                   : softmax_across(slots, w, count, n);
                        break;
                    }
                }
                w = n == 4 ? softmax(f, w, count, 4) : softmax(f, w, count, n);
                break;
            case static_cast<int>(Op::softmax_vjp):
                w = n == 4 ? softmax_vjp(f, w, count, 4) : softmax_vjp(f, w, count, n);
                break;
            case static_cast<int>(Op::loop):
                w = loop(code, f, w, count, n, m);
                break;
            default:
                __builtin_unreachable();
        }
    }
}

void run_lanes(const Code& code, Real* slots, int width) { execute<native>(code, slots, width); }
void run_single(const Code& code, Real* slots) { execute<1>(code, slots, 1); }

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

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
extern const Kernels<Real> TG_EXPAND(kernels_, TG_REAL);
const Kernels<Real> TG_EXPAND(kernels_, TG_REAL) = {native, run_lanes, run_single, fold_one};

}  // namespace TG_ISA
}  // namespace tapegrad
