// core/scalar/lifetimes.h -- when a pinned program reads its inputs and writes its outputs.
#pragma once

#include <cstdint>
#include <vector>

namespace tapegrad {

/// Times are numbers that grow along the schedule. An output may take the memory of an input if its
/// time is the later one: then no lane is written before it was read.
struct Lifetimes {
    std::vector<std::uint32_t> reads;   ///< per input, the last time; `never_over` for an output
    std::vector<std::uint32_t> writes;  ///< per output; `at_end` if it has no slot of its own
};

constexpr std::uint32_t never_over = 0xffffffff, at_end = never_over - 1;

}  // namespace tapegrad
