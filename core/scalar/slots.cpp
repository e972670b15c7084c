// core/scalar/slots.cpp -- linear scan over the schedule; the slot freed last is reused first, since
// it is still in the cache.
#include "slots.h"

namespace tapegrad {
namespace {

constexpr std::uint32_t never = 0xffffffff;

std::vector<std::uint32_t> last_uses(const Lowered& lowered, const Schedule& schedule) {
    std::vector<std::uint32_t> last(lowered.values, 0);
    for (std::uint32_t at = 0; at < schedule.order.size(); ++at) {
        const Instruction& i = lowered.instructions[schedule.order[at]];
        for (std::uint32_t k = 0; k < i.words; ++k) last[lowered.operands[i.operands + k]] = at;
        for (std::uint32_t r = 0; r < i.results; ++r)
            if (!last[i.first_result + r]) last[i.first_result + r] = at;
    }
    for (ValueId output : lowered.outputs) last[output] = never;
    for (const SlotValue& constant : lowered.constants) last[constant.slot] = never;
    return last;
}

}  // namespace

Slots allocate_slots(const Lowered& lowered, const Schedule& schedule) {
    auto last = last_uses(lowered, schedule);
    Slots slots;
    slots.of.assign(lowered.values, no_slot);
    std::vector<std::uint32_t> free;
    auto take = [&] {
        if (free.empty()) return slots.count++;
        std::uint32_t slot = free.back();
        free.pop_back();
        return slot;
    };
    for (const SlotValue& constant : lowered.constants) slots.of[constant.slot] = take();
    for (ValueId input : lowered.inputs)
        if (input != no_value) slots.of[input] = take();
    for (std::uint32_t at = 0; at < schedule.order.size(); ++at) {
        const Instruction& i = lowered.instructions[schedule.order[at]];
        auto release_operands = [&] {
            for (std::uint32_t k = 0; k < i.words; ++k) {
                ValueId value = lowered.operands[i.operands + k];
                if (last[value] != at) continue;
                free.push_back(slots.of[value]);
                last[value] = never;  // an operand named twice is released once
            }
        };
        // Kernels with several results store some while they still read operands.
        const bool in_place = i.results == 1 && i.kernel != static_cast<int>(Op::loop);
        if (in_place) release_operands();
        for (std::uint32_t r = 0; r < i.results; ++r) slots.of[i.first_result + r] = take();
        if (!in_place) release_operands();
        for (std::uint32_t r = 0; r < i.results; ++r)
            if (last[i.first_result + r] == at) free.push_back(slots.of[i.first_result + r]);
    }
    return slots;
}

}  // namespace tapegrad
