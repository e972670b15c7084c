// core/threads.h -- how many threads the kernels use, and loops over ranges on them.
//
// These loops are on libgomp's threads, one pool for all extension modules of the process and for
// oneDNN. Scalar programs have helpers of their own (crew.h).
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace tapegrad {

/// Threads to use for `wanted` (0: all cores), at most four a core. One in a forked child, where
/// the pool is gone.
int thread_count(int wanted);

/// Threads that are worth their start for so many lanes' instructions, of `wanted` (0: all cores).
int threads_worth(double work, int wanted);

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
