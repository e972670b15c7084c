// core/scalar/schedule.h -- the order of instructions, grouped into runs of one kernel and shape.
#pragma once

#include <cstdint>
#include <vector>

#include "lower.h"

namespace tapegrad {

struct RunSpan {
    std::uint32_t first, count;  ///< in Schedule::order
    bool independent;            ///< no instruction of it needs another's result
};

struct Schedule {
    std::vector<std::uint32_t> order;  ///< instruction numbers
    std::vector<RunSpan> runs;
    std::vector<std::uint32_t> base;  ///< the order before instructions were grouped
};

Schedule schedule(const Lowered& lowered);

}  // namespace tapegrad
