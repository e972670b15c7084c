// core/scalar/assemble.cpp -- from a program's stream to machine code.
//
// Values get registers in the order of the steps (steps.h): when none is free, the one goes to
// memory whose next use is farthest away. Every sum is taken in the order of instructions.h, so the
// bits are those of the other executors.
#include "assemble.h"

#include <algorithm>
#include <array>

#include "steps.h"

namespace tapegrad {
namespace {

/// What is made of a kernel.
enum class Kind : std::uint8_t { none, arithmetic, function };

constexpr auto kernel_kinds = [] {
    std::array<Kind, kernel_count> kinds{};
    const auto set = [&](Op op, Kind kind) { kinds[static_cast<std::size_t>(op)] = kind; };
#define OP1(name, ...) set(Op::name, Kind::function);
#define OP2(name, ...) set(Op::name, Kind::function);
#include "ops.def"
#undef OP1
#undef OP2
    for (Op op : {Op::where, Op::prod, Op::max, Op::min, Op::logsumexp}) set(op, Kind::function);
    for (Op op : {Op::sumdot, Op::sub, Op::div, Op::square, Op::sqrt, Op::neg})
        set(op, Kind::arithmetic);
    for (std::size_t kernel = op_count; kernel < kernel_count; ++kernel)
        kinds[kernel] = kernel < kernel_sub_product ? Kind::function : Kind::arithmetic;
    kinds[kernel_sumdot_small] = Kind::none;  // a sum of nothing
    return kinds;
}();

/// Part of a sum that is not in memory yet: a register of its own, or an operand as it lies.
struct Part {
    int owned = -1;
    std::uint32_t use = none;
};

class Assembly {
   public:
    Assembly(const Steps& steps, const Target& target, std::size_t most_bytes)
        : steps_(steps),
          target_(target),
          most_bytes_(most_bytes),
          to_(target.shape, target.is_double),
          values_(steps.values),
          holds_(static_cast<std::size_t>(to_.registers()), none),
          free_((std::uint64_t{1} << to_.registers()) - 1) {
        find_next_uses();
    }

    /// False if the code gets too long, or cannot be made.
    bool run() {
        place_ends();
        const std::vector<Step>& steps = steps_.steps;
        for (std::size_t i = 0; i < steps.size();) {
            if (is_arithmetic(steps[i].kernel)) {
                assemble(steps[i++]);
            } else {
                if (target_.vector_bytes() != target_.slot_bytes) return false;
                const std::size_t end = end_of_run(i);
                call({steps.begin() + static_cast<std::ptrdiff_t>(i), end - i});
                i = end;
            }
            if (to_.code().size() > most_bytes_) return false;
        }
        to_.leave();
        return true;
    }

    Assembled finish(const Code& code) {
        Assembled out;
        out.code = Executable(to_.code());
        out.pieces = std::move(pieces_);
        out.slots = slots_;
        for (std::uint32_t i = 0; i < code.constant_count; ++i)
            out.constants.push_back({values_[steps_.constants[i]].home, code.constants[i].value});
        if (sign_ != none) out.constants.push_back({sign_, -0.0});
        for (Value input : steps_.inputs)
            out.inputs.push_back(input == none ? no_slot : values_[input].home);
        for (Value output : steps_.outputs) out.outputs.push_back(values_[output].home);
        return out;
    }

   private:
    struct Where {
        std::uint32_t uses = 0;     ///< that are still to come
        std::uint32_t next = none;  ///< the one that comes next
        std::uint32_t home = none;  ///< slot in memory
        std::int8_t at = -1;        ///< register
        bool saved = false;         ///< memory has it
        bool is_fixed = false;      ///< its slot is never given to another
    };

    void find_next_uses() {
        const std::vector<Value>& uses = steps_.uses;
        after_.resize(uses.size());
        for (std::size_t use = uses.size(); use-- > 0;) {
            after_[use] = values_[uses[use]].next;
            values_[uses[use]].next = static_cast<std::uint32_t>(use);
            ++values_[uses[use]].uses;
        }
    }

    /// Inputs and constants lie in memory to begin with, outputs have to in the end.
    void place_ends() {
        const auto fix = [&](Value value, bool saved) {
            if (value == none || values_[value].is_fixed) return;
            values_[value].home = slots_++;
            values_[value].is_fixed = true;
            values_[value].saved = saved;
        };
        for (Value input : steps_.inputs) fix(input, true);
        for (Value constant : steps_.constants) fix(constant, true);
        for (const Step& step : steps_.steps)
            if (is_op(step.kernel, Op::neg) && sign_ == none) sign_ = slots_++;
        for (Value output : steps_.outputs) fix(output, false);
    }

