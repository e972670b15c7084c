// core/tensor/vectors.h -- parts of vectors, and sums across them, for kernels over arrays.
#pragma once

#include "scalar/maths.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

using Real = TG_REAL;
constexpr int native = native_lanes<Real>;
using Vec = Lanes<Real, native>;

// std::min would be a weak symbol.
TG_INLINE Size smaller_of(Size a, Size b) { return a < b ? a : b; }
TG_INLINE Size larger_of(Size a, Size b) { return a > b ? a : b; }

#if TG_AVX2 && !TG_AVX512
/// The first lanes, for masked loads and stores: all bits of a lane are set, or none.
TG_INLINE __m256i lanes_below(Size count) {
    if constexpr (sizeof(Real) == 8)
        return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
    else
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/// The first `count` lanes from memory, which is not touched beyond, fewer than there are; the
/// others are `fill`.
TG_INLINE Vec load_first(const Real* from, Size count, Real fill) {
#if TG_AVX512
    if constexpr (sizeof(Real) == 8)
        return Vec::of(
            Vec::V(_mm512_mask_loadu_pd(__m512d(Vec(fill).v), __mmask8((1u << count) - 1), from)));
    else
        return Vec::of(
            Vec::V(_mm512_mask_loadu_ps(__m512(Vec(fill).v), __mmask16((1u << count) - 1), from)));
#elif TG_AVX2
    const __m256i mask = lanes_below(count);
    if constexpr (sizeof(Real) == 8) {
        const __m256d loaded = _mm256_maskload_pd(reinterpret_cast<const double*>(from), mask);
        return Vec::of(Vec::V(_mm256_blendv_pd(__m256d(Vec(fill).v), loaded, __m256d(mask))));
    } else {
        const __m256 loaded = _mm256_maskload_ps(reinterpret_cast<const float*>(from), mask);
        return Vec::of(Vec::V(_mm256_blendv_ps(__m256(Vec(fill).v), loaded, __m256(mask))));
    }
#else
    if (count >= native) __builtin_unreachable();
    Real values[native];
    Vec(fill).store(values);
    for (Size i = 0; i < count; ++i) values[i] = from[i];
    return Vec::load(values);
#endif
}

TG_INLINE void store_first(Vec a, Real* to, Size count) {
#if TG_AVX512
    if constexpr (sizeof(Real) == 8)
        _mm512_mask_storeu_pd(to, __mmask8((1u << count) - 1), __m512d(a.v));
    else
        _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), __m512(a.v));
#elif TG_AVX2
    const __m256i mask = lanes_below(count);
    if constexpr (sizeof(Real) == 8)
        _mm256_maskstore_pd(reinterpret_cast<double*>(to), mask, __m256d(a.v));
    else
        _mm256_maskstore_ps(reinterpret_cast<float*>(to), mask, __m256(a.v));
#else
    if (count >= native) __builtin_unreachable();
    Real values[native];
    a.store(values);
    for (Size i = 0; i < count; ++i) to[i] = values[i];
#endif
}

/// A whole vector, or its first lanes where fewer are left.
TG_INLINE Vec load_up_to(const Real* from, Size left, Real fill) {
    return left >= native ? Vec::load(from) : load_first(from, left, fill);
}
TG_INLINE void store_up_to(Vec a, Real* to, Size left) {
    if (left >= native)
        a.store(to);
    else
        store_first(a, to, left);
}

/// Calls body(position, lanes left) for each vector of n numbers.
template <class Body>
TG_INLINE void each_vector(Size n, Body body) {
    Size i = 0;
    for (; i + native <= n; i += native) body(i, Size(native));
    if (i < n) body(i, n - i);
}

/// All lanes combined, halves with halves.
template <int K = native / 2, class Combine>
TG_INLINE Real across(Vec a, Combine combine) {
    a = combine(a, a.template exchanged<K>());
    if constexpr (K > 1)
        return across<K / 2>(a, combine);
    else
        return a[0];
}

TG_INLINE Real sum_across(Vec a) {
    return across(a, [](Vec p, Vec q) TG_LAMBDA { return p + q; });
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
