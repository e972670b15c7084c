// core/processor.h -- which instruction sets this processor has.
#pragma once

// TG_FOR_EACH_ISA(X) is X(isa) for every instruction set of this build, best first.
#ifdef TG_HAVE_AVX512
#define TG_IF_AVX512(X) X(avx512)
#else
#define TG_IF_AVX512(X)
#endif
#ifdef TG_HAVE_AVX2
#define TG_IF_AVX2(X) X(avx2)
#else
#define TG_IF_AVX2(X)
#endif
#ifdef TG_HAVE_NEON
#define TG_IF_NEON(X) X(neon)
#else
#define TG_IF_NEON(X)
#endif
#ifdef TG_HAVE_BASELINE
#define TG_IF_BASELINE(X) X(baseline)
#else
#define TG_IF_BASELINE(X)
#endif
#define TG_FOR_EACH_ISA(X) TG_IF_AVX512(X) TG_IF_AVX2(X) TG_IF_NEON(X) TG_IF_BASELINE(X)

namespace tapegrad {

/// Instruction sets that kernels are compiled for, best first.
enum class InstructionSet { avx512, avx2, neon, baseline };

/// Whether this processor can run code of that instruction set.
bool can_run(InstructionSet set);

}  // namespace tapegrad
