// core/scalar/runner.h -- evaluates a program at one point, or at many points in lanes and threads.
//
// Rows are evaluated `width` at a time. The width is the widest (up to 256 lanes) with which all
// slots fit in the second-level cache, or in three eighths of it if runs are long, so that
// dispatching them costs little anyway; and at least one cache line. Blocks of many rows take up to
// four, out of the third-level cache. A tail of fewer rows is filled up with copies of its last row
// and runs the same code, so a row's bits depend on that row alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "crew.h"
#include "locks.h"
#include "program.h"
#include "rates.h"
#include "rows.h"
#include "sums.h"
#include "threads.h"

namespace tapegrad {

/// Slots for `width` lanes, with the constants in place.
template <class T>
class Workspace {
   public:
    Workspace(const Program& program, int width);
    T* slots() const { return slots_; }
    T* slot(std::uint32_t index) const {
        return slots_ + static_cast<std::size_t>(index) * static_cast<std::size_t>(width_);
    }
    int width() const { return width_; }
    SlotLanes<T> lanes() const { return {slots_, static_cast<std::size_t>(width_)}; }

   private:
    struct Free {
        void operator()(void* memory) const;
    };
    std::unique_ptr<void, Free> memory_;
    T* slots_;
    int width_;
};

/// The outputs of a block of rows.
template <class T>
struct RowBlock {
    const Code& code;
    const Workspace<T>& workspace;
    std::size_t first, rows;

    const T* output(std::size_t i) const { return workspace.slot(code.outputs[i]); }
};

/// Lanes that fill a cache line; no block of rows has fewer.
template <class T>
constexpr std::size_t least_width = 64 / sizeof(T);

template <class T>
class Runner {
   public:
    explicit Runner(std::shared_ptr<const Program> program);

    const Program& program() const { return *program_; }
    int width() const { return width_; }
    /// Lanes of a block of so many rows: more where there are many.
    int width_for(std::size_t rows, int threads) const;
    int many_width() const { return many_width_; }
    std::size_t workspace_bytes() const {
        return sizeof(T) * program_->total_slots() * static_cast<std::size_t>(width_);
    }

    /// One point: x has one element per input; values, then derivatives row by row.
    void one(const T* x, T* values, T* derivatives) const;
    /// Many rows. Sums over rows are taken in fixed pieces in index order: the same bits for any
    /// number of threads.
    void rows(const InputRows<T>* inputs, const OutputRows<T>* outputs, std::size_t count,
              int threads) const;
    /// Evaluates many rows and adds up what `collect(block, sums)` adds to `sums` for a block of
    /// them: sum_lanes partial sums for each of the totals. Pieces of rows and the order in which
    /// they are added are fixed, whatever the number of threads. What depends on shared inputs
    /// alone is computed once.
    template <class Collect>
    void sum_over_rows(const InputRows<T>* inputs, std::size_t count, int threads,
                       std::vector<T>& totals, Collect collect) const;

    /// Instructions of so many rows, with what each takes to come and go.
    double work(std::size_t rows) const {
        return static_cast<double>(rows) * (program_->stats().work + 10);
    }
    /// Lanes of a block of starts: as many as suit the program, unless half of them or a thread had
    /// no start.
    int lanes_for(std::size_t starts, int threads) const;
    /// What evaluates so many points more, `lanes` at a time: this, or the runner of the program's
    /// machine code, which is made once so many were evaluated that it pays. It takes that many
    /// lanes and no others.
    const Runner& in_lanes(int lanes, std::size_t count) const;
    /// Makes machine code for so many points and rows to come, if they are worth it.
    void prepare(std::size_t points, std::size_t rows) const {
        if (points) in_lanes(1, points);
        if (rows) in_lanes(row_lanes_, rows);
    }
    /// Bytes of the machine code that was made for rows, and for one point at a time.
    std::size_t row_code_bytes() const { return code_bytes(row_lanes_); }
    std::size_t point_code_bytes() const { return code_bytes(1); }

    /// The runner of the pinned program with these inputs shared, or null if there is none.
    const Runner* pinned(const std::vector<char>& shared) const;

