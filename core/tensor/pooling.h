// core/tensor/pooling.h -- pooling over the last two dimensions of contiguous arrays.
#pragma once

#include "kernels.h"

namespace tapegrad {

/// All return false if there is not enough memory. x is [planes, h.in, w.in].
template <class T>
bool max_pool(const T* x, T* y, std::int64_t* positions, Size planes, const WindowAxis& h,
              const WindowAxis& w);
/// Where a position is out of range: its index, else -1.
template <class T>
Size max_pool_backward(const T* g, const std::int64_t* positions, T* gx, Size planes, Size out_size,
                       Size in_size);
template <class T>
void average_pool(const T* x, T* y, Size planes, const WindowAxis& h, const WindowAxis& w,
                  const Divisor& divisor);
template <class T>
bool average_pool_backward(const T* g, T* gx, Size planes, const WindowAxis& h, const WindowAxis& w,
                           const Divisor& divisor);

/// Sizes of planes before and after.
struct Planes {
    Size count, h, w, out_h, out_w;
};
template <class T>
bool adaptive_pool(const T* x, T* y, const Planes& planes);
template <class T>
bool adaptive_pool_backward(const T* g, T* gx, const Planes& planes);

}  // namespace tapegrad
