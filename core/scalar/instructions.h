// core/scalar/instructions.h -- the text of all instructions, and the table that finds them.
//
// The same text serves every width: N lanes per vector for batches, one lane for a single
// evaluation, and vectors gathered from a run of independent instructions (packs). Since a lane's
// arithmetic does not depend on N, single and batch give the same bits. A frame says where the
// values of a slot lie.
//
// Sums are taken in a fixed order, whatever the width: four accumulators, term i into i % 4, then
// (s0 + s1) + (s2 + s3).
//
// Included by sources that are compiled once per instruction set and number type.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels.h"
#include "maths.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

using Real = TG_REAL;
using Slot = std::uint32_t;
constexpr int native = native_lanes<Real>;

/// Kernels do not clear the upper halves of vector registers one by one; this does it at the end.
TG_INLINE void leave_vectors() {
#if defined(__AVX__)
    _mm256_zeroupper();
#endif
}

/// Below this magnitude exp neither overflows nor underflows, so softmax needs no shift.
constexpr Real exp_safe = sizeof(Real) == 8 ? 300.0 : 40.0;

/// Where the values of an instruction lie: results, then operands.
template <Slot words>
struct Record {
    Real* at[words];
    TG_METHOD Real* operator[](Slot i) const { return at[i]; }
};

/// The slots of one evaluation, seen through vectors of N lanes. `one` says that a slot is a single
/// vector: the width of large programs, known while compiling.
template <int N, bool one>
struct Frame {
    using L = Lanes<Real, N>;
    static constexpr int lanes_per_vector = N;
    static constexpr bool in_pairs = !one;  ///< widths are powers of two
    Real* slots;
    int shift;  ///< a slot has 2^shift lanes

    TG_METHOD int width() const { return one ? N : 1 << shift; }
    TG_METHOD Real* at(Slot slot) const {
        const size_t index = slot;
        return slots + (one ? index * N : index << shift);
    }
    TG_METHOD L load(const Real* place, int lane) const { return L::load(place + lane); }
    TG_METHOD L load(Slot slot, int lane) const { return load(at(slot), lane); }
    TG_METHOD void store(Real* place, int lane, L value) const { value.store(place + lane); }
    TG_METHOD void store(Slot slot, int lane, L value) const { store(at(slot), lane, value); }
    /// A record as what load and store take: slots of several vectors are looked up once for all.
    template <Slot words, class W>
    TG_METHOD auto record(const W* w) const {
        if constexpr (one) {
            return w;
        } else {
            Record<words> out;
            for (Slot i = 0; i < words; ++i) out.at[i] = at(w[i]);
            return out;
        }
    }
};

/// Slots that lie anywhere: in a caller's arrays, or in memory that stays in the cache.
struct Scattered {
    using L = Lanes<Real, native>;
    static constexpr int lanes_per_vector = native;
    static constexpr bool in_pairs = false;
    Real* const* slots;
    int lanes;  ///< any number of whole vectors

    TG_METHOD int width() const { return lanes; }
    TG_METHOD L load(const Real* at, int lane) const { return L::load(at + lane); }
    TG_METHOD L load(Slot slot, int lane) const { return load(slots[slot], lane); }
    TG_METHOD void store(Real* at, int lane, L value) const { value.store(at + lane); }
    TG_METHOD void store(Slot slot, int lane, L value) const { store(slots[slot], lane, value); }
    /// Addresses are looked up once for all lanes.
    template <Slot words, class W>
    TG_METHOD Record<words> record(const W* w) const {
        Record<words> out;
        for (Slot i = 0; i < words; ++i) out.at[i] = slots[w[i]];
        return out;
    }
};

/// Calls body(words, lane) for every instruction of the run and every vector of lanes.
template <class F, class W, class Body>
TG_INLINE const W* each(F f, const W* w, Slot count, Slot words, Body body) {
    for (; count; --count, w += words)
        for (int lane = 0; lane < f.width(); lane += F::lanes_per_vector) body(w, lane);
    return w;
}

