// core/reach.h -- which bytes an array reaches, and whether two arrays may have some in common.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapegrad {

struct Reach {
    const char *low, *high;
};

/// From the first byte of an array to behind its last; none of an array without elements. Strides
/// are in bytes.
template <class Size>
Reach reach_of(const char* data, std::int64_t itemsize, int ndim, const Size* sizes,
               const Size* strides) {
    Reach out{data, data + itemsize};
    for (int d = 0; d < ndim; ++d) {
        if (sizes[d] == 0) return {data, data};
        const Size span = (sizes[d] - 1) * strides[d];
        (span > 0 ? out.high : out.low) += span;
    }
    return out;
}

/// Whether arrays may share elements; those of interleaved arrays count as shared.
inline bool overlap(const Reach& a, const Reach& b) {
    return std::max(a.low, b.low) < std::min(a.high, b.high);
}

}  // namespace tapegrad
