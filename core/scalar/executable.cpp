// core/scalar/executable.cpp -- pages from the system.
#include "executable.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace tapegrad {
namespace {

std::atomic<int> count = 0;

}  // namespace

Executable::Executable(std::span<const std::uint8_t> code) {
    if (count.load(std::memory_order_relaxed) >= most) return;
    void* pages =
        mmap(nullptr, code.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return;
    std::memcpy(pages, code.data(), code.size());
    if (mprotect(pages, code.size(), PROT_READ | PROT_EXEC) != 0) {
        munmap(pages, code.size());
        return;
    }
    ++count;
    memory_ = pages;
    bytes_ = code.size();
}

Executable::~Executable() {
    if (!memory_) return;
    munmap(memory_, bytes_);
    --count;
}

void Executable::swap(Executable& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
}

}  // namespace tapegrad
