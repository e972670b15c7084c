// core/scalar/steps.h -- a program's stream in the order of its graph, a value for every result.
//
// The stream is ordered into runs of one kernel, which is what an interpreter wants. Machine code
// wants operands that were computed just before, and finds them in registers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels.h"

namespace tapegrad {

constexpr std::uint32_t none = 0xffffffff;
/// What a step computes, an input or a constant.
using Value = std::uint32_t;

/// An instruction; its operands are uses [first, first + words), its results the values `result`
/// and, of kernels with two, the next one.
struct Step {
    std::uint32_t kernel, n, m;  ///< n and m of kernels with any number of operands
    std::uint32_t first, words;
    Value result;
};

struct Steps {
    std::vector<Step> steps;
    std::vector<Value> uses;                        ///< operands of all steps, in their order
    std::vector<Value> inputs, constants, outputs;  ///< as in Code; none for an unused input
    Value values = 0;
};

constexpr bool is_op(std::uint32_t kernel, Op op) {
    return kernel == static_cast<std::uint32_t>(op);
}

/// Whether a kernel gives two results.
constexpr bool is_paired(std::uint32_t kernel) {
    return kernel == kernel_softplus_sigmoid || kernel == kernel_sincos;
}

/// The steps of a stream, `runs` being its runs and recorded[k] the place of its k-th instruction
/// in the order of the graph. Long sums are spread over short ones: a term is added as soon as it
/// is there, so that nothing waits for the last one but the sum. The bits are those of the long
/// sum.
Steps decode(const Code& code, std::span<const Run> runs, std::span<const std::uint32_t> recorded);

}  // namespace tapegrad
