// core/tensor/pool.h -- memory for results and scratch, kept for reuse.
//
// Fresh pages cost more than the arithmetic of most kernels: the system clears each one when it is
// first touched. Blocks of 64 KB and more are therefore kept when they are given back, in classes
// of sizes an eighth of an octave apart, so that a step of training that repeats finds the blocks
// of the last one.
#pragma once

#include <cstddef>

namespace tapegrad {

constexpr std::size_t pooled_from = 64 * 1024;

/// Memory of at least so many bytes, aligned to 64; nullptr if there is none.
void* take_block(std::size_t bytes);
/// Gives back what take_block(bytes) returned.
void give_block(void* block, std::size_t bytes);

/// Bytes in use and bytes kept for reuse.
struct PoolBytes {
    std::size_t used, kept;
};
PoolBytes pool_bytes();
/// Returns all kept blocks to the system.
void empty_pool();

/// Memory for the length of a scope; data is nullptr if there is none.
template <class T>
class Scratch {
   public:
    explicit Scratch(std::size_t count)
        : bytes_(count * sizeof(T)), data_(static_cast<T*>(take_block(bytes_))) {}
    ~Scratch() { give_block(data_, bytes_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return data_; }

   private:
    std::size_t bytes_;
    T* data_;
};

}  // namespace tapegrad
