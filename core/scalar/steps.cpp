// core/scalar/steps.cpp -- a program's stream in the order of its graph.
#include "steps.h"

#include <algorithm>
#include <initializer_list>

namespace tapegrad {
namespace {

constexpr std::uint32_t small_sum(std::uint32_t plain, std::uint32_t pairs) {
    return kernel_sumdot_small + plain * (small_terms + 1) + pairs;
}

/// Steps of which long sums are made, each with its place: that of the step after which it can be
/// taken. Steps of one place are in their order.
class Spread {
   public:
    Spread(Value values, const std::vector<Step>& from, const std::vector<Value>& operands)
        : values(values), from_(from), from_operands_(operands), made_(values, 0) {}

    void look_at(std::uint32_t i) {
        const Step& step = from_[i];
        const Value* operand = from_operands_.data() + step.first;
        if (!is_op(step.kernel, Op::sumdot)) {
            push(step, {operand, step.words}, i);
            return;
        }
        Value quarters[4];
        std::uint32_t latest = 0;
        for (std::uint32_t k = 0; k < 4; ++k) {
            quarters[k] = quarter(step, operand, k);
            latest = std::max(latest, made_[quarters[k]]);
        }
        push({small_sum(4, 0), 0, 0, 0, 0, step.result}, quarters, latest);
    }

    Value values;
    std::vector<Step> steps;
    std::vector<std::uint32_t> places;
    std::vector<Value> operands;

   private:
    /// Terms k, k + 4, ... of either kind, in the order of instructions.h.
    Value quarter(const Step& step, const Value* operand, std::uint32_t k) {
        const Value* pairs = operand + step.n;
        Value sum = none;
        const auto add_plain = [&] {
            for (std::uint32_t i = k; i < step.n; i += 4) sum = plus(sum, operand[i]);
        };
        if (step.n >= 4) add_plain();
        for (std::uint32_t i = k; i < step.m; i += 4)
            sum = plus_product(sum, pairs[2 * i], pairs[2 * i + 1]);
        if (step.n < 4) add_plain();
        return sum;
    }

    Value plus(Value sum, Value term) {
        if (sum == none) return term;
        return push_new(small_sum(2, 0), {sum, term});
    }

    Value plus_product(Value sum, Value a, Value b) {
        if (sum == none) return push_new(small_sum(0, 1), {a, b});
        return push_new(small_sum(1, 1), {sum, a, b});
    }

    Value push_new(std::uint32_t kernel, std::initializer_list<Value> words) {
        std::uint32_t latest = 0;
        for (Value word : words) latest = std::max(latest, made_[word]);
        made_.push_back(0);
        push({kernel, 0, 0, 0, 0, values}, {words.begin(), words.size()}, latest);
        return values++;
    }

    void push(Step step, std::span<const Value> words, std::uint32_t place) {
        made_[step.result] = place;
        if (is_paired(step.kernel)) made_[step.result + 1] = place;
        step.first = static_cast<std::uint32_t>(operands.size());
        step.words = static_cast<std::uint32_t>(words.size());
        steps.push_back(step);
        places.push_back(place);
        operands.insert(operands.end(), words.begin(), words.end());
    }

    const std::vector<Step>& from_;
    const std::vector<Value>& from_operands_;
    std::vector<std::uint32_t> made_;  ///< per value, the place of its step
};

class Decoder {
   public:
    explicit Decoder(const Code& code) : code_(code), now_(code.slots, none) {}

    Steps run(std::span<const Run> runs, std::span<const std::uint32_t> recorded) {
        for (std::uint32_t i = 0; i < code_.input_count; ++i)
            out_.inputs.push_back(code_.inputs[i] == no_slot ? none : define(code_.inputs[i]));
        for (std::uint32_t i = 0; i < code_.constant_count; ++i)
            out_.constants.push_back(define(code_.constants[i].slot));
        read(runs, recorded);
        for (std::uint32_t i = 0; i < code_.output_count; ++i)
            out_.outputs.push_back(now_[code_.outputs[i]]);
        arrange();
        return std::move(out_);
    }

   private:
    /// A slot holds another value from here on.
    Value define(std::uint32_t slot) { return now_[slot] = out_.values++; }

    std::uint32_t word(std::size_t at) const {
        return code_.wide ? static_cast<const std::uint32_t*>(code_.begin)[at]
                          : static_cast<const std::uint16_t*>(code_.begin)[at];
    }

    void read(std::span<const Run> runs, std::span<const std::uint32_t> recorded) {
        stream_.resize(recorded.size());
        std::size_t at = 0, k = 0;
        for (const Run& run : runs) {
            at += run.header;
            const std::uint32_t results = is_paired(run.kernel) ? 2 : 1;
            const std::uint32_t words = record_words(run, code_) - results;
            for (std::uint32_t i = 0; i < run.count; ++i, ++k, at += results + words) {
                const auto first = static_cast<std::uint32_t>(operands_.size());
                for (std::uint32_t w = 0; w < words; ++w)
                    operands_.push_back(now_[word(at + results + w)]);
                const Value result = define(word(at));
                if (results == 2) define(word(at + 1));
                stream_[recorded[k]] = {run.kernel, run.n, run.m, first, words, result};
            }
        }
    }

    void arrange() {
        const auto count = static_cast<std::uint32_t>(stream_.size());
        Spread spread(out_.values, stream_, operands_);
        for (std::uint32_t i = 0; i < count; ++i) spread.look_at(i);
        out_.values = spread.values;
        std::vector<std::uint32_t> starts(count + 1, 0), order(spread.steps.size());
        for (std::uint32_t place : spread.places) ++starts[place + 1];
        for (std::uint32_t i = 0; i < count; ++i) starts[i + 1] += starts[i];
        for (std::uint32_t k = 0; k < order.size(); ++k) order[starts[spread.places[k]]++] = k;
        out_.steps.reserve(order.size());
        out_.uses.reserve(spread.operands.size());
        for (std::uint32_t k : order) {
            Step step = spread.steps[k];
            const auto first = spread.operands.begin() + step.first;
            step.first = static_cast<std::uint32_t>(out_.uses.size());
            out_.uses.insert(out_.uses.end(), first, first + step.words);
            out_.steps.push_back(step);
        }
    }

    const Code& code_;
    std::vector<Value> now_;  ///< per slot
    std::vector<Step> stream_;
    std::vector<Value> operands_;
    Steps out_;
};

}  // namespace

Steps decode(const Code& code, std::span<const Run> runs, std::span<const std::uint32_t> recorded) {
    return Decoder(code).run(runs, recorded);
}

}  // namespace tapegrad
