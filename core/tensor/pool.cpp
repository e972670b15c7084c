// core/tensor/pool.cpp -- memory for results and scratch, kept for reuse.
#include "pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace tapegrad {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2 * 1024 * 1024;
/// From here on blocks start at huge pages and ask for them.
constexpr std::size_t huge_from = 4 * huge_page;
constexpr int steps_per_octave = 8;

/// Sizes up to an eighth of an octave above `bytes` share a class.
struct SizeClass {
    std::size_t index, bytes;
};

SizeClass class_of(std::size_t bytes) {
    const int octave = std::bit_width(bytes - 1) - 1;
    const std::size_t step = (std::size_t{1} << octave) / steps_per_octave;
    const std::size_t steps = (bytes - (std::size_t{1} << octave) + step - 1) / step;
    return {static_cast<std::size_t>(octave) * steps_per_octave + steps,
            (std::size_t{1} << octave) + steps * step};
}

struct Pool {
    std::mutex mutex;
    std::vector<void*> kept[64 * steps_per_octave + 1];
    PoolBytes bytes{};
    /// A quarter of the memory may lie idle.
    const std::size_t limit = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                              static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / 4;

    void* take(std::size_t index, std::size_t size) {
        std::lock_guard lock(mutex);
        bytes.used += size;
        if (kept[index].empty()) return nullptr;
        void* block = kept[index].back();
        kept[index].pop_back();
        bytes.kept -= size;
        return block;
    }
    /// Whether it was kept.
    bool give(void* block, std::size_t index, std::size_t size) {
        std::lock_guard lock(mutex);
        bytes.used -= size;
        if (bytes.kept + size > limit) return false;
        kept[index].push_back(block);
        bytes.kept += size;
        return true;
    }
};

/// Never destroyed: arrays may be given back after the last static object is gone.
Pool& pool() {
    static Pool& the = *new Pool;
    // A fork while another thread holds the lock would leave it locked in the child for ever.
    static const int handler = pthread_atfork(
        [] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); }, [] { pool().mutex.unlock(); });
    (void)handler;
    return the;
}

void* fresh(std::size_t bytes) {
    const std::size_t alignment = bytes >= huge_from ? huge_page
                                  : bytes >= page    ? page
                                                     : cache_line;
    void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#ifdef MADV_HUGEPAGE
    if (block && bytes >= huge_from) madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

}  // namespace

void* take_block(std::size_t bytes) {
    if (bytes < pooled_from)
        return std::aligned_alloc(cache_line, bytes / cache_line * cache_line + cache_line);
    if (bytes > std::size_t{1} << 62) return nullptr;
    const SizeClass size = class_of(bytes);
    if (void* kept = pool().take(size.index, size.bytes)) return kept;
    void* block = fresh(size.bytes);
    if (!block) {
        empty_pool();
        block = fresh(size.bytes);
    }
    if (!block) {
        std::lock_guard lock(pool().mutex);
        pool().bytes.used -= size.bytes;
    }
    return block;
}

void give_block(void* block, std::size_t bytes) {
    if (!block) return;
    if (bytes >= pooled_from) {
        const SizeClass size = class_of(bytes);
        if (pool().give(block, size.index, size.bytes)) return;
    }
    std::free(block);
}

PoolBytes pool_bytes() {
    std::lock_guard lock(pool().mutex);
    return pool().bytes;
}

void empty_pool() {
    std::lock_guard lock(pool().mutex);
    for (auto& blocks : pool().kept) {
        for (void* block : blocks) std::free(block);
        blocks.clear();
    }
    pool().bytes.kept = 0;
}

}  // namespace tapegrad
