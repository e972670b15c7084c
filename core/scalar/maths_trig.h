// The trigonometric functions over Lanes: sin, cos, tan, atan, asin, acos.
#pragma once

#include "maths_exp.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- sin, cos and tan
// -------------------------------------------------------------------------------

template <class T>
struct Trig;

template <>
struct Trig<double> {
    static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
    static constexpr double limit = 1e6;
    static constexpr double rounder = Exp<double>::rounder;
    // pi / 2 in parts: with an exact product inside fma() of 53 bits each, without of 33 bits
    static constexpr double fused_parts[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c06p-54,
                                             0x1.c1cd129024e08p-107};
    static constexpr double split_parts[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69,
                                             0x1.b839a252049c1p-104};
    // sin r = r + r z P(z), z = r^2, |r| <= pi / 4: 0.05 ulp
    static constexpr double sin_p[] = {-0x1.5555555555548p-3,  0x1.111111110f7dp-7,
                                       -0x1.a01a019bfdf33p-13, 0x1.71de3567d6ae5p-19,
                                       -0x1.ae5e5a93efep-26,   0x1.5d8fd24efe2e6p-33};
    // cos r = 1 - z / 2 + z^2 P(z): 0.005 ulp
    static constexpr double cos_p[] = {0x1.555555555554bp-5,  -0x1.6c16c16c14f92p-10,
                                       0x1.a01a019c8453bp-16, -0x1.27e4f7eac664cp-22,
                                       0x1.1ee9d7b552dbbp-29, -0x1.8fa49a001cac4p-37};
};

template <>
struct Trig<float> {
    static constexpr float two_over_pi = 0x1.45f306p-1f;
    static constexpr float limit = has_fma ? 1e5f : 1600;
    static constexpr float rounder = Exp<float>::rounder;
    static constexpr float fused_parts[] = {0x1.921fb4p+0f, 0x1.4442dp-24f, 0x1.846988p-48f};
    static constexpr float split_parts[] = {0x1.9218p+0f, 0x1.ed5p-14f, 0x1.10bp-30f,
                                            0x1.184p-44f, 0x1.a62p-58f, 0x1.8cc516p-72f};
    static constexpr float sin_p[] = {-0x1.555546p-3f, 0x1.11073cp-7f, -0x1.9943e2p-13f};
    static constexpr float cos_p[] = {0x1.55554ap-5f, -0x1.6c0c34p-10f, 0x1.99eb98p-16f};
};

// a - n pi/2, with an error of half an ulp of the result also where they almost cancel. The first
// difference is exact; what the others lose is added up where no fma() keeps it.
template <class T, int N>
TG_INLINE Lanes<T, N> subtract_quarters(Lanes<T, N> a, Lanes<T, N> n) {
    using L = Lanes<T, N>;
    using C = Trig<T>;
    if constexpr (has_fma) {
        for (T part : C::fused_parts) {
            a = fma(n, -part, a);
        }
        return a;
    } else {
        L excess = T(0);
        for (T part : C::split_parts) {
            L product = n * part;
            L difference = a - product;
            excess = excess + (product - (a - difference));
            a = difference;
        }
        return a - excess;
    }
}

// The sine and cosine of the angle reduced to [-pi/4, pi/4], and the number of quarter turns.
template <class T, int N>
struct QuarterTurns {
    Lanes<T, N> sin, cos;
    Bits<T, N> quarters;
};

template <class T, int N>
TG_INLINE QuarterTurns<T, N> quarter_turns(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Trig<T>;
    L shifted = fma(a, C::two_over_pi, C::rounder);
    L n = shifted - C::rounder;
    L r = subtract_quarters(a, n);
    L z = r * r;
    L sin = copysign(fma(r * z, polynomial(C::sin_p, z), r), r);
    L half_z = z * T(0.5);
    L head = T(1) - half_z;
    L lost = (T(1) - head) - half_z;
    L cos = head + fma(z * z, polynomial(C::cos_p, z), lost);
    return {sin, cos, bits(shifted)};
}

template <class T, int N>
TG_INLINE Lanes<T, N> sin_of(const QuarterTurns<T, N>& x) {
    using L = Lanes<T, N>;
    L magnitude = select(L::odd(x.quarters), x.cos, x.sin);
    return L::from_bits(bits(magnitude) ^ (x.quarters >> 1 << (8 * sizeof(T) - 1)));
}

template <class T, int N>
TG_INLINE Lanes<T, N> cos_of(const QuarterTurns<T, N>& x) {
    using L = Lanes<T, N>;
    L magnitude = select(L::odd(x.quarters), x.sin, x.cos);
    return L::from_bits(bits(magnitude) ^ ((x.quarters + 1) >> 1 << (8 * sizeof(T) - 1)));
}