    std::uint32_t bytes_at(std::uint32_t slot) const { return slot * target_.slot_bytes; }

    // ---- registers ------------------------------------------------------------------------------

    /// A register that holds nothing, and is not given away before release() or define().
    int take() {
        if (!free_) evict();
        const int at = __builtin_ctzll(free_);
        free_ &= free_ - 1;
        return at;
    }

    void release(int at) {
        holds_[static_cast<std::size_t>(at)] = none;
        free_ |= std::uint64_t{1} << at;
    }

    /// Frees the register of the value whose next use is farthest away.
    void evict() {
        int farthest = -1;
        std::uint32_t most = 0;
        for (int at = 0; at < to_.registers(); ++at)
            if (const Value value = holds_[static_cast<std::size_t>(at)];
                value != none && values_[value].next >= most) {
                most = values_[value].next;
                farthest = at;
            }
        save(holds_[static_cast<std::size_t>(farthest)]);
        values_[holds_[static_cast<std::size_t>(farthest)]].at = -1;
        release(farthest);
    }

    void save(Value value) {
        Where& where = values_[value];
        if (where.saved) return;
        give_home(where);
        to_.store(where.at, bytes_at(where.home));
        where.saved = true;
    }

    void give_home(Where& where) {
        if (where.home != none) return;
        if (vacant_.empty()) vacant_.push_back(slots_++);
        where.home = vacant_.back();
        vacant_.pop_back();
    }

    void hold(Value value, int at) {
        values_[value].at = static_cast<std::int8_t>(at);
        holds_[static_cast<std::size_t>(at)] = value;
    }

    /// The value of a step: in a register that was taken.
    void define(Value value, int at) {
        hold(value, at);
        if (values_[value].is_fixed) save(value);
        if (!values_[value].uses) drop(value);
    }

    /// Nothing needs the value any more.
    void drop(Value value) {
        Where& where = values_[value];
        if (where.at >= 0) release(where.at);
        where.at = -1;
        if (where.home != none && !where.is_fixed) vacant_.push_back(where.home);
    }

    // ---- operands -------------------------------------------------------------------------------

    Value value_of(std::uint32_t use) const { return steps_.uses[use]; }
    bool in_register(std::uint32_t use) const { return values_[value_of(use)].at >= 0; }

    /// A value that lies in memory and will be wanted again soon gets a register.
    void fetch_if_soon(std::uint32_t use) {
        const Value value = value_of(use);
        if (values_[value].at >= 0 || values_[value].uses < 2 || after_[use] - use > soon) return;
        const int at = take();
        to_.load(at, bytes_at(values_[value].home));
        hold(value, at);
    }

    /// Counts a use as done: register and slot may be given to others after the last one. The uses
    /// of one step may come in any order.
    void done(std::uint32_t use) {
        const Value value = value_of(use);
        values_[value].next = std::max(values_[value].next, after_[use]);
        if (--values_[value].uses == 0) drop(value);
    }

    /// An operand in a register of its own.
    int loaded(std::uint32_t use) {
        const int at = take();
        to_.load(at, bytes_at(values_[value_of(use)].home));
        done(use);
        return at;
    }

    /// at = at (operation) operand, `at` being a register that is taken.
    void apply(Arithmetic operation, int at, std::uint32_t use) {
        fetch_if_soon(use);
        if (in_register(use))
            to_.arithmetic(operation, at, at, values_[value_of(use)].at);
        else
            to_.arithmetic_at(operation, at, at, bytes_at(values_[value_of(use)].home));
        done(use);
    }

    /// a (operation) b, in a register that is taken for it. Where both lie in memory, a is loaded.
    int combine(Arithmetic operation, std::uint32_t a, std::uint32_t b) {
        fetch_if_soon(a);
        fetch_if_soon(b);
        const bool swaps = operation == Arithmetic::add || operation == Arithmetic::multiply;
        if (swaps && !in_register(a)) std::swap(a, b);
        if (!in_register(a)) {
            const bool same = value_of(a) == value_of(b);
            const int at = take();
            to_.load(at, bytes_at(values_[value_of(a)].home));
            if (same) {
                to_.arithmetic(operation, at, at, at);
            } else if (in_register(b)) {
                to_.arithmetic(operation, at, at, values_[value_of(b)].at);
            } else {
                to_.arithmetic_at(operation, at, at, bytes_at(values_[value_of(b)].home));
            }
            done(a);
            done(b);
            return at;
        }
        // The result may take the register of an operand: that is read before it is written. An
        // operand in memory stays where it is until it was read.
        const Where x = values_[value_of(a)], y = values_[value_of(b)];
        done(a);
        if (y.at >= 0) done(b);
        const int at = take();
        if (y.at >= 0) {
            to_.arithmetic(operation, at, x.at, y.at);
        } else {
            to_.arithmetic_at(operation, at, x.at, bytes_at(y.home));
            done(b);
        }
        return at;
    }