    /// A workspace of this width, new or used before; returned when the lease ends.
    class Lease {
       public:
        Lease(const Runner& runner, int width) : runner_(runner), workspace_(runner.take(width)) {}
        ~Lease() { runner_.give(std::move(workspace_)); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        const Workspace<T>& operator*() const { return *workspace_; }
        const Workspace<T>* operator->() const { return workspace_.get(); }

       private:
        const Runner& runner_;
        std::unique_ptr<Workspace<T>> workspace_;
    };

   private:
    /// Machine code for one number of lanes.
    struct Machine {
        std::atomic<std::size_t> asked = 0;  ///< evaluations so far
        std::atomic<const Runner*> made = nullptr;
        /// The process whose thread makes it, or one of the below. No lock: a fork would leave it
        /// locked in the child for ever.
        std::atomic<int> maker = nobody;
        const Isa* isa = nullptr;
        std::unique_ptr<Runner> runner = nullptr;
    };
    static constexpr int nobody = 0, tried = -1;
    /// Lanes of up to 2^8.
    static constexpr std::size_t machine_count = 9;
    Machine& machine(int lanes) const;
    void make(Machine& machine, int lanes) const;
    /// Makes it, unless another thread does: those that have many points wait for that.
    void make_once(Machine& machine, int lanes, bool waits) const;
    std::size_t code_bytes(int lanes) const;
    std::unique_ptr<Workspace<T>> take(int width) const;
    void give(std::unique_ptr<Workspace<T>> workspace) const;
    template <class Collect>
    void sum_pieces(const InputRows<T>* inputs, std::size_t count, int threads,
                    std::vector<T>& totals, Collect collect) const;
    /// Calls body(runner, inputs) with what has to run for every row: this, or its part.
    template <class Body>
    void in_parts(const InputRows<T>* inputs, std::size_t count, Body body) const;
    /// The program in two parts, or null if that saves nothing with these inputs shared.
    struct Parts;
    const Parts* parts_for(const InputRows<T>* inputs) const;
    /// The inputs, and behind them values that all rows share, which `values` keeps.
    static std::vector<InputRows<T>> with_shared(const Parts& parts, const InputRows<T>* inputs,
                                                 std::vector<T>& values);

    std::shared_ptr<const Program> program_;
    int width_;                                            ///< lanes of a block
    int many_width_;                                       ///< the same, of many rows
    int row_lanes_;                                        ///< of machine code for rows
    mutable std::array<Machine, machine_count> machines_;  ///< by the logarithm of their lanes
    mutable std::vector<std::unique_ptr<Workspace<T>>> idle_;
    mutable std::map<std::vector<char>, std::unique_ptr<Parts>> parts_;  ///< by shared inputs
    mutable std::map<std::vector<char>, std::unique_ptr<Runner>> pinned_;
};

template <class T>
struct Runner<T>::Parts {
    Runner shared, rows;
};

constexpr std::size_t ranges_per_thread = 8;

/// The ranges that make up [0, count), for threads that take one after the other: one that others
/// keep from running delays the rest by no more than its last range.
template <class T, class Body>
class Ranges {
   public:
    Ranges(const Runner<T>& runner, int width, std::size_t count, int threads, Body& body)
        : runner_(runner),
          width_(width),
          count_(count),
          range_(std::max<std::size_t>(
              1, count / (static_cast<std::size_t>(threads) * ranges_per_thread))),
          body_(body) {}

    /// Calls body(workspace, low, high) for ranges as long as there are some.
    void work() {
        if (next_.load() >= count_) return;
        try {
            typename Runner<T>::Lease workspace(runner_, width_);
            for (std::size_t low; (low = next_.fetch_add(range_)) < count_;)
                body_(*workspace, low, std::min(count_, low + range_));
        } catch (...) {
            std::lock_guard lock(lock_of(this));
            failure_ = std::current_exception();
        }
    }

    /// Throws what a body threw.
    void end() const {
        if (failure_) std::rethrow_exception(failure_);
    }