// The lanes beyond the limit through the C library, which reduces an angle of any size.
template <class T, int N>
TG_INLINE Lanes<T, N> repair_huge(Lanes<T, N> a, Lanes<T, N> result, double (*f)(double)) {
    auto reducible = abs(a) <= Trig<T>::limit;
    if (__builtin_expect(!all(reducible), 0)) {
        return select(reducible, result, lane_by_lane<T, N>(f, a));
    }
    return result;
}

template <class T, int N>
TG_INLINE void sincos(Lanes<T, N> a, Lanes<T, N>& sin, Lanes<T, N>& cos) {
    auto x = quarter_turns(a);
    sin = repair_huge(a, sin_of(x), ::sin);
    cos = repair_huge(a, cos_of(x), ::cos);
}

template <class T, int N>
TG_INLINE Lanes<T, N> sin(Lanes<T, N> a) {
    return repair_huge(a, sin_of(quarter_turns(a)), ::sin);
}

template <class T, int N>
TG_INLINE Lanes<T, N> cos(Lanes<T, N> a) {
    return repair_huge(a, cos_of(quarter_turns(a)), ::cos);
}

// sin / cos, or -cos / sin after an odd number of quarters.
template <class T, int N>
TG_INLINE Lanes<T, N> tan(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    auto x = quarter_turns(a);
    auto odd = L::odd(x.quarters);
    L ratio = select(odd, x.cos, x.sin) / select(odd, x.sin, x.cos);
    return repair_huge(a, L::from_bits(bits(ratio) ^ (x.quarters << (8 * sizeof(T) - 1))), ::tan);
}

// ---- atan, asin and acos -----------------------------------------------------------------------

template <class T>
struct Arc;

template <>
struct Arc<double> {
    static constexpr double tan_pi_8 = 0x1.a827999fcef32p-2, tan_3pi_8 = 0x1.3504f333f9de6p+1;
    static constexpr double pi_4 = 0x1.921fb54442d18p-1, pi_4_low = 0x1.1a62633145c07p-55;
    // atan t = t + t z P(z), z = t^2, |t| <= tan(pi / 8): 0.02 ulp
    static constexpr double p[] = {
        -0x1.555555555553dp-2, 0x1.99999999957cdp-3, -0x1.24924922aa4e5p-3, 0x1.c71c70e50ee65p-4,
        -0x1.745cf8c38f9b9p-4, 0x1.3b1117976ea33p-4, -0x1.10eba8e4af46ep-4, 0x1.df0e81d3a9825p-5,
        -0x1.9ccf8666307ffp-5, 0x1.37ce32709f2a5p-5, -0x1.255b65b016db4p-6};
};

template <>
struct Arc<float> {
    static constexpr float tan_pi_8 = 0x1.a8279ap-2f, tan_3pi_8 = 0x1.3504f4p+1f;
    static constexpr float pi_4 = 0x1.921fb6p-1f, pi_4_low = -0x1.777a5cp-26f;
    static constexpr float p[] = {-0x1.55554ap-2f, 0x1.999196p-3f, -0x1.23b524p-3f, 0x1.b1ec3ap-4f,
                                  -0x1.f1edbep-5f};
};

// The angle in [0, pi/2] of the point (x, y), x, y >= 0: near the axes by the smaller ratio, in
// between turned back by pi/4, so that |t| <= tan(pi / 8).
template <class T, int N>
TG_INLINE Lanes<T, N> angle_of(Lanes<T, N> y, Lanes<T, N> x) {
    using L = Lanes<T, N>;
    using C = Arc<T>;
    auto low = y < C::tan_pi_8 * x;
    auto high = y > C::tan_3pi_8 * x;
    L numerator = select(low, y, select(high, -x, y - x));
    L denominator = select(low, x, select(high, y, y + x));
    L quarters = select(low, T(0), T(1) + one_if(high));
    L t = numerator / denominator;
    L z = t * t;
    L rest = fma(t * z, polynomial(C::p, z), quarters * C::pi_4_low);
    return fma(quarters, C::pi_4, t + rest);
}

template <class T, int N>
TG_INLINE Lanes<T, N> atan(Lanes<T, N> a) {
    return copysign(angle_of(abs(a), Lanes<T, N>(1)), a);
}

template <class T, int N>
TG_INLINE Lanes<T, N> asin(Lanes<T, N> a) {
    Lanes<T, N> u = abs(a);
    return copysign(angle_of(u, sqrt((T(1) - u) * (T(1) + u))), a);
}

template <class T, int N>
TG_INLINE Lanes<T, N> acos(Lanes<T, N> a) {
    using C = Arc<T>;
    Lanes<T, N> u = abs(a);
    Lanes<T, N> angle = angle_of(sqrt((T(1) - u) * (T(1) + u)), u);
    return select(a < T(0), T(4) * C::pi_4 - (angle - T(4) * C::pi_4_low), angle);
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
