// core/threads.cpp -- how many threads the kernels use.
#include "threads.h"

#include <pthread.h>

#include <atomic>

namespace tapegrad {
namespace {

/// Work, some 100 us, below which another thread takes longer to wake than to work.
constexpr double thread_work = 500e3;

std::atomic<bool> forked{false};
std::atomic<int> chosen{0};

/// No worker survives a fork, and the child would wait for libgomp's for ever.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });

}  // namespace

int thread_count(int wanted) {
    if (wanted == 1 || forked.load(std::memory_order_relaxed)) return 1;
    static const int cores = omp_get_num_procs();
    return wanted > 0 ? std::min(wanted, 4 * cores) : cores;
}

int threads_worth(double work, int wanted) {
    if (work < thread_work) return 1;
    return static_cast<int>(std::min<double>(thread_count(wanted), 1 + work / thread_work));
}

void set_threads(int wanted) { chosen.store(wanted, std::memory_order_relaxed); }

int threads() { return thread_count(chosen.load(std::memory_order_relaxed)); }

}  // namespace tapegrad
