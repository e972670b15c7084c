// The error function over Lanes, and the activation made of it: erf, erfc, gelu.
#pragma once

#include "maths_exp.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- erf, erfc and gelu ------------------------------------------------------------------------
//
// Below 1 a polynomial of x^2 gives erf; from 1 on erfc x = e^(-x^2) q H(q) with q = 1 / (x + 3),
// where x^2 is kept in two parts, as the exponential multiplies its relative error by x^2.

template <class T>
struct Erf;

template <>
struct Erf<double> {
    static constexpr double limit = 28;        // erfc is 0 from here on
    static constexpr double gelu_limit = 40;   // and gelu from -limit downwards
    static constexpr double sqrt_half = 0x1.6a09e667f3bcdp-1;
    static constexpr uint64_t low_half = 0x7ffffff;
    // erf x = x + x P(x^2), |x| <= 1: 0.03 ulp
    static constexpr double p[] = {
        0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b2p-4,    -0x1.b82ce3128499dp-6,
        0x1.565bcd0db02fdp-8,   -0x1.c02db3d8ed605p-11, 0x1.f9a321a12322ep-14,  -0x1.f4d1df399586fp-17,
        0x1.b9def1a061345p-20,  -0x1.5f1d36cd2102cp-23, 0x1.f7a412473a7eap-27,  -0x1.386ac01bb4872p-30,
        0x1.0579a6aec388ep-34};
    // H: 0.3 ulp
    static constexpr double h[] = {
        0x1.20dd75043fa49p-1,   0x1.b14c2f7cb4b9ep+0,   0x1.32eb4d48b1c32p+2,   0x1.96374eacfa7c6p+3,
        0x1.ee3d67810a7d6p+4,   0x1.0d0abcb5e86cap+6,   0x1.f444a0f8e75e8p+6,   0x1.47861cf97f2fep+7,
        0x1.8bca9b5d4118ap+7,   -0x1.bde32a4d907aap+10, 0x1.4086d8c07095ep+13,  -0x1.55963068db2a6p+16,
        0x1.c8c2b0e494a8cp+18,  -0x1.dcb76387b549ap+20, 0x1.79b48b16015c8p+22,  -0x1.8e13ed1bf52c3p+23,
        0x1.e1628a5f43358p+23,  -0x1.a0cf341876ebdp+22, -0x1.4ea2b7e0117abp+22, 0x1.5b23562889a55p+22};
};

template <>
struct Erf<float> {
    static constexpr float limit = 11;
    static constexpr float gelu_limit = 15.5f;
    static constexpr float sqrt_half = 0x1.6a09e6p-1f;
    static constexpr uint32_t low_half = 0xfff;
    static constexpr float p[] = {
        0x1.06eba8p-3f,   -0x1.81273ep-2f,  0x1.ce2cf8p-4f,   -0x1.b7f90ep-6f,  0x1.5405b2p-8f,
        -0x1.a3f702p-11f, 0x1.496a34p-14f};
    static constexpr float h[] = {
        0x1.20e204p-1f,  0x1.b0be24p+0f,  0x1.368b6cp+2f,  0x1.7cac7cp+3f,  0x1.2a29bap+5f,
        0x1.493c7ap+5f,  0x1.1ac848p+7f,  0x1.d5fb44p+8f,  -0x1.dee402p+9f};
};

// a^2 in two parts.
template <class T, int N>
TG_INLINE void square_exactly(Lanes<T, N> a, Lanes<T, N>& high, Lanes<T, N>& low) {
    using L = Lanes<T, N>;
    if constexpr (has_fma) {
        high = a * a;
        low = fma(a, a, -high);
    } else {
        L short_a = L::from_bits(bits(a) & ~Erf<T>::low_half);
        high = short_a * short_a;
        low = (a - short_a) * (a + short_a);
    }
}

// factor * erfc(u) for u >= 1, with u^2 = high + low. The factor is taken in before the result
// may become denormal.
template <class T, int N>
TG_INLINE Lanes<T, N> erfc_tail(Lanes<T, N> u, Lanes<T, N> high, Lanes<T, N> low,
                                Lanes<T, N> factor) {
    using L = Lanes<T, N>;
    auto x = exp_reduce(-high);
    L q = T(1) / (u + T(3));
    L shape = q * polynomial(Erf<T>::h, q) * factor;
    return scale(exp_near_zero<ExpKind::Accurate>(x.r - low) * shape, x.n);
}

template <class T, int N>
TG_INLINE Lanes<T, N> erfc_tail(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L u = at_most(abs(a), L(Erf<T>::limit));
    L high, low;
    square_exactly(u, high, low);
    return erfc_tail(u, high, low, L(1));
}

template <class T, int N>
TG_INLINE Lanes<T, N> erf(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L small = fma(a, polynomial(Erf<T>::p, a * a), a);
    return select(abs(a) < T(1), small, copysign(T(1) - erfc_tail(a), a));
}

template <class T, int N>
TG_INLINE Lanes<T, N> erfc(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L small = fma(-a, polynomial(Erf<T>::p, a * a), T(1) - a);
    L tail = erfc_tail(a);
    return select(abs(a) < T(1), small, select(a < T(0), T(2) - tail, tail));
}

// a/2 erfc(-a / sqrt 2), with the square of the argument taken from a itself.
template <class T, int N>
TG_INLINE Lanes<T, N> gelu(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Erf<T>;
    L v = a * C::sqrt_half;
    L small = T(0.5) * a * fma(v, polynomial(C::p, v * v), T(1) + v);

    L clamped = at_most(at_least(a, L(-C::gelu_limit)), L(C::gelu_limit));
    L high, low;
    square_exactly(clamped, high, low);
    L tail = erfc_tail(abs(clamped) * C::sqrt_half, high * T(0.5), low * T(0.5),
                       clamped * T(0.5));
    return select(abs(v) < T(1), small, select(a < T(0), tail, a - tail));
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
