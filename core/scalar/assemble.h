// core/scalar/assemble.h -- from a program's stream to machine code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "assembler.h"
#include "executable.h"
#include "kernels.h"

namespace tapegrad {

/// Whether a kernel is plain arithmetic, which is all that machine code is made for.
bool can_assemble(std::uint32_t kernel);

/// Machine code and the slots it works in.
struct Assembled {
    Executable code;
    std::uint32_t slots = 0;
    std::vector<SlotValue> constants;
    std::vector<std::uint32_t> inputs, outputs;  ///< as in Code
};

/// What code is made for: vectors of that shape in slots of `slot_bytes`.
struct Target {
    Shape shape;
    bool is_double;
    std::uint32_t slot_bytes;

    std::uint32_t vector_bytes() const {
        if (shape == Shape::scalar) return slot_bytes;
        return shape == Shape::half ? 32 : 64;
    }
};

/// Assembles a stream that has nothing but kernels that can be, `runs` being its runs and
/// recorded[k] the place of its k-th instruction in the order of the graph. None where the code
/// would be longer than `most_bytes`, or where the system does not execute it.
std::optional<Assembled> assemble(const Code& code, std::span<const Run> runs,
                                  std::span<const std::uint32_t> recorded, const Target& target,
                                  std::size_t most_bytes);

}  // namespace tapegrad
