// core/scalar/executable.cpp -- pages from the system.
//
// Large code lies in huge pages where the system has some: a run reads it once from end to end, and
// 4 KiB pages lie in memory as it happens, where some share places of the second-level cache with
// the slots.
#include "executable.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace tapegrad {
namespace {

constexpr std::size_t huge_page = 2 * 1024 * 1024;

std::atomic<int> count = 0, count_huge = 0;

std::uint8_t* map(std::size_t bytes) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(pages);
}

/// Whole huge pages. All of them change their protection later, or the system would split them.
std::uint8_t* map_huge(std::size_t bytes) {
    std::uint8_t* const pages = map(bytes + huge_page);
    if (!pages) return nullptr;
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(pages) % huge_page;
    if (before) munmap(pages, before);
    munmap(pages + before + bytes, huge_page - before);
#ifdef MADV_HUGEPAGE
    madvise(pages + before, bytes, MADV_HUGEPAGE);
#endif
    return pages + before;
}

}  // namespace

Executable::Executable(std::span<const std::uint8_t> code) {
    if (count.load(std::memory_order_relaxed) >= most) return;
    std::size_t mapped = (code.size() + huge_page - 1) / huge_page * huge_page;
    const bool many = code.size() >= huge_page / 8 && count_huge.load() < most_huge;
    std::uint8_t* pages = many ? map_huge(mapped) : nullptr;
    const bool huge = pages;
    if (!huge) pages = map(mapped = code.size());
    if (!pages) return;
    std::memcpy(pages, code.data(), code.size());
    if (mprotect(pages, mapped, PROT_READ | PROT_EXEC) != 0) {
        munmap(pages, mapped);
        return;
    }
    ++count;
    count_huge += huge;
    memory_ = pages;
    bytes_ = code.size();
    mapped_ = mapped;
    huge_ = huge;
}

Executable::~Executable() {
    if (!memory_) return;
    munmap(memory_, mapped_);
    --count;
    count_huge -= huge_;
}

void Executable::swap(Executable& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(huge_, other.huge_);
}

}  // namespace tapegrad
