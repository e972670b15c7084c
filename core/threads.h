// core/threads.h -- how many threads the kernels use, and loops over ranges on them.
//
// The threads are libgomp's, one pool for all extension modules of the process.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tapegrad {

/// Threads to use for `wanted` (0: all cores), at most four a core. One in a forked child, where
/// the pool is gone.
int thread_count(int wanted);

/// Threads that are worth their start for so many lanes' instructions, of `wanted` (0: all cores).
int threads_worth(double work, int wanted);
/// The same now: fewer for a while where threads came late, since others have the cores.
int threads_now(double work, int wanted);

/// Finds out how long the caller of a parallel region waits for threads that others keep from
/// running, at its beginning for those that have not left the last one, at its end for those of
/// this one. libgomp waits busily: on cores that are taken, a region of 0.1 ms may take 20 ms, and
/// as much processor time.
class Attendance {
   public:
    explicit Attendance(int threads) : threads_(threads) {}
    /// This thread comes; returns its processor time so far, in nanoseconds.
    std::int64_t comes();
    /// It has nothing more to do; `before` is what comes() gave.
    void leaves(std::int64_t before);
    /// All have left; threads_now() keeps in mind what was waited for.
    void ends() const;

   private:
    using Clock = std::chrono::steady_clock;

    int threads_;
    Clock::time_point start_ = Clock::now(), caller_came_ = start_, caller_left_ = start_;
    std::atomic<std::int64_t> idle_{0};  ///< the most nanoseconds that another thread did not run
};

/// Threads that in_parallel uses; 0 for all cores. Each extension module has a setting of its own.
void set_threads(int wanted);
int threads();

/// Below so many elements of work the start of a parallel region costs more than it saves.
constexpr std::int64_t parallel_from = 32 * 1024;

/// Parts that in_parallel makes of `count` items with `work` elements in all.
inline int parts_of(std::int64_t count, std::int64_t work) {
    if (work < parallel_from || count < 2) return 1;
    return static_cast<int>(
        std::min({static_cast<std::int64_t>(threads()), count, work / (parallel_from / 2)}));
}

/// Calls body(part, low, high) for `parts` contiguous ranges of [0, count); the body must not
/// throw.
template <class Body>
void in_parts(std::int64_t count, int parts, Body body) {
    if (parts <= 1) return body(0, std::int64_t{0}, count);
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int part = 0; part < parts; ++part)
        body(part, count * part / parts, count * (part + 1) / parts);
}

/// Calls body(low, high) for contiguous ranges of [0, count), one per thread.
template <class Body>
void in_parallel(std::int64_t count, std::int64_t work, Body body) {
    in_parts(count, parts_of(count, work),
             [&](int, std::int64_t low, std::int64_t high) { body(low, high); });
}

}  // namespace tapegrad
