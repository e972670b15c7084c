// core/tensor/pooling.cpp -- pooling in threads, a plane at a time.
#include "pooling.h"

#include <algorithm>
#include <atomic>

#include "pool.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// Calls body(plane, scratch) for all planes; each thread has `width` elements of scratch. False if
/// there is no memory for them.
template <class T, class Body>
bool over_planes(Size planes, Size work, Size width, Body body) {
    const int parts = parts_of(planes, work);
    // lines of their own: threads write to it
    const Size stride = (width + 15) / 16 * 16;
    Scratch<T> scratch(static_cast<std::size_t>(parts * stride));
    if (!scratch.data()) return false;
    in_parts(planes, parts, [&](int part, Size low, Size high) {
        for (Size plane = low; plane < high; ++plane) body(plane, scratch.data() + part * stride);
    });
    return true;
}

Size window_work(Size planes, const WindowAxis& h, const WindowAxis& w) {
    return planes * h.out * w.out * h.kernel * w.kernel;
}

}  // namespace

template <class T>
bool max_pool(const T* x, T* y, std::int64_t* positions, Size planes, const WindowAxis& h,
              const WindowAxis& w) {
    const auto kernel = tensor_kernels<T>().pool->max;
    return over_planes<T>(planes, window_work(planes, h, w), w.out, [&](Size plane, T* scratch) {
        const Size out = plane * h.out * w.out;
        kernel(x + plane * h.in * w.in, y + out, positions + out, h, w, scratch);
    });
}

template <class T>
Size max_pool_backward(const T* g, const std::int64_t* positions, T* gx, Size planes, Size out_size,
                       Size in_size) {
    std::atomic<Size> bad{-1};
    in_parallel(planes, planes * (out_size + in_size), [&](Size low, Size high) {
        for (Size plane = low; plane < high; ++plane) {
            T* to = gx + plane * in_size;
            std::fill_n(to, in_size, T(0));
            for (Size i = plane * out_size; i < (plane + 1) * out_size; ++i) {
                const std::int64_t at = positions[i];
                if (static_cast<std::uint64_t>(at) >= static_cast<std::uint64_t>(in_size)) {
                    bad.store(i);
                    return;
                }
                to[at] += g[i];
            }
        }
    });
    return bad.load();
}

template <class T>
void average_pool(const T* x, T* y, Size planes, const WindowAxis& h, const WindowAxis& w,
                  const Divisor& divisor) {
    const auto kernel = tensor_kernels<T>().pool->average;
    in_parallel(planes, window_work(planes, h, w), [&](Size low, Size high) {
        for (Size plane = low; plane < high; ++plane)
            kernel(x + plane * h.in * w.in, y + plane * h.out * w.out, h, w, divisor);
    });
}

template <class T>
bool average_pool_backward(const T* g, T* gx, Size planes, const WindowAxis& h, const WindowAxis& w,
                           const Divisor& divisor) {
    const auto kernel = tensor_kernels<T>().pool->average_backward;
    return over_planes<T>(planes, window_work(planes, h, w), w.out, [&](Size plane, T* scratch) {
        kernel(g + plane * h.out * w.out, gx + plane * h.in * w.in, h, w, divisor, scratch);
    });
}

template <class T>
bool adaptive_pool(const T* x, T* y, const Planes& p) {
    const auto kernel = tensor_kernels<T>().pool->adaptive;
    return over_planes<T>(p.count, p.count * p.h * p.w, p.w, [&](Size plane, T* scratch) {
        kernel(x + plane * p.h * p.w, y + plane * p.out_h * p.out_w, p.h, p.w, p.out_h, p.out_w,
               scratch);
    });
}

template <class T>
bool adaptive_pool_backward(const T* g, T* gx, const Planes& p) {
    const auto kernel = tensor_kernels<T>().pool->adaptive_backward;
    return over_planes<T>(p.count, p.count * p.h * p.w, p.w, [&](Size plane, T* scratch) {
        kernel(g + plane * p.out_h * p.out_w, gx + plane * p.h * p.w, p.h, p.w, p.out_h, p.out_w,
               scratch);
    });
}

#define TG_INSTANTIATE(T)                                                                         \
    template bool max_pool(const T*, T*, std::int64_t*, Size, const WindowAxis&,                  \
                           const WindowAxis&);                                                    \
    template Size max_pool_backward(const T*, const std::int64_t*, T*, Size, Size, Size);         \
    template void average_pool(const T*, T*, Size, const WindowAxis&, const WindowAxis&,          \
                               const Divisor&);                                                   \
    template bool average_pool_backward(const T*, T*, Size, const WindowAxis&, const WindowAxis&, \
                                        const Divisor&);                                          \
    template bool adaptive_pool(const T*, T*, const Planes&);                                     \
    template bool adaptive_pool_backward(const T*, T*, const Planes&);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE

}  // namespace tapegrad
