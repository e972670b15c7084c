// core/scalar/lower.h -- from graph nodes to instructions over values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph.h"
#include "kernels.h"

namespace tapegrad {

/// Number of a value: what an instruction computes, an input or a constant.
using ValueId = std::uint32_t;
constexpr ValueId no_value = 0xffffffff;

/// An instruction before it has slots. Its operands are `words` values in Lowered::operands; its
/// results are the values first_result, first_result + 1, ...
struct Instruction {
    std::uint16_t kernel;
    bool early;  ///< part of a long sum: belongs right behind its last operand
    std::uint32_t n, m;
    std::uint32_t operands, words;
    ValueId first_result;
    std::uint32_t results;
};

struct Lowered {
    std::vector<Instruction> instructions;  ///< operands before users
    std::vector<ValueId> operands;
    std::uint32_t values = 0;
    std::vector<SlotValue> constants;  ///< here .slot is a value
    std::vector<ValueId> inputs;       ///< per program input, no_value if unused
    std::vector<ValueId> outputs;
    std::vector<const Loop*> loops;
    std::vector<std::shared_ptr<const Custom>> customs;
    std::uint32_t live_nodes = 0;
};

/// Lowers what `outputs` depend on. `input_position[k]` is the place of graph input k among the
/// program's inputs.
Lowered lower(const Graph& graph, std::span<const NodeId> outputs,
              std::span<const std::uint32_t> input_position, std::uint32_t input_count);

}  // namespace tapegrad
