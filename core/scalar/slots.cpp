// core/scalar/slots.cpp -- linear scan over the schedule; the slot freed last is reused first,
// since it is still in the cache.
#include "slots.h"

#include <algorithm>
#include <utility>

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

/// Per value, whether it is an output.
std::vector<char> outputs_of(const Lowered& lowered) {
    std::vector<char> out(lowered.values, false);
    for (ValueId output : lowered.outputs) out[output] = true;
    return out;
}

/// Hands out slots: singly, or several in a row for the results of one instruction.
class Pool {
   public:
    std::uint32_t count() const { return static_cast<std::uint32_t>(block_.size()); }

    /// One that was used before, unless it must be a `fresh` one.
    std::uint32_t take(bool fresh) {
        if (free_.empty() && !fresh) break_block();
        if (free_.empty() || fresh) return grow(1, no_block);
        return pop(free_);
    }

    std::uint32_t take_row(std::uint32_t n, bool fresh) {
        if (n >= free_rows_.size()) free_rows_.resize(n + 1);
        std::uint32_t block;
        if (free_rows_[n].empty() || fresh) {
            block = static_cast<std::uint32_t>(blocks_.size());
            blocks_.push_back({grow(n, block), n, 0});
        } else {
            block = pop(free_rows_[n]);
            --rows_free_;
        }
        blocks_[block].live = n;
        return blocks_[block].first;
    }

    /// A row is free when all of it is.
    void give(std::uint32_t slot) {
        const std::uint32_t block = block_[slot];
        if (block == no_block)
            free_.push_back(slot);
        else if (--blocks_[block].live == 0) {
            free_rows_[blocks_[block].size].push_back(block);
            ++rows_free_;
        }
    }

   private:
    static constexpr std::uint32_t no_block = 0xffffffff;
    struct Block {
        std::uint32_t first, size, live;
    };

    static std::uint32_t pop(std::vector<std::uint32_t>& list) {
        std::uint32_t last = list.back();
        list.pop_back();
        return last;
    }

    std::uint32_t grow(std::uint32_t n, std::uint32_t block) {
        const std::uint32_t first = count();
        block_.resize(first + n, block);
        return first;
    }

    /// Turns a free row into single slots.
    void break_block() {
        if (!rows_free_) return;
        --rows_free_;
        for (auto& rows : free_rows_) {
            if (rows.empty()) continue;
            const Block& block = blocks_[pop(rows)];
            for (std::uint32_t i = block.size; i-- > 0;) {
                block_[block.first + i] = no_block;
                free_.push_back(block.first + i);
            }
            return;
        }
    }

    std::vector<std::uint32_t> free_, block_;            ///< block_: per slot
    std::vector<std::vector<std::uint32_t>> free_rows_;  ///< blocks, by size
    std::size_t rows_free_ = 0;
    std::vector<Block> blocks_;
};

}  // namespace

Slots allocate_slots(const Lowered& lowered, const Schedule& schedule, bool pinned) {
    auto last = last_uses(lowered, schedule);
    Slots slots;
    Pool pool;
    slots.of.assign(lowered.values, no_slot);
    for (const SlotValue& constant : lowered.constants) slots.of[constant.slot] = pool.take(false);
    for (ValueId input : lowered.inputs) {
        if (input == no_value) continue;
        slots.of[input] = pool.take(false);
        if (pinned) last[input] = never;
    }
    const std::vector<char> is_output = pinned ? outputs_of(lowered) : std::vector<char>();
    for (std::uint32_t at = 0; at < schedule.order.size(); ++at) {
        const Instruction& i = lowered.instructions[schedule.order[at]];
        const auto fresh = [&](std::uint32_t from, std::uint32_t to) {
            return pinned && std::any_of(is_output.begin() + from, is_output.begin() + to,
                                         [](char each) { return each; });
        };
        auto release_operands = [&] {
            for (std::uint32_t k = 0; k < i.words; ++k) {
                ValueId value = lowered.operands[i.operands + k];
                if (last[value] != at) continue;
                pool.give(slots.of[value]);
                last[value] = never;  // an operand named twice is released once
            }
        };
        if (has_row(i.kernel)) {
            // Stores some results while it still reads operands.
            const std::uint32_t end = i.first_result + i.results;
            const std::uint32_t row = pool.take_row(i.results, fresh(i.first_result, end));
            for (std::uint32_t r = 0; r < i.results; ++r) slots.of[i.first_result + r] = row + r;
            release_operands();
        } else {
            release_operands();
            for (ValueId value = i.first_result; value < i.first_result + i.results; ++value)
                slots.of[value] = pool.take(fresh(value, value + 1));
        }
        for (std::uint32_t r = 0; r < i.results; ++r)
            if (last[i.first_result + r] == at) pool.give(slots.of[i.first_result + r]);
    }
    slots.count = pool.count();
    return slots;
}

Lifetimes lifetimes(const Lowered& lowered, const Schedule& schedule) {
    std::vector<std::uint32_t> read(lowered.values, 0), written(lowered.values, at_end);
    for (std::uint32_t at = 0; at < schedule.order.size(); ++at) {
        const Instruction& i = lowered.instructions[schedule.order[at]];
        for (std::uint32_t k = 0; k < i.words; ++k) read[lowered.operands[i.operands + k]] = 2 * at;
        // Instructions with a row of results store some of them while they still read operands.
        for (std::uint32_t r = 0; r < i.results; ++r)
            written[i.first_result + r] = 2 * at + (has_row(i.kernel) ? 0 : 1);
    }
    Lifetimes out;
    for (ValueId output : lowered.outputs) {
        out.writes.push_back(std::exchange(written[output], at_end));
        read[output] = never_over;
    }
    for (ValueId input : lowered.inputs) out.reads.push_back(input == no_value ? 0 : read[input]);
    return out;
}

}  // namespace tapegrad
