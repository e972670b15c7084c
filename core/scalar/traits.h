// core/scalar/traits.h -- what all instructions of a run have in common: constants and squares.
//
// Loads are what the cheap kernels wait for: of the 19 that the gradient of a chained Rosenbrock
// function takes for each variable, five are of constants that all instructions of a run share, and
// two are of a factor that was loaded for the same square just before. Kernels of short sums and
// differences know such operands by the traits of their run, and load them once for all records or
// once for both factors. Records are the same as without traits.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace tapegrad {

/// Of a term, which is an operand or the product of two.
enum Trait : std::uint32_t {
    trait_none,
    trait_constant,  ///< the operand, or the second factor, is one constant in all records
    trait_square,    ///< both factors lie in one slot
    trait_count
};

/// The most terms of a kernel that looks at traits. Those of a run are one number, with a digit for
/// each term.
constexpr int trait_terms = 3;
constexpr std::uint32_t traits_count = trait_count * trait_count * trait_count;

constexpr std::uint32_t trait_weight(int term) {
    return term ? trait_count * trait_weight(term - 1) : 1;
}
constexpr Trait trait_of(std::uint32_t traits, int term) {
    return static_cast<Trait>(traits / trait_weight(term) % trait_count);
}

/// The terms of a kernel in the order of its operands; none if it does not look at traits.
struct Terms {
    int count = 0;
    std::uint32_t products = 0;  ///< bit i: term i has two factors

    constexpr bool is_product(int term) const { return products >> term & 1; }
    /// The place of a term's first operand; that of all of them for `count`.
    constexpr int place(int term) const {
        int at = 0;
        for (int i = 0; i < term; ++i) at += is_product(i) ? 2 : 1;
        return at;
    }
    /// Whether these traits say something, and only products are squares.
    constexpr bool can_have(std::uint32_t traits) const {
        for (int i = 0; i < trait_terms; ++i)
            if (const Trait trait = trait_of(traits, i))
                if (i >= count || (trait == trait_square && !is_product(i))) return false;
        return traits != 0;
    }
};

/// Of a sum of p plain terms and q pairs.
constexpr Terms sum_terms(int p, int q) {
    if (p + q > trait_terms) return {};
    return {p + q, ((1u << q) - 1) << p};
}

constexpr Terms terms_of(std::uint32_t kernel) {
    if (kernel == static_cast<std::uint32_t>(Op::sub)) return {2, 0};
    if (kernel == kernel_sub_product) return {2, 2};
    if (kernel == kernel_product_sub) return {2, 1};
    if (kernel < kernel_sumdot_small || kernel >= kernel_count) return {};
    const auto shape = static_cast<int>(kernel - kernel_sumdot_small);
    return sum_terms(shape / (small_terms + 1), shape % (small_terms + 1));
}

}  // namespace tapegrad
