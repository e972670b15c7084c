// core/threads.cpp -- how many threads the kernels use.
#include "threads.h"

#include <pthread.h>
#include <time.h>

namespace tapegrad {
namespace {

/// Work, some 100 us, below which another thread takes longer to wake than to work.
constexpr double thread_work = 500e3;
/// How long an instruction takes in one lane.
constexpr double work_nanoseconds = 0.2;
/// Threads that came late are not called for so many times as long as they were waited for...
constexpr std::int64_t pause_per_wait = 16;
/// ...unless the work takes so many times as long, and gains by late ones, too...
constexpr double work_per_wait = 4;
/// ...or the wait, per thread, is what making or waking one takes anyway.
constexpr std::int64_t least_wait = 50'000;
constexpr int most_halvings = 8;

/// The last wait, until when it counts on the steady clock, and how often the number of threads is
/// halved.
std::atomic<std::int64_t> last_wait{0}, pause_end{0};
std::atomic<int> halvings{0};

std::int64_t nanoseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

std::int64_t now() { return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()); }

/// Processor time of this thread.
std::int64_t thread_nanoseconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

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

int threads_worth(double work, int wanted) {
    if (work < thread_work) return 1;
    return static_cast<int>(std::min<double>(thread_count(wanted), 1 + work / thread_work));
}

int threads_now(double work, int wanted) {
    const int count = threads_worth(work, wanted), halved = halvings.load();
    if (count == 1 || !halved) return count;
    if (work * work_nanoseconds > work_per_wait * static_cast<double>(last_wait.load()))
        return count;
    if (now() < pause_end.load()) return std::max(1, count >> halved);
    halvings.store(0);
    return count;
}

std::int64_t Attendance::comes() {
    if (omp_get_thread_num()) return thread_nanoseconds();
    caller_came_ = Clock::now();
    return 0;
}

void Attendance::leaves(std::int64_t before) {
    const Clock::time_point left = Clock::now();
    if (omp_get_thread_num() == 0) {
        caller_left_ = left;
        return;
    }
    const std::int64_t idle = nanoseconds(left - start_) - (thread_nanoseconds() - before);
    std::int64_t most = idle_.load();
    while (idle > most && !idle_.compare_exchange_weak(most, idle)) {
    }
}

void Attendance::ends() const {
    const std::int64_t waited = nanoseconds(caller_came_ - start_) +
                                std::min(nanoseconds(Clock::now() - caller_left_), idle_.load());
    if (waited < least_wait * threads_) return;
    last_wait.store(waited);
    pause_end.store(now() + pause_per_wait * waited);
    halvings.store(std::min(most_halvings, halvings.load() + 1));
}

void set_threads(int wanted) { chosen.store(wanted, std::memory_order_relaxed); }

int threads() { return thread_count(chosen.load(std::memory_order_relaxed)); }

}  // namespace tapegrad