/// The same for records of a length that is known while compiling.
template <Slot words, class F, class W, class Body>
TG_INLINE const W* each(F f, const W* w, Slot count, Body body) {
    for (; count; --count, w += words) {
        const auto r = f.template record<words>(w);
        constexpr int N = F::lanes_per_vector, step = F::in_pairs ? 2 * N : N;
        for (int lane = 0; lane < f.width(); lane += step) {
            body(r, lane);
            if constexpr (F::in_pairs) body(r, lane + N);
        }
    }
    return w;
}

/// Sum of `n` terms in the fixed order; n is a compile-time constant wherever it is small.
template <class L, class Term>
TG_INLINE L ordered_sum(Slot n, Term term) {
    if (n == 1) return term(0);
    if (n == 2) return term(0) + term(1);
    if (n == 3) return (term(0) + term(1)) + term(2);
    L s0 = term(0), s1 = term(1), s2 = term(2), s3 = term(3);
    Slot i = 4;
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

template <class F, class W, class Function>
TG_INLINE const W* unary(F f, const W* w, Slot count, Function value) {
    return each<2>(f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
        f.store(r[0], lane, value(f.load(r[1], lane)));
    });
}

template <class F, class W, class Function>
TG_INLINE const W* binary(F f, const W* w, Slot count, Function value) {
    return each<3>(f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
        f.store(r[0], lane, value(f.load(r[1], lane), f.load(r[2], lane)));
    });
}

template <class F, class W, class Function>
TG_INLINE const W* ternary(F f, const W* w, Slot count, Function value) {
    return each<4>(f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
        f.store(r[0], lane, value(f.load(r[1], lane), f.load(r[2], lane), f.load(r[3], lane)));
    });
}

template <class F, class W, class Function>
TG_INLINE const W* paired(F f, const W* w, Slot count, Function both) {
    using L = typename F::L;
    return each<3>(f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
        L first, second;
        both(f.load(r[2], lane), first, second);
        f.store(r[0], lane, first);
        f.store(r[1], lane, second);
    });
}

/// p plain terms and q pairs, both known while compiling.
template <int p, int q, class F, class W>
TG_INLINE const W* sumdot_of(F f, const W* w, Slot count) {
    using L = typename F::L;
    return each<1 + p + 2 * q>(f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
        f.store(r[0], lane, ordered_sum<L>(p + q, [&](Slot i) TG_LAMBDA {
                    if (static_cast<int>(i) < p) return f.load(r[1 + i], lane);
                    const Slot pair = 1 + p + 2 * (i - p);
                    return f.load(r[pair], lane) * f.load(r[pair + 1], lane);
                }));
    });
}

/// Adds terms [from, n) to the accumulators.
template <class L, class Term>
TG_INLINE void accumulate(L (&s)[4], Slot from, Slot n, Term term) {
    Slot i = from;
    for (; i + 4 <= n; i += 4)
        for (Slot k = 0; k < 4; ++k) s[k] = s[k] + term(i + k);
    for (Slot k = 0; k < 3; ++k)
        if (i + k < n) s[k] = s[k] + term(i + k);
}

/// The same for more terms: at least four plain ones, or else at least four pairs.
template <class F, class W>
TG_INLINE const W* sumdot(F f, const W* w, Slot count, Slot p, Slot q) {
    using L = typename F::L;
    return each(f, w, count, 1 + p + 2 * q, [&](const W* r, int lane) TG_LAMBDA {
        const auto plain = [&](Slot i) TG_LAMBDA { return f.load(r[1 + i], lane); };
        const auto product = [&](Slot i) TG_LAMBDA {
            const W* pair = r + 1 + p + 2 * i;
            return f.load(pair[0], lane) * f.load(pair[1], lane);
        };
        L s[4];
        if (p >= 4) {
            for (Slot k = 0; k < 4; ++k) s[k] = plain(k);
            accumulate(s, 4, p, plain);
            accumulate(s, 0, q, product);
        } else {
            for (Slot k = 0; k < 4; ++k) s[k] = product(k);
            accumulate(s, 4, q, product);
            accumulate(s, 0, p, plain);
        }
        f.store(r[0], lane, (s[0] + s[1]) + (s[2] + s[3]));
    });
}

