// Lanes<T, N>: N floating point numbers that are computed side by side.
//
// The header is compiled once per instruction set, each time with another TG_ISA naming the
// namespace; all of it has internal linkage, so that no function compiled for a newer processor
// can be picked by the linker for an older one. N = 1 is a plain scalar: the same algorithm text
// serves vectors and scalars, and gives the same bits in both (of one instruction set).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // gcc 12's own _mm512_undefined_pd()
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef TG_ISA
#define TG_ISA baseline
#endif

#if defined(__aarch64__)
#define TG_REGISTER "w"  // the constraint of a floating point register
#else
#define TG_REGISTER "x"
#endif

#define TG_METHOD inline __attribute__((always_inline))
#define TG_INLINE static TG_METHOD
#define TG_LAMBDA __attribute__((always_inline))
#define TG_RARE static __attribute__((noinline, cold))

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define TG_AVX512 1
#else
#define TG_AVX512 0
#endif

#if defined(__AVX2__) && defined(__FMA__)
#define TG_AVX2 1
#else
#define TG_AVX2 0
#endif

namespace tapegrad {
namespace TG_ISA {
namespace {

// Whether fma(a, b, c) rounds once. Without it, it is a * b + c with two roundings.
constexpr bool has_fma = TG_AVX2 || TG_AVX512 ||
#if defined(__aarch64__)
                         true;
#else
                         false;
#endif

constexpr int register_bytes = TG_AVX512 ? 64 : TG_AVX2 ? 32 : 16;

// The widest N that one register of this instruction set holds.
template <class T>
constexpr int native_lanes = register_bytes / int(sizeof(T));

// ---- The layout of the two floating point types ------------------------------------------------

template <class T>
struct Format;

template <>
struct Format<double> {
    using Int = int64_t;
    using UInt = uint64_t;
    static constexpr int fraction_bits = 52;
    static constexpr int exponent_bias = 1023;
    static constexpr UInt sign_bit = UInt(1) << 63;
    static constexpr double infinity = __builtin_inf();
    static constexpr double nan = __builtin_nan("");
    static constexpr double smallest_normal = 0x1p-1022;
    static constexpr double largest = 0x1.fffffffffffffp+1023;
};

template <>
struct Format<float> {
    using Int = int32_t;
    using UInt = uint32_t;
    static constexpr int fraction_bits = 23;
    static constexpr int exponent_bias = 127;
    static constexpr UInt sign_bit = UInt(1) << 31;
    static constexpr float infinity = __builtin_inff();
    static constexpr float nan = __builtin_nanf("");
    static constexpr float smallest_normal = 0x1p-126f;
    static constexpr float largest = 0x1.fffffep+127f;
};

// ---- Registers ---------------------------------------------------------------------------------

template <class T, int N>
struct RegisterOf {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};

template <class T>
struct RegisterOf<T, 1> {
    using type = T;
};

template <class T, int N>
using Register = typename RegisterOf<T, N>::type;

// The bits of N numbers of type T, as unsigned integers. Those of a scalar are the first lane of a
// 128-bit register: the way through a general register and back costs 6 cycles or more.
template <class T, int N>
using Bits = Register<typename Format<T>::UInt, N == 1 ? 16 / int(sizeof(T)) : N>;

template <int... I>
struct Indices {};

template <int N, int... I>
struct CountUp : CountUp<N - 1, N - 1, I...> {};

template <int... I>
struct CountUp<0, I...> {
    using type = Indices<I...>;
};

template <int N>
using UpTo = typename CountUp<N>::type;

// ---- What the vector extensions of the compiler do not offer, per register ---------------------
//
// Ops<T, N> holds the mask type and the operations that need an instruction of their own.
// In AVX-512 a mask is one bit per lane, elsewhere one integer of ones or zeros per lane, and a
// bool for the scalar.

template <class T, int N>
struct Ops;

template <class T>
struct ScalarOps {
    using V = T;
    using M = bool;