   private:
    const Runner<T>& runner_;
    int width_;
    std::size_t count_, range_;
    Body& body_;
    std::atomic<std::size_t> next_{0};
    std::exception_ptr failure_;
};

/// Calls body(workspace, low, high) for ranges that make up [0, count), with a workspace for each
/// of `threads`, in all of which run(threads, work) calls work(). What a body throws is thrown
/// here.
template <class T, class Body, class Run>
void over_ranges(const Runner<T>& runner, int width, std::size_t count, int threads, Body body,
                 Run run) {
    threads = static_cast<int>(
        std::min(static_cast<std::size_t>(thread_count(threads)), std::max<std::size_t>(count, 1)));
    if (threads <= 1) {
        typename Runner<T>::Lease workspace(runner, width);
        return body(*workspace, std::size_t{0}, count);
    }
    Ranges<T, Body> ranges(runner, width, count, threads, body);
    run(threads, [&] { ranges.work(); });
    ranges.end();
}

/// In the threads that kernels on arrays use.
template <class T, class Body>
void over_ranges(const Runner<T>& runner, int width, std::size_t count, int threads, Body body) {
    over_ranges(runner, width, count, threads, body, [](int wanted, auto work) {
#pragma omp parallel num_threads(wanted)
        work();
    });
}

/// So many lanes' instructions, for at most so many threads (0: all cores).
struct Work {
    double instructions;
    int threads;
};

/// With as many helpers as the work is worth.
template <class T, class Body>
void over_ranges(const Runner<T>& runner, int width, std::size_t count, Work work, Body body) {
    over_ranges(runner, width, count, threads_worth(work.instructions, work.threads), body,
                [](int wanted, auto share) { with_help(wanted - 1, share); });
}

template <class T>
template <class Collect>
void Runner<T>::sum_over_rows(const InputRows<T>* inputs, std::size_t count, int threads,
                              std::vector<T>& totals, Collect collect) const {
    in_parts(inputs, count, [&](const Runner& runner, const InputRows<T>* all) {
        runner.sum_pieces(all, count, threads, totals, collect);
    });
}

template <class T>
template <class Body>
void Runner<T>::in_parts(const InputRows<T>* inputs, std::size_t count, Body body) const {
    const Parts* parts = count >= sum_piece ? parts_for(inputs) : nullptr;
    if (!parts) return body(in_lanes(row_lanes_, count), inputs);
    std::vector<T> values;
    const std::vector<InputRows<T>> all = with_shared(*parts, inputs, values);
    const Runner& rows = parts->rows;
    body(rows.in_lanes(rows.row_lanes_, count), all.data());
}

template <class T>
template <class Collect>
void Runner<T>::sum_pieces(const InputRows<T>* inputs, std::size_t count, int threads,
                           std::vector<T>& totals, Collect collect) const {
    const Code& code = program_->code();
    const int lanes = width_for(count, threads);
    const auto width = static_cast<std::size_t>(lanes);
    const std::size_t piece = totals.empty() ? width : sum_piece;
    const std::size_t pieces = (count + piece - 1) / piece;
    std::vector<T> partial(pieces * totals.size());
    const Gather<T> gather(code, inputs);
    const auto run_piece = [&](const Workspace<T>& workspace, std::vector<T>& sums, std::size_t p) {
        std::fill(sums.begin(), sums.end(), T(0));
        const std::size_t end = std::min(count, (p + 1) * piece);
        for (std::size_t first = p * piece; first < end; first += width) {
            const std::size_t rows = std::min(width, end - first);
            gather.fill(workspace.lanes(), first, rows);
            kernels<T>().lanes(code, workspace.slots(), lanes);
            collect(RowBlock<T>{code, workspace, first, rows}, sums.data());
        }
        for (std::size_t s = 0; s < totals.size(); ++s)
            partial[p * totals.size() + s] =
                pairwise_sum(sums.data() + s * sum_lanes, sum_lanes, 1);
    };
    over_ranges(*this, lanes, pieces, Work{work(count), threads},
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    std::vector<T> sums(totals.size() * sum_lanes);
                    for (std::size_t p = low; p < high; ++p) run_piece(workspace, sums, p);
                });
    for (std::size_t s = 0; s < totals.size(); ++s)
        totals[s] = pairwise_sum(partial.data() + s, pieces, totals.size());
}

}  // namespace tapegrad
