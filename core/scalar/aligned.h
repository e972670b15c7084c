// core/scalar/aligned.h -- numbers that begin where a cache line does.
//
// A vector of 64 bytes that straddles two lines is loaded at half the speed.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace tapegrad {

template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t line{64};

    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) {}

    T* allocate(std::size_t n) {
        if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T*>(::operator new(n * sizeof(T), line));
    }
    void deallocate(T* memory, std::size_t) { ::operator delete(memory, line); }
    friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

template <class T>
using Numbers = std::vector<T, LineAllocator<T>>;

}  // namespace tapegrad
