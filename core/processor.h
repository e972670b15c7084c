// core/processor.h -- which instruction sets this processor has.
#pragma once

namespace tapegrad {

/// Instruction sets that kernels are compiled for, best first.
enum class InstructionSet { avx512, avx2, neon, baseline };

/// Whether this processor can run code of that instruction set.
bool can_run(InstructionSet set);

}  // namespace tapegrad
