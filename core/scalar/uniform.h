// core/scalar/uniform.h -- kernels of pinned programs some of whose operands are one number for all
// lanes: constants, and inputs that all elements share.
//
// Such an operand is loaded once for a block and not once for a vector: loads are what the cheap
// kernels wait for, and the cache has more room for operands that do change. There are kernels for
// one uniform operand of two, and for short sums in which any plain term and one factor of any pair
// is uniform; others read uniform operands as if they changed.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels.h"

namespace tapegrad {

/// Terms and pairs of the sums that have such kernels: most of either, most operands in all.
constexpr int uniform_terms = 2, uniform_operands = 5;

/// Numbers of kernels behind those of kernels.h.
enum UniformKernel : std::uint16_t {
    kernel_uniform = kernel_count,  ///< + 2 * op + the place of the uniform operand
    kernel_uniform_sum = kernel_uniform + 2 * op_count,
    pinned_kernel_count = kernel_uniform_sum +
        ((uniform_terms + 1) * (uniform_terms + 1) << uniform_operands)
};

/// The number of a sum of p plain terms and q pairs; bit i of `uniform` stands for operand i.
constexpr std::uint16_t uniform_sum(int p, int q, std::uint32_t uniform) {
    const auto shape = static_cast<std::uint32_t>(p * (uniform_terms + 1) + q);
    return static_cast<std::uint16_t>(kernel_uniform_sum + (shape << uniform_operands) + uniform);
}

/// Whether a sum has a kernel for these uniform operands: at most one of each pair.
constexpr bool has_uniform_sum(int p, int q, std::uint32_t uniform) {
    if (p > uniform_terms || q > uniform_terms || p + 2 * q > uniform_operands) return false;
    for (int k = 0; k < q; ++k)
        if ((uniform >> (p + 2 * k) & 3) == 3) return false;
    return uniform != 0 && uniform < 1u << (p + 2 * q);
}

/// The kernel of an instruction with so many operands that takes some of them as uniform ones;
/// `kernel` itself if there is none.
constexpr std::uint16_t with_uniform(std::uint16_t kernel, std::uint32_t operands,
                                     std::uint32_t uniform) {
    if (kernel >= kernel_sumdot_small && kernel < kernel_count) {
        const int shape = kernel - kernel_sumdot_small, p = shape / (small_terms + 1),
                  q = shape % (small_terms + 1);
        return has_uniform_sum(p, q, uniform) ? uniform_sum(p, q, uniform) : kernel;
    }
    const bool elementwise = kernel < op_count && !is_pooled(static_cast<Op>(kernel));
    if (!elementwise || operands != 2 || std::popcount(uniform) != 1) return kernel;
    return static_cast<std::uint16_t>(kernel_uniform + 2 * kernel + (uniform >> 1));
}

}  // namespace tapegrad
