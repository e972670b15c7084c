// core/crew.cpp -- a list of calls for help, and the threads that answer them.
#include "crew.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tapegrad {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a helper looks out for the next call before it sleeps, and a caller for the end of what
/// helpers have begun: to wake a thread takes 50 us, and milliseconds where a virtual core sleeps.
constexpr std::chrono::microseconds patience{500};
/// The lock is held for less time than it takes to fall asleep.
constexpr int lock_attempts = 1'000;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

/// Waits busily until done(), but not for long; tells whether it is.
template <class Done>
bool is_soon(Done done) {
    const Clock::time_point end = Clock::now() + patience;
    for (int turn = 1; !done(); ++turn) {
        pause();
        if (turn % 16 == 0 && Clock::now() > end) return done();
    }
    return true;
}

/// A call for help, on the stack of who calls.
struct Call {
    void (*body)(void*);
    void* data;
    int places;                   ///< for helpers that have not come yet
    std::atomic<int> at_work{0};  ///< helpers that have come and not gone
};

class Crew {
   public:
    void help(int helpers, void (*body)(void*), void* data) {
        Call call{body, data, helpers};
        announce(call);
        body(data);
        conclude(call);
    }

   private:
    std::unique_lock<std::mutex> locked() {
        std::unique_lock lock(mutex_, std::defer_lock);
        for (int attempt = 0; attempt < lock_attempts; ++attempt) {
            if (lock.try_lock()) return lock;
            pause();
        }
        lock.lock();
        return lock;
    }

    void announce(Call& call) {
        int sleepers = 0;
        {
            const auto lock = locked();
            hire(call.places);
            open_.push_back(&call);
            sleepers = std::min(asleep_, call.places);
        }
        announced_.fetch_add(1, std::memory_order_release);
        for (; sleepers > 0; --sleepers) wanted_.notify_one();
    }

    /// Nobody comes any more; waits for those who have come.
    void conclude(Call& call) {
        {
            const auto lock = locked();
            std::erase(open_, &call);
        }
        const auto gone = [&] { return call.at_work.load(std::memory_order_acquire) == 0; };
        if (is_soon(gone)) return;
        std::unique_lock lock(mutex_);
        left_.wait(lock, gone);
    }

    /// Under the lock. Signals are left to the threads of the program. Where the system has no
    /// thread left, there are fewer.
    void hire(int wanted) {
        if (hired_ >= wanted) return;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (; hired_ < wanted; ++hired_) std::thread([this] { serve(); }).detach();
        } catch (const std::system_error&) {
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    /// The life of a helper.
    void serve() {
        auto lock = locked();
        for (;;) {
            if (!open_.empty()) {
                Call& call = *open_.front();
                if (--call.places == 0) open_.erase(open_.begin());
                call.at_work.fetch_add(1, std::memory_order_relaxed);
                lock.unlock();
                call.body(call.data);
                lock = locked();
                // With the last one the call may be gone.
                if (call.at_work.fetch_sub(1, std::memory_order_release) == 1) left_.notify_all();
                continue;
            }
            const std::uint32_t heard = announced_.load(std::memory_order_relaxed);
            lock.unlock();
            const bool called =
                is_soon([&] { return announced_.load(std::memory_order_acquire) != heard; });
            lock = locked();
            if (called) continue;
            ++asleep_;
            wanted_.wait(lock, [this] { return !open_.empty(); });
            --asleep_;
        }
    }

    std::mutex mutex_;
    std::condition_variable wanted_, left_;
    std::vector<Call*> open_;  ///< in the order in which they came
    int hired_ = 0, asleep_ = 0;
    std::atomic<std::uint32_t> announced_{0};
};

}  // namespace

void with_help(int helpers, void (*body)(void*), void* data) {
    if (helpers <= 0) return body(data);
    static Crew& crew = *new Crew;  // its threads are there until the process ends
    crew.help(helpers, body, data);
}

}  // namespace tapegrad