template <class F, class W, class Function>
TG_INLINE const W* fold_left(F f, const W* w, Slot count, Slot n, Function combine) {
    using L = typename F::L;
    return each(f, w, count, 1 + n, [&](const W* r, int lane) TG_LAMBDA {
        L value = f.load(r[1], lane);
        for (Slot i = 1; i < n; ++i) value = combine(value, f.load(r[1 + i], lane));
        f.store(r[0], lane, value);
    });
}

template <class F, class W>
TG_INLINE const W* logsumexp(F f, const W* w, Slot count, Slot n) {
    using L = typename F::L;
    return each(f, w, count, 1 + n, [&](const W* r, int lane) TG_LAMBDA {
        L top = f.load(r[1], lane);
        for (Slot i = 1; i < n; ++i) top = maximum(top, f.load(r[1 + i], lane));
        L shift = select(abs(top) < L(__builtin_inf()), top, L(0));
        L total = ordered_sum<L>(
            n, [&](Slot i) TG_LAMBDA { return exp(f.load(r[1 + i], lane) - shift); });
        f.store(r[0], lane, shift + log(total));
    });
}

/// The shift of a softmax: nothing while exp is safe, else the largest operand.
template <class L, class Load>
TG_RARE L softmax_shift(Slot n, L reach, Load load) {
    L top = load(0);
    for (Slot i = 1; i < n; ++i) {
        L x = load(i);
        top = select(x > top, x, top);
    }
    return select(reach > L(exp_safe), top, L(0));
}

/// A softmax of n operands, n known while compiling; the exponentials stay in registers.
template <int n, class F, class W>
TG_INLINE const W* softmax_of(F f, const W* w, Slot count) {
    using L = typename F::L;
    return each(f, w, count, 1 + n, [&](const W* r, int lane) TG_LAMBDA {
        const auto load = [f, r, lane](Slot i) TG_LAMBDA { return f.load(r[1 + i], lane); };
        L e[n], reach = L(0);
        for (int i = 0; i < n; ++i) {
            e[i] = load(i);
            reach = at_least(abs(e[i]), reach);
        }
        if (__builtin_expect(all(reach <= L(exp_safe)), 1)) {
            for (int i = 0; i < n; ++i) e[i] = exp_of_normal(e[i]);
        } else {
            L shift = softmax_shift(n, reach, load);
            for (int i = 0; i < n; ++i) e[i] = exp(load(i) - shift);
        }
        L scale = L(1) / ordered_sum<L>(n, [&](Slot i) TG_LAMBDA { return e[i]; });
        for (int i = 0; i < n; ++i) f.store(r[0] + static_cast<Slot>(i), lane, e[i] * scale);
    });
}

template <class F, class W>
TG_INLINE const W* softmax(F f, const W* w, Slot count, Slot n) {
    using L = typename F::L;
    return each(f, w, count, 1 + n, [&](const W* r, int lane) TG_LAMBDA {
        const auto load = [f, r, lane](Slot i) TG_LAMBDA { return f.load(r[1 + i], lane); };
        L reach = L(0);
        for (Slot i = 0; i < n; ++i) reach = at_least(abs(load(i)), reach);
        L shift = L(0);
        if (any(!(reach <= L(exp_safe)))) shift = softmax_shift(n, reach, load);
        L total = ordered_sum<L>(n, [&](Slot i) TG_LAMBDA {
            L e = exp(load(i) - shift);
            f.store(r[0] + i, lane, e);
            return e;
        });
        L scale = L(1) / total;
        for (Slot i = 0; i < n; ++i) f.store(r[0] + i, lane, f.load(r[0] + i, lane) * scale);
    });
}