    // ---- sums -----------------------------------------------------------------------------------

    Part sum(Part a, Part b) {
        if (a.owned < 0 && b.owned < 0) return {combine(Arithmetic::add, a.use, b.use), none};
        if (a.owned < 0) std::swap(a, b);
        if (b.owned < 0) {
            apply(Arithmetic::add, a.owned, b.use);
        } else {
            to_.arithmetic(Arithmetic::add, a.owned, a.owned, b.owned);
            release(b.owned);
        }
        return {a.owned, none};
    }

    Part product(std::uint32_t pair) {
        return {combine(Arithmetic::multiply, pair, pair + 1), none};
    }

    /// Of a short sum: plain ones, then pairs.
    struct Terms {
        std::uint32_t plain, plain_count, pairs, pair_count;
        Part term(Assembly& to, std::uint32_t i) const {
            return i < plain_count ? Part{-1, plain + i}
                                   : to.product(pairs + 2 * (i - plain_count));
        }
    };

    /// What ordered_sum() computes.
    Part ordered_sum(const Terms& terms) {
        const std::uint32_t n = terms.plain_count + terms.pair_count;
        Part total = terms.term(*this, 0);
        if (n <= 3) {
            for (std::uint32_t i = 1; i < n; ++i) total = sum(total, terms.term(*this, i));
            return total;
        }
        return in_four([&](std::uint32_t k) {
            Part part = k ? terms.term(*this, k) : total;
            for (std::uint32_t i = k + 4; i < n; i += 4) part = sum(part, terms.term(*this, i));
            return part;
        });
    }

    /// (s0 + s1) + (s2 + s3)
    template <class Quarter>
    Part in_four(Quarter quarter) {
        const Part first = quarter(0), second = quarter(1);
        const Part low = sum(first, second);
        const Part third = quarter(2), fourth = quarter(3);
        return sum(low, sum(third, fourth));
    }

    // ---- instructions ---------------------------------------------------------------------------

    void assemble(const Step& step) { define(step.result, computed(step)); }

    int computed(const Step& step) {
        const std::uint32_t a = step.first;
        if (is_op(step.kernel, Op::sub)) return combine(Arithmetic::subtract, a, a + 1);
        if (is_op(step.kernel, Op::div)) return combine(Arithmetic::divide, a, a + 1);
        if (is_op(step.kernel, Op::square)) return squared(a);
        if (is_op(step.kernel, Op::sqrt)) {
            const int at = in_own_register(a);
            to_.arithmetic(Arithmetic::sqrt, at, at, at);
            return at;
        }
        if (is_op(step.kernel, Op::neg)) {
            const int at = in_own_register(a), sign = take();
            to_.load(sign, bytes_at(sign_));
            to_.arithmetic(Arithmetic::bitwise_xor, at, at, sign);
            release(sign);
            return at;
        }
        if (step.kernel == kernel_sub_product) {
            const Part part = product(a + 1);
            const int at = in_own_register(a);
            to_.arithmetic(Arithmetic::subtract, at, at, part.owned);
            release(part.owned);
            return at;
        }
        if (step.kernel == kernel_product_sub) {
            const Part part = product(a);
            apply(Arithmetic::subtract, part.owned, a + 2);
            return part.owned;
        }
        const std::uint32_t shape = step.kernel - kernel_sumdot_small;
        const std::uint32_t plain = shape / (small_terms + 1), pairs = shape % (small_terms + 1);
        const Part part = ordered_sum({a, plain, a + plain, pairs});
        return part.owned >= 0 ? part.owned : in_own_register(part.use);
    }

    int squared(std::uint32_t use) {
        if (!in_register(use)) {
            const int at = loaded(use);
            to_.arithmetic(Arithmetic::multiply, at, at, at);
            return at;
        }
        const int from = values_[value_of(use)].at;
        done(use);
        const int at = take();
        to_.arithmetic(Arithmetic::multiply, at, from, from);
        return at;
    }

