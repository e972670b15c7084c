// core/threads.cpp -- how many threads the kernels use.
#include "threads.h"

#include <pthread.h>

#include <atomic>

namespace tapegrad {
namespace {

std::atomic<bool> forked{false};
std::atomic<int> chosen{0};

/// libgomp's workers do not survive a fork, and the child would wait for them for ever.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });

}  // namespace

int thread_count(int wanted) {
    if (wanted == 1 || forked.load(std::memory_order_relaxed)) return 1;
    static const int cores = omp_get_num_procs();
    return wanted > 0 ? std::min(wanted, 4 * cores) : cores;
}

void set_threads(int wanted) { chosen.store(wanted, std::memory_order_relaxed); }

int threads() { return thread_count(chosen.load(std::memory_order_relaxed)); }

}  // namespace tapegrad