template <int n, class F, class W>
TG_INLINE const W* softmax_vjp_of(F f, const W* w, Slot count) {
    using L = typename F::L;
    return each(f, w, count, 2 + n, [&](const W* r, int lane) TG_LAMBDA {
        L y[n], g[n];
        for (int i = 0; i < n; ++i) {
            y[i] = f.load(r[1] + static_cast<Slot>(i), lane);
            g[i] = f.load(r[2 + i], lane);
        }
        L mean = ordered_sum<L>(n, [&](Slot i) TG_LAMBDA { return y[i] * g[i]; });
        for (int i = 0; i < n; ++i)
            f.store(r[0] + static_cast<Slot>(i), lane, y[i] * (g[i] - mean));
    });
}

template <class F, class W>
TG_INLINE const W* softmax_vjp(F f, const W* w, Slot count, Slot n) {
    using L = typename F::L;
    return each(f, w, count, 2 + n, [&](const W* r, int lane) TG_LAMBDA {
        const auto y = [&](Slot i) TG_LAMBDA { return f.load(r[1] + i, lane); };
        const auto g = [&](Slot i) TG_LAMBDA { return f.load(r[2 + i], lane); };
        L mean = ordered_sum<L>(n, [&](Slot i) TG_LAMBDA { return y(i) * g(i); });
        for (Slot i = 0; i < n; ++i) f.store(r[0] + i, lane, y(i) * (g(i) - mean));
    });
}

// ---- four operands of a single evaluation as one vector ----------------------------------------

/// The test for a needed shift is a branch that is almost never taken, so the shift is off the
/// critical path of chained softmaxes.
template <class W, int lanes = 4>
TG_INLINE const W* softmax_across(Real* slots, const W* w, Slot count) {
    using L = Lanes<Real, lanes>;
    using S = Lanes<Real, 1>;
    for (; count; --count, w += 5) {
        const Slot index[4] = {w[1], w[2], w[3], w[4]};
        L x = L::gather(slots, index, 1), e;
        if (__builtin_expect(all(abs(x) <= L(exp_safe)), 1)) {
            e = exp_of_normal(x);
        } else {
            S reach = S(0);
            for (int i = 0; i < 4; ++i) reach = at_least(S(abs(x)[i]), reach);
            S shift = softmax_shift(4, reach,
                                    [slots, w](Slot i) TG_LAMBDA { return S(slots[w[1 + i]]); });
            e = exp(x - L(shift[0]));
        }
        L y = e * (L(1) / sum_of_fours(e));
        y.store(slots + w[0]);
    }
    return w;
}

template <class W, int lanes = 4>
TG_INLINE const W* softmax_vjp_across(Real* slots, const W* w, Slot count) {
    using L = Lanes<Real, lanes>;
    for (; count; --count, w += 6) {
        const Slot index[4] = {w[2], w[3], w[4], w[5]};
        L y = L::load(slots + w[1]), g = L::gather(slots, index, 1);
        (y * (g - sum_of_fours(y * g))).store(slots + w[0]);
    }
    return w;
}

/// Runs `count` independent instructions through vectors of gathered operands: `outs` results and
/// one operand each. The last vector repeats its final instruction.
template <int outs, class W, class Function>
TG_INLINE const W* packs(Real* slots, const W* w, Slot count, Function value) {
    constexpr Slot N = native, words = outs + 1;
    using L = Lanes<Real, native>;
    L result[outs];
    Slot index[native];
    for (; count >= N; count -= N, w += words * N) {
        for (Slot i = 0; i < N; ++i) index[i] = w[words * i + outs];
        value(L::gather(slots, index, 1), result);
        for (Slot k = 0; k < outs; ++k) {
            for (Slot i = 0; i < N; ++i) index[i] = w[words * i + k];
            result[k].scatter(slots, index, 1);
        }
    }
    if (count) {
        for (Slot i = 0; i < N; ++i) index[i] = w[words * (i < count ? i : count - 1) + outs];
        value(L::gather(slots, index, 1), result);
        for (Slot k = 0; k < outs; ++k)
            for (Slot i = 0; i < count; ++i)
                slots[w[words * i + k]] = result[k][static_cast<int>(i)];
    }
    return w + words * count;
}

