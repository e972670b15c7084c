// core/tensor/pool.h -- memory for results and scratch, kept for reuse.
//
// Fresh pages cost more than the arithmetic of most kernels: the system clears each one when it is
// first touched. Blocks of 64 KB and more are therefore cut from regions that the process keeps:
// the smallest free stretch that is large enough is cut, and what is given back joins the free
// stretches beside it. A step of training that repeats finds the memory of the last one, and layers
// of other sizes find it, too: what is free is not bound to a size.
#pragma once

#include <cstddef>

namespace tapegrad {

constexpr std::size_t pooled_from = 64 * 1024;

/// Memory of at least so many bytes, aligned to 64; nullptr if there is none.
void* take_block(std::size_t bytes);
/// Gives back what take_block(bytes) returned.
void give_block(void* block, std::size_t bytes);

/// Bytes in use, and bytes kept for reuse that may hold pages of the system.
struct PoolBytes {
    std::size_t used, kept;
};
PoolBytes pool_bytes();
/// Returns the pages of all that is kept to the system.
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
