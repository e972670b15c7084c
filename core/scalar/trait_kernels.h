// core/scalar/trait_kernels.h -- short sums and differences with constants and squares.
//
// Included by execute.cpp, which is compiled once per instruction set and number type.
#pragma once

#include "instructions.h"
#include "traits.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// Kernels of runs with traits: one for each combination that a shape can have.
template <class F, class W>
struct TraitKernels {
    using L = typename F::L;
    using Function = const W* (*)(const Code&, F, const W*);
    static constexpr Slot header = 3;

    static constexpr void enter(Function* of) {
        of[static_cast<int>(Op::sub)] = by_traits<Difference<Op::sub>>;
        of[kernel_sub_product] = by_traits<Difference<kernel_sub_product>>;
        of[kernel_product_sub] = by_traits<Difference<kernel_product_sub>>;
        enter_sums<0, 1>(of + kernel_sumdot_small);
    }
    template <int p, int q>
    static constexpr void enter_sums(Function* of) {
        of[p * (small_terms + 1) + q] = by_traits<Sum<p, q>>;
        if constexpr (p + q < trait_terms)
            enter_sums<p, q + 1>(of);
        else if constexpr (p < trait_terms)
            enter_sums<p + 1, 0>(of);
    }

    template <int p, int q>
    struct Sum {
        static constexpr Terms terms = sum_terms(p, q);
        template <class Term>
        TG_INLINE L value(Term term) {
            return ordered_sum<L>(p + q, term);
        }
    };
    template <auto kernel>
    struct Difference {
        static constexpr Terms terms = terms_of(static_cast<std::uint32_t>(kernel));
        template <class Term>
        TG_INLINE L value(Term term) {
            return term(0) - term(1);
        }
    };

    /// Runs the instructions with what `traits` says known while compiling.
    template <class Shape, std::uint32_t traits>
    static const W* run(F f, const W* w, Slot count) {
        constexpr Terms terms = Shape::terms;
        L constants[trait_terms];
        for (int t = 0; t < terms.count; ++t)
            if (trait_of(traits, t) == trait_constant)
                constants[t] = f.load(w[terms.place(t + 1)], 0);
        return each<1 + terms.place(terms.count)>(
            f, w, count, [&](const auto& r, int lane) TG_LAMBDA {
                f.store(
                    r[0], lane, Shape::value([&](Slot i) TG_LAMBDA {
                        const int t = static_cast<int>(i);
                        const Trait trait = trait_of(traits, t);
                        const auto place = static_cast<Slot>(1 + terms.place(t));
                        if (!terms.is_product(t))
                            return trait == trait_constant ? constants[t] : f.load(r[place], lane);
                        const L first = f.load(r[place], lane);
                        if (trait == trait_constant) return first * constants[t];
                        return first * (trait == trait_square ? first : f.load(r[place + 1], lane));
                    }));
            });
    }

    /// The kernels of a shape by traits.
    template <class Shape>
    struct Entries {
        const W* (*entry[traits_count])(F, const W*, Slot){};
        constexpr Entries() { set<0>(); }
        template <std::uint32_t traits>
        constexpr void set() {
            if constexpr (Shape::terms.can_have(traits)) entry[traits] = run<Shape, traits>;
            if constexpr (traits + 1 < traits_count) set<traits + 1>();
        }
    };
    template <class Shape>
    static const W* by_traits(const Code&, F f, const W* w) {
        static constexpr Entries<Shape> entries;
        return entries.entry[w[2]](f, w + header, w[1]);
    }
};

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