constexpr bool pace_vector = true, pace_scalar = false;

// ---- dispatch ---------------------------------------------------------------------------------
//
// One function per kernel and form of run, called through a table with the run's first word; it
// returns where the next run begins. A run of one instruction has no loop.

template <class F, class W, RunForm form>
struct Kernel {
    static constexpr int N = F::lanes_per_vector;
    static constexpr Slot header = form == run_alone ? 1 : 2;
    static constexpr bool may_pack = N == 1 && form == run_independent;

    TG_INLINE Slot count(const W* w) { return form == run_alone ? 1 : w[1]; }
    // Of kernels with any number of operands.
    TG_INLINE Slot n(const W* w) { return w[header]; }
    TG_INLINE Slot m(const W* w) { return w[header + 1]; }

#define OP1(name, pace, domain, ulp, doc, oracle, value, da)                           \
    static const W* run_##name(const Code&, F f, const W* w) {                         \
        if constexpr (may_pack && pace_##pace) {                                       \
            if (count(w) >= pack_from)                                                 \
                return packs<1>(f.slots, w + header, count(w),                         \
                                [](auto a, auto* y) TG_LAMBDA { *y = value; });        \
        }                                                                              \
        return unary(f, w + header, count(w), [](auto a) TG_LAMBDA { return value; }); \
    }
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db)                                \
    static const W* run_##name(const Code&, F f, const W* w) {                                  \
        return binary(f, w + header, count(w), [](auto a, auto b) TG_LAMBDA { return value; }); \
    }
#define PAIRED(name)                                                                     \
    static const W* run_##name(const Code&, F f, const W* w) {                           \
        if constexpr (may_pack) {                                                        \
            if (count(w) >= pack_from)                                                   \
                return packs<2>(f.slots, w + header, count(w),                           \
                                [](auto a, auto* y) TG_LAMBDA { name(a, y[0], y[1]); }); \
        }                                                                                \
        return paired(f, w + header, count(w),                                           \
                      [](auto a, auto& y, auto& z) TG_LAMBDA { name(a, y, z); });        \
    }
#include "ops.def"
    PAIRED(softplus_sigmoid)
    PAIRED(sincos)