    TG_INLINE M less(V a, V b) { return a < b; }
    TG_INLINE M less_equal(V a, V b) { return a <= b; }
    TG_INLINE M equal(V a, V b) { return a == b; }
    TG_INLINE M not_equal(V a, V b) { return a != b; }
    TG_INLINE M both(M a, M b) { return a & b; }
    TG_INLINE M either(M a, M b) { return a | b; }
    TG_INLINE M invert(M a) { return !a; }
    TG_INLINE bool any(M m) { return m; }
    TG_INLINE bool all(M m) { return m; }
    TG_INLINE V select(M m, V a, V b) { return m ? a : b; }
    TG_INLINE V larger(V a, V b) { return a > b ? a : b; }
    TG_INLINE V smaller(V a, V b) { return a < b ? a : b; }
    TG_INLINE M odd(Bits<T, 1> b) { return b[0] & 1; }
};

template <>
struct Ops<double, 1> : ScalarOps<double> {
    TG_INLINE V sqrt(V a) { return __builtin_sqrt(a); }
    TG_INLINE V fma(V a, V b, V c) { return has_fma ? __builtin_fma(a, b, c) : a * b + c; }
    TG_INLINE V floor(V a) { return __builtin_floor(a); }
    TG_INLINE V ceil(V a) { return __builtin_ceil(a); }
    TG_INLINE V round_even(V a) { return __builtin_rint(a); }
};

template <>
struct Ops<float, 1> : ScalarOps<float> {
    TG_INLINE V sqrt(V a) { return __builtin_sqrtf(a); }
    TG_INLINE V fma(V a, V b, V c) { return has_fma ? __builtin_fmaf(a, b, c) : a * b + c; }
    TG_INLINE V floor(V a) { return __builtin_floorf(a); }
    TG_INLINE V ceil(V a) { return __builtin_ceilf(a); }
    TG_INLINE V round_even(V a) { return __builtin_rintf(a); }
};

#if TG_AVX512

#define TG_OPS(T, N, K, MM, PD, EPI, I)                                                            \
    template <>                                                                                    \
    struct Ops<T, N> {                                                                             \
        using V = Register<T, N>;                                                                  \
        using M = K;                                                                               \
        static constexpr M full = M((1u << N) - 1);                                                \
                                                                                                   \
        TG_INLINE M less(V a, V b) { return MM##_cmp_##PD##_mask(a, b, _CMP_LT_OQ); }              \
        TG_INLINE M less_equal(V a, V b) { return MM##_cmp_##PD##_mask(a, b, _CMP_LE_OQ); }        \
        TG_INLINE M equal(V a, V b) { return MM##_cmp_##PD##_mask(a, b, _CMP_EQ_OQ); }             \
        TG_INLINE M not_equal(V a, V b) { return MM##_cmp_##PD##_mask(a, b, _CMP_NEQ_UQ); }        \
        TG_INLINE M both(M a, M b) { return M(a & b); }                                            \
        TG_INLINE M either(M a, M b) { return M(a | b); }                                          \
        TG_INLINE M invert(M a) { return M(a ^ full); }                                            \
        TG_INLINE bool any(M m) { return m != 0; }                                                 \
        TG_INLINE bool all(M m) { return m == full; }                                              \
        TG_INLINE V select(M m, V a, V b) { return MM##_mask_blend_##PD(m, b, a); }                \
        TG_INLINE M odd(Bits<T, N> b) { return MM##_##EPI##_mask(I(b << (8 * sizeof(T) - 1))); }   \
        TG_INLINE V larger(V a, V b) { return MM##_max_##PD(a, b); }                               \
        TG_INLINE V smaller(V a, V b) { return MM##_min_##PD(a, b); }                              \
        TG_INLINE V sqrt(V a) { return MM##_sqrt_##PD(a); }                                        \
        TG_INLINE V fma(V a, V b, V c) { return MM##_fmadd_##PD(a, b, c); }                        \
        TG_INLINE V floor(V a) { return MM##_roundscale_##PD(a, _MM_FROUND_TO_NEG_INF); }          \
        TG_INLINE V ceil(V a) { return MM##_roundscale_##PD(a, _MM_FROUND_TO_POS_INF); }           \
        TG_INLINE V round_even(V a) { return MM##_roundscale_##PD(a, _MM_FROUND_TO_NEAREST_INT); } \
    };

TG_OPS(double, 2, __mmask8, _mm, pd, movepi64, __m128i)
TG_OPS(double, 4, __mmask8, _mm256, pd, movepi64, __m256i)
TG_OPS(double, 8, __mmask8, _mm512, pd, movepi64, __m512i)
TG_OPS(float, 4, __mmask8, _mm, ps, movepi32, __m128i)
TG_OPS(float, 8, __mmask8, _mm256, ps, movepi32, __m256i)
TG_OPS(float, 16, __mmask16, _mm512, ps, movepi32, __m512i)
#undef TG_OPS

#else

template <class T, int N>
struct VectorOps {
    using V = Register<T, N>;
    using M = Register<typename Format<T>::Int, N>;

    TG_INLINE M less(V a, V b) { return a < b; }
    TG_INLINE M less_equal(V a, V b) { return a <= b; }
    TG_INLINE M equal(V a, V b) { return a == b; }
    TG_INLINE M not_equal(V a, V b) { return a != b; }
    TG_INLINE M both(M a, M b) { return a & b; }
    TG_INLINE M either(M a, M b) { return a | b; }
    TG_INLINE M invert(M a) { return ~a; }
    TG_INLINE M odd(Bits<T, N> b) { return M(0 - (b & 1)); }
};

#if TG_AVX2

#define TG_OPS(T, N, MM, PD)                                                                  \
    template <>                                                                               \
    struct Ops<T, N> : VectorOps<T, N> {                                                      \
        TG_INLINE bool any(M m) { return MM##_movemask_##PD(V(m)) != 0; }                     \
        TG_INLINE bool all(M m) { return MM##_movemask_##PD(V(m)) == (1 << N) - 1; }          \
        TG_INLINE V select(M m, V a, V b) { return MM##_blendv_##PD(b, a, V(m)); }            \
        TG_INLINE V larger(V a, V b) { return MM##_max_##PD(a, b); }                          \
        TG_INLINE V smaller(V a, V b) { return MM##_min_##PD(a, b); }                         \
        TG_INLINE V sqrt(V a) { return MM##_sqrt_##PD(a); }                                   \
        TG_INLINE V fma(V a, V b, V c) { return MM##_fmadd_##PD(a, b, c); }                   \
        TG_INLINE V floor(V a) { return MM##_floor_##PD(a); }                                 \
        TG_INLINE V ceil(V a) { return MM##_ceil_##PD(a); }                                   \
        TG_INLINE V round_even(V a) { return MM##_round_##PD(a, _MM_FROUND_TO_NEAREST_INT); } \
    };

TG_OPS(double, 2, _mm, pd)
TG_OPS(double, 4, _mm256, pd)
TG_OPS(float, 4, _mm, ps)
TG_OPS(float, 8, _mm256, ps)
#undef TG_OPS

#else

// 128-bit registers without a blend instruction; NEON has one, and the compiler finds it.
template <class T, int N>
struct NarrowOps : VectorOps<T, N> {
    using typename VectorOps<T, N>::V;
    using typename VectorOps<T, N>::M;

    TG_INLINE V select(M m, V a, V b) { return V((m & M(a)) | (~m & M(b))); }
    TG_INLINE V larger(V a, V b) { return select(a > b, a, b); }
    TG_INLINE V smaller(V a, V b) { return select(a < b, a, b); }
};

#if defined(__aarch64__)

#define TG_OPS(T, N, Q)                                                    \
    template <>                                                            \
    struct Ops<T, N> : NarrowOps<T, N> {                                   \
        TG_INLINE bool any(M m) { return vmaxvq_u32(uint32x4_t(m)) != 0; } \
        TG_INLINE bool all(M m) { return vminvq_u32(uint32x4_t(m)) != 0; } \
        TG_INLINE V sqrt(V a) { return V(vsqrtq_##Q(a)); }                 \
        TG_INLINE V fma(V a, V b, V c) { return V(vfmaq_##Q(c, a, b)); }   \
        TG_INLINE V floor(V a) { return V(vrndmq_##Q(a)); }                \
        TG_INLINE V ceil(V a) { return V(vrndpq_##Q(a)); }                 \
        TG_INLINE V round_even(V a) { return V(vrndnq_##Q(a)); }           \
    };

TG_OPS(double, 2, f64)
TG_OPS(float, 4, f32)
#undef TG_OPS

#else

// SSE2 rounds to integers only through the addition of 2^fraction_bits, from which on every
// number is an integer.
template <class T, int N>
struct RoundingOps : NarrowOps<T, N> {
    using typename VectorOps<T, N>::V;
    using typename VectorOps<T, N>::M;
    using B = Bits<T, N>;
    static constexpr auto sign_bit = Format<T>::sign_bit;

    TG_INLINE V with_sign(V a, V sign) { return V((B(a) & ~sign_bit) | (B(sign) & sign_bit)); }
    TG_INLINE V one_where(M m) { return V(m & M(V{} + T(1))); }

    TG_INLINE V fma(V a, V b, V c) { return a * b + c; }
    TG_INLINE V round_even(V a) {
        constexpr T first_integer = T(uint64_t(1) << Format<T>::fraction_bits);
        V magnitude = V(B(a) & ~sign_bit);
        V rounded = (magnitude + first_integer) - first_integer;
        return with_sign(NarrowOps<T, N>::select(magnitude < first_integer, rounded, a), a);
    }
    TG_INLINE V floor(V a) {
        V rounded = round_even(a);
        return rounded - one_where(rounded > a);
    }
    TG_INLINE V ceil(V a) {
        V rounded = round_even(a);
        return with_sign(rounded + one_where(rounded < a), a);
    }
};

#define TG_OPS(T, N, PD)                                                            \
    template <>                                                                     \
    struct Ops<T, N> : RoundingOps<T, N> {                                          \
        TG_INLINE bool any(M m) { return _mm_movemask_##PD(V(m)) != 0; }            \
        TG_INLINE bool all(M m) { return _mm_movemask_##PD(V(m)) == (1 << N) - 1; } \
        TG_INLINE V sqrt(V a) { return _mm_sqrt_##PD(a); }                          \
    };

TG_OPS(double, 2, pd)
TG_OPS(float, 4, ps)
#undef TG_OPS

#endif  // __aarch64__
#endif  // TG_AVX2
#endif  // TG_AVX512

// ---- Masks -------------------------------------------------------------------------------------

// The outcome of a comparison in each lane.
template <class T, int N>
struct Mask {
    using O = Ops<T, N>;
    typename O::M m;

    TG_METHOD friend Mask operator&(Mask a, Mask b) { return {O::both(a.m, b.m)}; }
    TG_METHOD friend Mask operator|(Mask a, Mask b) { return {O::either(a.m, b.m)}; }
    TG_METHOD friend Mask operator!(Mask a) { return {O::invert(a.m)}; }
    TG_METHOD friend bool any(Mask a) { return O::any(a.m); }
    TG_METHOD friend bool all(Mask a) { return O::all(a.m); }
};

// ---- Lanes -------------------------------------------------------------------------------------

template <class T, int N>
struct Lanes {
    using Scalar = T;
    using V = Register<T, N>;
    using B = Bits<T, N>;
    using M = Mask<T, N>;
    using O = Ops<T, N>;
    static constexpr int size = N;
    static constexpr auto sign_bit = Format<T>::sign_bit;

    V v;

    Lanes() = default;
    TG_METHOD Lanes(T value) : v(broadcast(value, UpTo<N>())) {}
    TG_METHOD static Lanes of(V v) {
        Lanes a;
        a.v = v;
        return a;
    }

    // ---- memory

    TG_METHOD static Lanes load(const T* from) {
        Lanes a;
        memcpy(&a.v, from, sizeof(V));
        return a;
    }
    TG_METHOD void store(T* to) const { memcpy(to, &v, sizeof(V)); }

    // Lane i is base[index[i * index_stride]]. Single loads: Zen 4 runs them faster than vgather.
    TG_METHOD static Lanes gather(const T* base, const uint32_t* index, int index_stride) {
        return of(pick(base, index, index_stride, UpTo<N>()));
    }
    TG_METHOD void scatter(T* base, const uint32_t* index, int index_stride) const {
        put(base, index, index_stride, UpTo<N>());
    }

    // Lane i is table[the lowest four bits of index i].
    TG_METHOD static Lanes look_up(const T (&table)[16], B index) {
#if TG_AVX512
        if constexpr (sizeof(T) == 8) {
            const __m512d low = _mm512_loadu_pd(table), high = _mm512_loadu_pd(table + 8);
            return first_lanes(_mm512_permutex2var_pd(low, widened(index), high));
        } else {
            return first_lanes(_mm512_permutexvar_ps(widened(index), _mm512_loadu_ps(table)));
        }
#elif TG_AVX2
        if constexpr (N == 4 && sizeof(T) == 8) {
            return of(_mm256_i64gather_pd(table, __m256i(index & 15), 8));
        } else if constexpr (N == 8) {
            return of(_mm256_i32gather_ps(table, __m256i(index & 15), 4));
        }
#endif
        return look_up_each(table, index, UpTo<N>());
    }

    TG_METHOD T operator[](int i) const {
        if constexpr (N == 1) {
            return v;
        } else {
            return v[i];
        }
    }

    // ---- arithmetic

    TG_METHOD friend Lanes operator+(Lanes a, Lanes b) { return of(a.v + b.v); }
    TG_METHOD friend Lanes operator-(Lanes a, Lanes b) { return of(a.v - b.v); }
    TG_METHOD friend Lanes operator*(Lanes a, Lanes b) { return of(a.v * b.v); }
    TG_METHOD friend Lanes operator/(Lanes a, Lanes b) { return of(a.v / b.v); }
    TG_METHOD friend Lanes operator-(Lanes a) { return of(-a.v); }

    TG_METHOD friend Lanes fma(Lanes a, Lanes b, Lanes c) { return of(O::fma(a.v, b.v, c.v)); }
    TG_METHOD friend Lanes sqrt(Lanes a) { return of(O::sqrt(a.v)); }
    TG_METHOD friend Lanes floor(Lanes a) { return of(O::floor(a.v)); }
    TG_METHOD friend Lanes ceil(Lanes a) { return of(O::ceil(a.v)); }
    TG_METHOD friend Lanes round_even(Lanes a) { return of(O::round_even(a.v)); }

    // ---- comparison and choice

    TG_METHOD friend M operator<(Lanes a, Lanes b) { return {O::less(a.v, b.v)}; }
    TG_METHOD friend M operator<=(Lanes a, Lanes b) { return {O::less_equal(a.v, b.v)}; }
    TG_METHOD friend M operator>(Lanes a, Lanes b) { return {O::less(b.v, a.v)}; }
    TG_METHOD friend M operator>=(Lanes a, Lanes b) { return {O::less_equal(b.v, a.v)}; }
    TG_METHOD friend M operator==(Lanes a, Lanes b) { return {O::equal(a.v, b.v)}; }
    TG_METHOD friend M operator!=(Lanes a, Lanes b) { return {O::not_equal(a.v, b.v)}; }

    TG_METHOD friend Lanes select(M m, Lanes a, Lanes b) { return of(O::select(m.m, a.v, b.v)); }

    // Either argument's NaN is the result; of two zeros, b.
    TG_METHOD friend Lanes maximum(Lanes a, Lanes b) {
        return select(a != a, a, of(O::larger(a.v, b.v)));
    }
    TG_METHOD friend Lanes minimum(Lanes a, Lanes b) {
        return select(a != a, a, of(O::smaller(a.v, b.v)));
    }

    // The maximum, and minimum, with a limit that is no NaN: one instruction. A NaN stays one.
    TG_METHOD friend Lanes at_least(Lanes a, Lanes limit) { return of(O::larger(limit.v, a.v)); }
    TG_METHOD friend Lanes at_most(Lanes a, Lanes limit) { return of(O::smaller(limit.v, a.v)); }

    // ---- bits and signs

    TG_METHOD friend B bits(Lanes a) {
        if constexpr (N == 1) {
            // Takes the register as it is; what lies beyond the first lane does not matter.
            Register<T, 16 / sizeof(T)> whole;
            asm("" : "=" TG_REGISTER(whole) : "0"(a.v));
            return B(whole);
        } else {
            return B(a.v);
        }
    }
    TG_METHOD static Lanes from_bits(B b) {
        if constexpr (N == 1) {
            return of(Register<T, 16 / sizeof(T)>(b)[0]);
        } else {
            return of(V(b));
        }
    }

    // Where the lowest bit is set.
    TG_METHOD static M odd(B b) { return {O::odd(b)}; }

    TG_METHOD friend Lanes abs(Lanes a) { return from_bits(bits(a) & ~sign_bit); }
    TG_METHOD friend Lanes minus_abs(Lanes a) { return from_bits(bits(a) | sign_bit); }
    TG_METHOD friend Lanes copysign(Lanes a, Lanes sign) {
        return from_bits((bits(a) & ~sign_bit) | (bits(sign) & sign_bit));
    }

    // -1 or 1; a zero or NaN is its own sign.
    TG_METHOD friend Lanes sign(Lanes a) {
        return select((a < T(0)) | (a > T(0)), copysign(T(1), a), a);
    }

    // Lane i is the old lane i ^ K.
    template <int K>
    TG_METHOD Lanes exchanged() const {
        return exchanged<K>(UpTo<N>());
    }

   private:
    template <int... I>
    TG_METHOD static V broadcast(T value, Indices<I...>) {
        return V{(void(I), value)...};
    }
#if TG_AVX512
    // The index or the result of a 512-bit permutation; beyond N lanes anything goes.
    TG_METHOD static __m512i widened(B index) {
        if constexpr (sizeof(B) == 16) {
            return _mm512_castsi128_si512(__m128i(index));
        } else if constexpr (sizeof(B) == 32) {
            return _mm512_castsi256_si512(__m256i(index));
        } else {
            return __m512i(index);
        }
    }
    TG_METHOD static Lanes first_lanes(Register<T, 64 / sizeof(T)> wide) {
        if constexpr (N == 1) {
            return of(wide[0]);
        } else if constexpr (sizeof(V) == 16) {
            return of(V(_mm512_castsi512_si128(__m512i(wide))));
        } else if constexpr (sizeof(V) == 32) {
            return of(V(_mm512_castsi512_si256(__m512i(wide))));
        } else {
            return of(V(wide));
        }
    }
#endif
    template <int... I>
    TG_METHOD static Lanes look_up_each(const T (&table)[16], B index, Indices<I...>) {
        return of(V{table[index[I] & 15]...});
    }
    template <int K, int... I>
    TG_METHOD Lanes exchanged(Indices<I...>) const {
        using Index = Register<typename Format<T>::Int, N>;
        return of(__builtin_shuffle(v, Index{(I ^ K)...}));
    }
    template <int... I>
    TG_METHOD static V pick(const T* base, const uint32_t* index, int stride, Indices<I...>) {
        return V{base[index[I * stride]]...};
    }
    template <int... I>
    TG_METHOD void put(T* base, const uint32_t* index, int stride, Indices<I...>) const {
        ((base[index[I * stride]] = (*this)[I]), ...);
    }
};

// The sum of each four neighbours, (a0 + a1) + (a2 + a3), in all four lanes.
template <class T, int N>
TG_INLINE Lanes<T, N> sum_of_fours(Lanes<T, N> a) {
    Lanes<T, N> pairs = a + a.template exchanged<1>();
    return pairs + pairs.template exchanged<2>();
}

// 1 where the mask holds, 0 elsewhere.
template <class T, int N>
TG_INLINE Lanes<T, N> one_if(Mask<T, N> m) {
    return select(m, Lanes<T, N>(1), Lanes<T, N>(0));
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
