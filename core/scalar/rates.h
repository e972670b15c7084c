// core/scalar/rates.h -- the part of a program that depends on shared inputs alone.
#pragma once

#include <memory>
#include <span>

#include "program.h"

namespace tapegrad {

/// A program in two parts: what is the same for all rows, and the rest.
struct Split {
    /// From the program's inputs to values that all rows share.
    std::shared_ptr<const Program> shared;
    /// From the program's inputs and those values to its outputs, bit by bit the same.
    std::shared_ptr<const Program> rows;
};

/// Splits a program whose inputs i with is_shared[i] are the same for all rows. Empty parts where
/// that would save nothing, or where the program has loops.
Split split(const Program& program, std::span<const char> is_shared);

}  // namespace tapegrad
