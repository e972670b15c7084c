// tests/core/crew_stress.cpp -- many callers share the crew, also from within its work.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "crew.h"

namespace {

constexpr int callers = 6, calls = 1'500;

/// Adds up the numbers below n, one at a time; the one in the middle calls for help itself.
long sum(int helpers, long n, int depth) {
    std::atomic<long> next{0}, total{0};
    tapegrad::with_help(helpers, [&] {
        long own = 0;
        for (long i; (i = next.fetch_add(1)) < n; own += i)
            if (depth && i == n / 2) sum(helpers, 50, depth - 1);
        total += own;
    });
    return total;
}

}  // namespace

int main() {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < callers; ++t)
        threads.emplace_back([&wrong, t] {
            for (int call = 0; call < calls; ++call) {
                const long n = 1 + (call * 7 + t) % 300;
                wrong += sum(1 + (call + t) % 5, n, 2) != n * (n - 1) / 2;
                // Long enough for helpers to fall asleep.
                if (call % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
            }
        });
    for (std::thread& each : threads) each.join();
    std::printf("%d wrong\n", wrong.load());
}
