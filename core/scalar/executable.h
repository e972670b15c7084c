// core/scalar/executable.h -- machine code in memory that can be executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tapegrad {

/// Pages that hold a copy of some code: written first, executable and read-only after.
class Executable {
   public:
    Executable() = default;
    /// Empty where the system refuses such memory, and where there are `most` of them: processes
    /// may have some 65,000 mappings, and others need them, too.
    static constexpr int most = 10'000;
    /// Programs that may have huge pages: these are seldom full.
    static constexpr int most_huge = 256;
    explicit Executable(std::span<const std::uint8_t> code);
    ~Executable();
    Executable(Executable&& other) noexcept { swap(other); }
    Executable& operator=(Executable&& other) noexcept {
        swap(other);
        return *this;
    }

    explicit operator bool() const { return memory_; }
    const void* begin() const { return memory_; }
    std::size_t bytes() const { return bytes_; }

   private:
    void swap(Executable& other) noexcept;

    void* memory_ = nullptr;
    std::size_t bytes_ = 0, mapped_ = 0;  ///< of the code; of its pages
    bool huge_ = false;                   ///< whether its pages were asked to be huge
};

}  // namespace tapegrad