    /// An operand in a register that may be overwritten: its own, if nothing needs it any more.
    int in_own_register(std::uint32_t use) {
        if (!in_register(use)) return loaded(use);
        const Value value = value_of(use);
        const int from = values_[value].at;
        if (values_[value].uses > 1) {
            const int at = take();
            if (at != from) to_.copy(at, from);
            done(use);
            return at;
        }
        holds_[static_cast<std::size_t>(from)] = none;
        values_[value].at = -1;
        done(use);
        return from;
    }

    // ---- kernels that are called ----------------------------------------------------------------

    /// Neighbouring steps of one kernel and shape that do not need each other's results.
    std::size_t end_of_run(std::size_t begin) const {
        const std::vector<Step>& steps = steps_.steps;
        const auto belongs = [&](const Step& step) {
            const Step& first = steps[begin];
            if (step.kernel != first.kernel || step.n != first.n || step.m != first.m) return false;
            for (std::uint32_t w = 0; w < step.words; ++w)
                for (const Step* made = &first; made != &step; ++made)
                    if (value_of(step.first + w) - made->result < results_of(*made)) return false;
            return true;
        };
        std::size_t end = begin + 1;
        while (end < steps.size() && end - begin < most_called && belongs(steps[end])) ++end;
        return end;
    }

    /// A kernel reads and writes slots, and keeps no register.
    void call(std::span<const Step> run) {
        for (Value& value : holds_)
            if (value != none) {
                save(value);
                values_[value].at = -1;
                release(static_cast<int>(&value - holds_.data()));
            }
        auto piece = std::make_unique<Piece>();
        std::vector<std::uint32_t>& words = piece->words;
        const auto count = static_cast<std::uint32_t>(run.size());
        words.push_back(run[0].kernel +
                        (count == 1 ? run_alone : run_independent) * std::uint32_t{kernel_count});
        if (count > 1) words.push_back(count);
        if (is_open(run[0].kernel)) words.insert(words.end(), {run[0].n, run[0].m});
        for (const Step& step : run) {
            for (Value result = step.result; result < step.result + results_of(step); ++result) {
                give_home(values_[result]);
                values_[result].saved = true;
                words.push_back(values_[result].home);
            }
            for (std::uint32_t w = 0; w < step.words; ++w)
                words.push_back(values_[value_of(step.first + w)].home);
        }
        for (const Step& step : run) {
            for (std::uint32_t w = 0; w < step.words; ++w) done(step.first + w);
            for (Value result = step.result; result < step.result + results_of(step); ++result)
                if (!values_[result].uses) drop(result);
        }
        to_.call(reinterpret_cast<const void*>(target_.run_piece), piece.get());
        pieces_.push_back(std::move(piece));
    }

    static std::uint32_t results_of(const Step& step) { return is_paired(step.kernel) ? 2 : 1; }

    static constexpr std::size_t most_called = 64;
    /// Uses from one to the next that are worth a register.
    static constexpr std::uint32_t soon = 48;

    const Steps& steps_;
    const Target& target_;
    std::size_t most_bytes_;
    Assembler to_;
    std::vector<Where> values_;
    std::vector<std::uint32_t> after_;  ///< per use, the next one of the same value
    std::vector<Value> holds_;          ///< per register; none if it is free or taken
    std::uint64_t free_;                ///< registers, as bits
    std::uint32_t slots_ = 0, sign_ = none;
    std::vector<std::uint32_t> vacant_;  ///< slots
    std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace

bool is_arithmetic(std::uint32_t kernel) { return kernel_kinds[kernel] == Kind::arithmetic; }
bool can_be_called(std::uint32_t kernel) { return kernel_kinds[kernel] == Kind::function; }

std::optional<Assembled> assemble(const Code& code, std::span<const Run> runs,
                                  std::span<const std::uint32_t> recorded, const Target& target,
                                  std::size_t most_bytes) {
    const Steps steps = decode(code, runs, recorded);
    if (steps.uses.size() > most_bytes / 4) return {};  // it would not fit
    Assembly assembly(steps, target, most_bytes);
    if (!assembly.run()) return {};
    Assembled out = assembly.finish(code);
    for (const auto& piece : out.pieces) {
        piece->code = {};
        piece->code.begin = piece->words.data();
        piece->code.end = piece->words.data() + piece->words.size();
        piece->code.wide = true;
    }
    if (!out.code) return {};
    return out;
}

}  // namespace tapegrad
