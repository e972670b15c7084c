// core/tensor/pool.cpp -- memory for results and scratch, kept for reuse.
#include "pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace tapegrad {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2 * 1024 * 1024;
/// Regions grow with what there is, so that there are few, but not beyond need.
constexpr std::size_t smallest_region = 16 * huge_page, largest_spare = 512 * huge_page;

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

/// Address space of so many bytes that begins and ends at huge pages; nullptr if there is none.
char* map_region(std::size_t bytes) {
    const std::size_t room = bytes + huge_page;
    void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(mapped);
    const std::size_t before = rounded(reinterpret_cast<std::uintptr_t>(begin), huge_page) -
                               reinterpret_cast<std::uintptr_t>(begin);
    if (before) munmap(begin, before);
    if (huge_page - before) munmap(begin + before + bytes, huge_page - before);
#ifdef MADV_HUGEPAGE
    madvise(begin + before, bytes, MADV_HUGEPAGE);
#endif
    return begin + before;
}

class Pool {
   public:
    std::mutex mutex;

    /// Memory for at least so many bytes; nullptr if the system has none.
    void* take(std::size_t bytes) {
        const std::size_t size = rounded(bytes, page);
        const std::lock_guard lock(mutex);
        auto found = free_.lower_bound({size, nullptr});
        if (found == free_.end()) {
            if (!grow(size)) return nullptr;
            found = free_.lower_bound({size, nullptr});
        }
        char* at = found->second;
        free_.erase(found);
        Block& block = blocks_.find(at)->second;
        block.free = false;
        if (block.bytes - size >= pooled_from) cut(at, block, size);
        bytes_.kept -= std::exchange(block.kept, 0);
        bytes_.used += block.bytes;
        return at;
    }

    void give(void* memory) {
        const std::lock_guard lock(mutex);
        auto at = blocks_.find(static_cast<char*>(memory));
        at->second.free = true;
        at->second.kept = at->second.bytes;
        bytes_.used -= at->second.bytes;
        bytes_.kept += at->second.bytes;
        if (const auto next = std::next(at); next != blocks_.end()) join(at, next);
        if (at != blocks_.begin())
            if (const auto before = std::prev(at); join(before, at)) at = before;
        free_.emplace(at->second.bytes, at->first);
        if (bytes_.kept > limit_) release(at->first, at->second);
    }

    PoolBytes bytes() {
        const std::lock_guard lock(mutex);
        return bytes_;
    }

    void empty() {
        const std::lock_guard lock(mutex);
        empty_unlocked();
    }

   private:
    /// A stretch of a region; the blocks of a region tile it.
    struct Block {
        std::size_t bytes;
        std::size_t kept = 0;  ///< of a free one: bytes that may hold pages
        bool free = true;
        bool opens = false;  ///< a region: what lies before is another one
    };
    using Blocks = std::map<char*, Block>;

    /// Adds a region for at least so many bytes.
    bool grow(std::size_t size) {
        const std::size_t spare = std::clamp(mapped_, smallest_region, largest_spare);
        std::size_t region = rounded(std::max(size, spare), huge_page);
        char* begin = map_region(region);
        if (!begin) {
            empty_unlocked();
            begin = map_region(region = rounded(size, huge_page));
        }
        if (!begin) return false;
        mapped_ += region;
        blocks_.emplace(begin, Block{.bytes = region, .opens = true});
        free_.emplace(region, begin);
        return true;
    }

    /// Unmaps regions that are free as a whole, and returns the pages of other free blocks.
    void empty_unlocked() {
        for (auto at = blocks_.begin(); at != blocks_.end();) {
            const auto next = std::next(at);
            auto& [begin, block] = *at;
            if (block.free) {
                release(begin, block);
                if (block.opens && (next == blocks_.end() || next->second.opens)) {
                    munmap(begin, block.bytes);
                    mapped_ -= block.bytes;
                    free_.erase({block.bytes, begin});
                    blocks_.erase(at);
                }
            }
            at = next;
        }
    }

    /// Leaves `size` bytes in the block; the rest is free.
    void cut(char* at, Block& block, std::size_t size) {
        const std::size_t own = std::min(block.kept, size);
        const Block rest{.bytes = block.bytes - size, .kept = block.kept - own};
        block.bytes = size;
        block.kept = own;
        blocks_.emplace(at + size, rest);
        free_.emplace(rest.bytes, at + size);
    }

    /// Joins two neighbours if both are free and of one region. Their entries in free_ go.
    bool join(Blocks::iterator left, Blocks::iterator right) {
        if (!left->second.free || !right->second.free || right->second.opens) return false;
        free_.erase({left->second.bytes, left->first});
        free_.erase({right->second.bytes, right->first});
        left->second.bytes += right->second.bytes;
        left->second.kept += right->second.kept;
        blocks_.erase(right);
        return true;
    }

    /// Returns the pages of a free block; its addresses stay ours.
    void release(char* at, Block& block) {
        if (!block.kept) return;
        madvise(at, block.bytes, MADV_DONTNEED);
        bytes_.kept -= std::exchange(block.kept, 0);
    }

    Blocks blocks_;
    std::set<std::pair<std::size_t, char*>> free_;  ///< by size, then by address
    PoolBytes bytes_{};
    std::size_t mapped_ = 0;
    /// A quarter of the memory may lie idle.
    const std::size_t limit_ = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / 4;
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

}  // namespace

void* take_block(std::size_t bytes) {
    if (bytes < pooled_from)
        return std::aligned_alloc(cache_line, bytes / cache_line * cache_line + cache_line);
    if (bytes > std::size_t{1} << 62) return nullptr;
    return pool().take(bytes);
}

void give_block(void* block, std::size_t bytes) {
    if (!block) return;
    if (bytes < pooled_from)
        std::free(block);
    else
        pool().give(block);
}

PoolBytes pool_bytes() { return pool().bytes(); }

void empty_pool() { pool().empty(); }

}  // namespace tapegrad