#undef OP1
#undef OP2
#undef PAIRED

    template <int p, int q>
    static const W* run_sumdot_small(const Code&, F f, const W* w) {
        return sumdot_of<p, q>(f, w + header, count(w));
    }
    static const W* run_sumdot(const Code&, F f, const W* w) {
        const W* records = w + header + 2;
        if (n(w) == 16 && m(w) == 0) return sumdot_of<16, 0>(f, records, count(w));  // full chunks
        if (n(w) == 0 && m(w) == 16) return sumdot_of<0, 16>(f, records, count(w));  // of long sums
        return sumdot(f, records, count(w), n(w), m(w));
    }
    static const W* run_where(const Code&, F f, const W* w) {
        return ternary(f, w + header, count(w), [](auto c, auto a, auto b) TG_LAMBDA {
            return select(c != decltype(c)(0), a, b);
        });
    }
    static const W* run_sub_product(const Code&, F f, const W* w) {
        return ternary(f, w + header, count(w),
                       [](auto a, auto b, auto c) TG_LAMBDA { return a - b * c; });
    }
    static const W* run_product_sub(const Code&, F f, const W* w) {
        return ternary(f, w + header, count(w),
                       [](auto a, auto b, auto c) TG_LAMBDA { return a * b - c; });
    }
    static const W* run_prod(const Code&, F f, const W* w) {
        return fold_left(f, w + header + 2, count(w), n(w),
                         [](auto a, auto b) TG_LAMBDA { return a * b; });
    }
    static const W* run_max(const Code&, F f, const W* w) {
        return fold_left(f, w + header + 2, count(w), n(w),
                         [](auto a, auto b) TG_LAMBDA { return maximum(a, b); });
    }
    static const W* run_min(const Code&, F f, const W* w) {
        return fold_left(f, w + header + 2, count(w), n(w),
                         [](auto a, auto b) TG_LAMBDA { return minimum(a, b); });
    }
    static const W* run_logsumexp(const Code&, F f, const W* w) {
        return logsumexp(f, w + header + 2, count(w), n(w));
    }
    static const W* run_softmax(const Code&, F f, const W* w) {
        if (n(w) != 4) return softmax(f, w + header + 2, count(w), n(w));
        if constexpr (N == 1 && native >= 4)
            return softmax_across(f.slots, w + header + 2, count(w));
        else
            return softmax_of<4>(f, w + header + 2, count(w));
    }
    static const W* run_softmax_vjp(const Code&, F f, const W* w) {
        if (n(w) != 4) return softmax_vjp(f, w + header + 2, count(w), n(w));
        if constexpr (N == 1 && native >= 4)
            return softmax_vjp_across(f.slots, w + header + 2, count(w));
        else
            return softmax_vjp_of<4>(f, w + header + 2, count(w));
    }
    static const W* run_loop(const Code& code, F f, const W* w) {
        return loop(code, f, w + header + 2, count(w), m(w));
    }
    static const W* run_custom(const Code& code, F f, const W* w) {
        return custom(code, f, w + header + 2, count(w), n(w), m(w));
    }
};

template <class F, class W>
struct TraitKernels;

/// Kernels by a run's first word, for these forms of runs.
template <class F, class W, RunForm... forms>
struct Table {
    using Function = const W* (*)(const Code&, F, const W*);
    Function entry[sizeof...(forms) * std::size_t{kernel_count}]{};

    constexpr Table() { (set<forms>(), ...); }
    template <RunForm form>
    constexpr void set() {
        if constexpr (form == run_traits)
            TraitKernels<F, W>::enter(entry + int{form} * int{kernel_count});
        else
            set_all<form>();
    }
    template <RunForm form>
    constexpr void set_all() {
        using K = Kernel<F, W, form>;
        Function* of = entry + int{form} * int{kernel_count};
#define OP1(name, ...) of[static_cast<int>(Op::name)] = K::run_##name;
#define OP2(name, ...) OP1(name)
#include "ops.def"
        OP1(where)
        OP1(sumdot)
        OP1(prod)
        OP1(max)
        OP1(min)
        OP1(logsumexp)
        OP1(softmax)
        OP1(softmax_vjp)
        if constexpr (!std::is_same_v<F, Scattered>) {
            OP1(loop)
            OP1(custom)
        }
#undef OP1
#undef OP2
        of[kernel_softplus_sigmoid] = K::run_softplus_sigmoid;
        of[kernel_sincos] = K::run_sincos;
        of[kernel_sub_product] = K::run_sub_product;
        of[kernel_product_sub] = K::run_product_sub;
        set_sums<K, 0, 1>(of + kernel_sumdot_small);
    }
    template <class K, int p, int q>
    static constexpr void set_sums(Function* of) {
        of[p * (small_terms + 1) + q] = K::template run_sumdot_small<p, q>;
        if constexpr (q < small_terms)
            set_sums<K, p, q + 1>(of);
        else if constexpr (p < small_terms)
            set_sums<K, p + 1, 0>(of);
    }
};

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
