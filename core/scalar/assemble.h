// core/scalar/assemble.h -- from a program's stream to machine code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "assembler.h"
#include "executable.h"
#include "kernels.h"

namespace tapegrad {

/// Whether a kernel is plain arithmetic, which becomes machine code.
bool is_arithmetic(std::uint32_t kernel);
/// Whether a kernel can be called by machine code: it has its operands and results one by one.
bool can_be_called(std::uint32_t kernel);

/// Some instructions that machine code calls a kernel for, as a stream of their own.
struct Piece {
    std::vector<std::uint32_t> words;
    Code code;
};

/// Machine code and the slots it works in.
struct Assembled {
    Executable code;
    std::vector<std::unique_ptr<Piece>> pieces;
    std::uint32_t slots = 0;
    std::vector<SlotValue> constants;
    std::vector<std::uint32_t> inputs, outputs;  ///< as in Code
};

/// What code is made for: vectors of that shape in slots of `slot_bytes`.
struct Target {
    Shape shape;
    bool is_double;
    std::uint32_t slot_bytes;
    void (*run_piece)(void* slots, const Piece& piece);  ///< over all lanes of a slot

    std::uint32_t vector_bytes() const {
        if (shape == Shape::scalar) return slot_bytes;
        return shape == Shape::half ? 32 : 64;
    }
};

/// Assembles a stream of arithmetic and kernels that can be called, as decode() reads it. None
/// where the code would be longer than `most_bytes`, where the system does not execute it, and
/// where kernels are to be called for slots of more than one vector.
std::optional<Assembled> assemble(const Code& code, std::span<const Run> runs,
                                  std::span<const std::uint32_t> recorded, const Target& target,
                                  std::size_t most_bytes);

}  // namespace tapegrad
