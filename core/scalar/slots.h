// core/scalar/slots.h -- slots for values, reused as soon as a value is dead.
#pragma once

#include <cstdint>
#include <vector>

#include "lifetimes.h"
#include "schedule.h"

namespace tapegrad {

struct Slots {
    std::vector<std::uint32_t> of;  ///< per value; no_slot if nothing holds it
    std::uint32_t count = 0;
};

/// The results of kernels with any number of them lie in a row. Inputs, constants and outputs keep
/// their slots while a program runs: inputs until their last use, constants and outputs for good.
/// Pinned, inputs and outputs have slots that never hold anything else.
Slots allocate_slots(const Lowered& lowered, const Schedule& schedule, bool pinned);

Lifetimes lifetimes(const Lowered& lowered, const Schedule& schedule);

}  // namespace tapegrad
