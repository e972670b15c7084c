// core/locks.cpp -- locks that are held for moments, and that a fork finds open.
#include "locks.h"

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapegrad {
namespace {

constexpr int bits = 5;

/// A cache line each, so that threads with different objects do not wait for each other's.
struct alignas(64) Lock {
    std::mutex mutex;
};

std::array<Lock, std::size_t{1} << bits> locks;

void open_all() {
    for (Lock& lock : locks) lock.mutex.unlock();
}

[[maybe_unused]] const int fork_handler = pthread_atfork(
    [] {
        for (Lock& lock : locks) lock.mutex.lock();
    },
    open_all, open_all);

}  // namespace

std::mutex& lock_of(const void* object) {
    const std::uint64_t spread = reinterpret_cast<std::uintptr_t>(object) * 0x9e3779b97f4a7c15u;
    return locks[spread >> (64 - bits)].mutex;
}

}  // namespace tapegrad
