// core/onednn/buffer.h -- aligned memory that asks for huge pages where it is large.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace tapegrad::onednn {

constexpr std::size_t alignment = 64;

inline std::size_t rounded(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

inline Buffer allocate(std::size_t bytes) {
    constexpr std::size_t huge_page = 2 * 1024 * 1024;
    const std::size_t unit = bytes >= huge_page ? huge_page : alignment;
    bytes = rounded(bytes, unit);
    Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(unit, bytes)));
    if (!buffer) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (unit == huge_page) madvise(buffer.get(), bytes, MADV_HUGEPAGE);
#endif
    return buffer;
}

}  // namespace tapegrad::onednn
