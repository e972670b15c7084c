// core/processor.cpp -- asks the processor what it has.
#include "processor.h"

namespace tapegrad {

bool can_run(InstructionSet set) {
    switch (set) {
#if defined(__x86_64__)
        case InstructionSet::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("fma");
        case InstructionSet::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
        case InstructionSet::neon:
            return true;
#endif
        case InstructionSet::baseline:
            return true;
        default:
            return false;
    }
}

}  // namespace tapegrad
