// The error function over Lanes, and the activation made of it: erf, erfc, gelu.
#pragma once

#include "maths_exp.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- erf, erfc and gelu ------------------------------------------------------------------------
//
// Up to 0.7 a polynomial of x^2 gives erf. Beyond, erfc x = e^(-x^2) H(t) / x with
// t = (x - 1.5) / (x + 2), whose numerator is exact where H is steepest. x^2 is kept in two parts,
// as the exponential multiplies its relative error by x^2.

template <class T>
struct Erf;

template <>
struct Erf<double> {
    static constexpr double small_limit = 0.7;
    static constexpr double limit = 28;       // erfc is 0 from here on,
    static constexpr double gelu_limit = 40;  // gelu up to -40
    static constexpr double sqrt_half = 0x1.6a09e667f3bcdp-1;
    static constexpr uint64_t low_half = 0x7ffffff;  // of the bits of a number
    // erf x = x + x P(x^2): 0.0557 ulp
    static constexpr double p[] = {
        0x1.06eba8214db69p-3, -0x1.812746b0379e5p-2,  0x1.ce2f21a0429adp-4,  -0x1.b82ce31277433p-6,
        0x1.565bcd09fb70bp-8, -0x1.c02db2af21b2ep-11, 0x1.f9a2e868e969fp-14, -0x1.f4cae1bd7198fp-17,
        0x1.b9531e7439dbp-20, -0x1.585242a3faa4dp-23, 0x1.970ee92813ccfp-27};
    // H, with more bits of its first coefficient: 0.1 ulp
    static constexpr double h0_low = 0x1.aa7b1db850568p-56;
    static constexpr double h[] = {
        0x1.edf487f74041cp-2,   0x1.10ece2384ca2fp-2,   -0x1.5ab3dcc276b97p-2,
        0x1.a09d360d8861bp-3,   -0x1.37559d4b4ffabp-5,  -0x1.604f73a44312ap-6,
        0x1.e3a3a93267eccp-8,   0x1.214d65e77fb3ep-8,   -0x1.d063b7c9371ddp-11,
        -0x1.31894ed1f7586p-10, -0x1.e52f92e88f4abp-14, 0x1.07232810ea641p-12,
        0x1.0982cfe1dd8fap-13,  -0x1.e85c90d953fe4p-17, -0x1.779e7f4a15b1bp-15,
        -0x1.77efc4cd71222p-17, 0x1.02fff4c26c8ecp-18,  -0x1.89c441951db7p-17,
        0x1.29372d3a66065p-15,  -0x1.97e20fdf15bc6p-16, 0x1.611fc8fb86f18p-18};
};

template <>
struct Erf<float> {
    static constexpr float small_limit = 0.7f;
    static constexpr float limit = 11;
    static constexpr float gelu_limit = 15.5f;
    static constexpr float sqrt_half = 0x1.6a09e6p-1f;
    static constexpr uint32_t low_half = 0xfff;
    static constexpr float p[] = {0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2c92p-4f,
                                  -0x1.b7d37p-6f, 0x1.50cb18p-8f, -0x1.6cbc7ap-11f};
    static constexpr float h0_low = -0x1.045d8cp-33f;
    static constexpr float h[] = {0x1.edf488p-2f, 0x1.10ecdcp-2f, -0x1.5ab3e2p-2f,
                                  0x1.a0a02ep-3f, -0x1.375cdp-5f, -0x1.61f328p-6f,
                                  0x1.ef6952p-8f, 0x1.3e85cp-8f,  -0x1.37e85ep-9f};
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

// u erfc(u) for u >= 0.7 as value * 2^n, with u^2 = high + low.
template <class T, int N>
struct ErfcTail {
    Lanes<T, N> value, n;
};

template <class T, int N>
TG_INLINE ErfcTail<T, N> erfc_tail(Lanes<T, N> u, Lanes<T, N> high, Lanes<T, N> low) {
    using L = Lanes<T, N>;
    using C = Erf<T>;
    auto x = exp_reduce(-high);
    L t = (u - T(1.5)) / (u + T(2));
    L rest = fma(t, polynomial<1>(C::h, t), C::h0_low);  // H without h[0]
    L s = expm1_near_zero(x.r - low);
    return {C::h[0] + fma(C::h[0] + rest, s, rest), x.n};
}

// erfc(|a|) for |a| >= 0.7.
template <class T, int N>
TG_INLINE Lanes<T, N> erfc_of_large(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L u = at_most(abs(a), L(Erf<T>::limit));
    L high, low;
    square_exactly(u, high, low);
    auto tail = erfc_tail(u, high, low);
    return scale(tail.value / u, tail.n);
}

template <class T, int N>
TG_INLINE Lanes<T, N> erf(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L small = fma(a, polynomial(Erf<T>::p, a * a), a);
    L large = copysign(T(1) - erfc_of_large(a), a);
    return select(abs(a) < Erf<T>::small_limit, small, large);
}

template <class T, int N>
TG_INLINE Lanes<T, N> erfc(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L small = fma(-a, polynomial(Erf<T>::p, a * a), T(1) - a);
    L large = erfc_of_large(a);
    large = select(a < T(0), T(2) - large, large);
    return select(abs(a) < Erf<T>::small_limit, small, large);
}

// a/2 erfc(-v), v = a / sqrt 2, with v^2 taken from a itself. In a/2 erfc(|v|) = a/2 tail / |v| the
// division cancels to a constant.
template <class T, int N>
TG_INLINE Lanes<T, N> gelu(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Erf<T>;
    L v = a * C::sqrt_half;
    L small = T(0.5) * a * fma(v, polynomial(C::p, v * v), T(1) + v);

    L u = at_most(abs(a), L(C::gelu_limit));
    L high, low;
    square_exactly(u, high, low);
    auto tail = erfc_tail(u * C::sqrt_half, T(0.5) * high, T(0.5) * low);
    L lost = scale(tail.value * C::sqrt_half, tail.n);
    return select(abs(v) < C::small_limit, small, select(a < T(0), -lost, a - lost));
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
