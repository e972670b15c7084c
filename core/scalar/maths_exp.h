// The exponential and logarithmic functions over Lanes, and the logistic ones made of them:
// exp, expm1, log, log1p, log2, log10, sigmoid, softplus, tanh, sinh, cosh.
#pragma once

#include "maths_common.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- exp and expm1 -----------------------------------------------------------------------------

template <class T>
struct Exp;

template <>
struct Exp<double> {
    static constexpr double log2_e = 0x1.71547652b82fep+0;
    // ln 2 in two parts; the first has 42 bits, so that its product with an exponent is exact
    static constexpr double ln2_high = 0x1.62e42fefa38p-1;
    static constexpr double ln2_low = 0x1.ef35793c7673p-45;
    // Adding it rounds to an integer, which then stands in the lowest bits.
    static constexpr double rounder = 0x1.8p52;
    // |a| up to here is far from results that are no normal numbers, so that intermediate ones are
    // normal, too; 800 is beyond all that are neither 0 nor infinity.
    static constexpr double normal_limit = 680;
    static constexpr double limit = 800;
    // expm1 is -1 below the first, and exp above the second
    static constexpr double expm1_low = -40;
    static constexpr double expm1_high = 700;
    // exp goes in steps of ln 2 / 16; the first part has 38 bits
    static constexpr double steps_log2_e = 0x1.71547652b82fep+4;
    static constexpr double step_high = 0x1.62e42fefap-5;
    static constexpr double step_low = 0x1.cf79abc9e3b39p-44;
    // 2^(i / 16), less i at the place where the step count is added
    static constexpr double table[] = {0x1p+0,
                                       0x1.fb5586cf9890fp-1,
                                       0x1.f72b83c7d517bp-1,
                                       0x1.f387a6e756238p-1,
                                       0x1.f06fe0a31b715p-1,
                                       0x1.edea64c123422p-1,
                                       0x1.ebfdad5362a27p-1,
                                       0x1.eab07dd485429p-1,
                                       0x1.ea09e667f3bcdp-1,
                                       0x1.ea11473eb0187p-1,
                                       0x1.eace5422aa0dbp-1,
                                       0x1.ec49182a3f09p-1,
                                       0x1.ee89f995ad3adp-1,
                                       0x1.f199bdd85529cp-1,
                                       0x1.f5818dcfba487p-1,
                                       0x1.fa4afa2a490dap-1};
    // e^r = 1 + r + r^2 Q(r), |r| <= ln 2 / 32: 0.05 ulp
    static constexpr double q[] = {0x1.fffffffffffb9p-2, 0x1.555555548f88p-3, 0x1.55555558fa00dp-5,
                                   0x1.11123aaf07721p-7, 0x1.6c14c8298b8ffp-10};
    // e^r - 1 = r + r^2 Q(r): 0.05 ulp
    static constexpr double expm1_q[] = {
        0x1.0000000000001p-1,  0x1.5555555555557p-3,  0x1.5555555554d3fp-5,  0x1.11111111100eap-7,
        0x1.6c16c16f09927p-10, 0x1.a01a01abe1256p-13, 0x1.a019f398f9bbep-16, 0x1.71de024551594p-19,
        0x1.2802229afd02ap-22, 0x1.af4dc3a28999dp-26, 0x1.e63261a2b383fp-30};
};

template <>
struct Exp<float> {
    static constexpr float log2_e = 0x1.715476p+0f;
    static constexpr float ln2_high = 0x1.62e4p-1f;  // 16 bits
    static constexpr float ln2_low = 0x1.7f7d1cp-20f;
    static constexpr float rounder = 0x1.8p23f;
    static constexpr float normal_limit = 60;
    static constexpr float limit = 110;
    static constexpr float expm1_low = -20;
    static constexpr float expm1_high = 80;
    static constexpr float steps_log2_e = 0x1.715476p+4f;
    static constexpr float step_high = 0x1.62ep-5f;  // 12 bits
    static constexpr float step_low = 0x1.0bfbe8p-19f;
    static constexpr float table[] = {
        0x1p+0f,        0x1.fb5586p-1f, 0x1.f72b84p-1f, 0x1.f387a6p-1f,
        0x1.f06fep-1f,  0x1.edea64p-1f, 0x1.ebfdaep-1f, 0x1.eab07ep-1f,
        0x1.ea09e6p-1f, 0x1.ea1148p-1f, 0x1.eace54p-1f, 0x1.ec4918p-1f,
        0x1.ee89fap-1f, 0x1.f199bep-1f, 0x1.f5818ep-1f, 0x1.fa4afap-1f};
    static constexpr float q[] = {0x1.00021ep-1f, 0x1.55559ap-3f};
    static constexpr float expm1_q[] = {0x1p-1f,        0x1.555556p-3f,  0x1.5554ap-5f,
                                        0x1.11101ep-7f, 0x1.6d8334p-10f, 0x1.a2a28p-13f};
};

// a = n ln 2 + r with |r| <= ln 2 / 2; the lowest bits are those of n.
template <class T, int N>
struct ExpReduced {
    Lanes<T, N> r, n;
    Bits<T, N> n_bits;
};

template <class T, int N>
TG_INLINE ExpReduced<T, N> exp_reduce(Lanes<T, N> a) {
    using C = Exp<T>;
    Lanes<T, N> shifted = fma(a, C::log2_e, C::rounder);
    Lanes<T, N> n = shifted - C::rounder;
    Lanes<T, N> r = fma(n, -C::ln2_low, fma(n, -C::ln2_high, a));
    return {r, n, bits(shifted)};
}

// e^r - 1 for |r| <= ln 2 / 2.
template <class T, int N>
TG_INLINE Lanes<T, N> expm1_near_zero(Lanes<T, N> r) {
    return fma(r * r, polynomial(Exp<T>::expm1_q, r), r);
}

// 2^n for -bias < n <= bias, n in the lowest bits.
template <class T, int N>
TG_INLINE Lanes<T, N> power_of_two(Bits<T, N> n_bits) {
    using F = Format<T>;
    return Lanes<T, N>::from_bits((n_bits + F::exponent_bias) << F::fraction_bits);
}

// a * 2^n for an integer n of up to twice the exponent range: two steps, of which the first is
// exact, so that a denormal result is rounded once.
template <class T, int N>
TG_INLINE Lanes<T, N> scale(Lanes<T, N> a, Lanes<T, N> n) {
    using C = Exp<T>;
    Lanes<T, N> half = fma(n, T(0.5), C::rounder);
    Lanes<T, N> rest = (n - (half - C::rounder)) + C::rounder;
    return a * power_of_two<T, N>(bits(half)) * power_of_two<T, N>(bits(rest));
}

// a = n ln 2 / 16 + r. exp is 2^(n / 16) + 2^(n / 16) (e^r - 1): the lowest four bits of n choose
// from a table, the others go into the exponent. The short polynomial that is left makes it 1.4
// times as fast as a reduction by ln 2 with a long one, in lanes and in latency.
template <class T, int N>
struct ExpSteps {
    Lanes<T, N> n, rest;  // rest is e^r - 1
    Bits<T, N> n_bits;
};

template <class T, int N>
TG_INLINE ExpSteps<T, N> exp_steps(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Exp<T>;
    L shifted = fma(a, C::steps_log2_e, C::rounder);
    L n = shifted - C::rounder;
    L r = fma(n, -C::step_low, fma(n, -C::step_high, a));
    // r + r^2 Q(r) as (r + r^2 (q0 + q1 r)) + r^4 (q2 + ...), one step shorter than Q by itself
    L r2 = r * r;
    L rest = fma(r2, fma(r, C::q[1], C::q[0]), r);
    if constexpr (sizeof(T) == 8) {
        rest = fma(r2 * r2, fma(r2, C::q[4], fma(r, C::q[3], C::q[2])), rest);
    }
    return {n, rest, bits(shifted)};
}

// 2^(i / 16) times two to the power that the upper bits of i_bits make.
template <class T, int N>
TG_INLINE Lanes<T, N> power_of_steps(Bits<T, N> i_bits) {
    using L = Lanes<T, N>;
    return L::from_bits(bits(L::look_up(Exp<T>::table, i_bits)) +
                        (i_bits << (Format<T>::fraction_bits - 4)));
}

// e^a 2^extra for any argument.
template <class T, int N>
TG_RARE Lanes<T, N> exp_of_any(Lanes<T, N> a, T extra = 0) {
    using L = Lanes<T, N>;
    using C = Exp<T>;
    auto x = exp_steps(at_most(at_least(a, -C::limit), C::limit));
    L power = power_of_steps<T, N>(x.n_bits & 15);
    L whole = floor(x.n * T(1.0 / 16));
    return select(a != a, a, scale(fma(power, x.rest, power), whole + extra));
}

// e^a where it is a normal number: |a| <= normal_limit.
template <class T, int N>
TG_INLINE Lanes<T, N> exp_of_normal(Lanes<T, N> a) {
    auto x = exp_steps(a);
    Lanes<T, N> power = power_of_steps<T, N>(x.n_bits);
    return fma(power, x.rest, power);
}

template <class T, int N>
TG_INLINE Lanes<T, N> exp(Lanes<T, N> a) {
    if (__builtin_expect(!all(abs(a) <= Exp<T>::normal_limit), 0)) {
        return exp_of_any(a);
    }
    return exp_of_normal(a);
}

// 2^n e^r - 1 = (2^n - 1 + 2^n r) + 2^n r^2 Q(r), where only the additions round. For
// |a| <= ln 2 / 2, n is 0 and the sum is a + a^2 Q(a).
template <class T, int N>
TG_INLINE Lanes<T, N> expm1(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Exp<T>;
    auto x = exp_reduce(at_least(a, C::expm1_low));
    L power = power_of_two<T, N>(x.n_bits);
    L head = fma(power, x.r, power - T(1));
    L result = fma(power, x.r * x.r * polynomial(C::expm1_q, x.r), head);
    if (__builtin_expect(any(a > C::expm1_high), 0)) {
        result = select(a > C::expm1_high, exp_of_any(a), result);
    }
    return copysign(result, a);
}

// ---- log and log1p -----------------------------------------------------------------------------

template <class T>
struct Log;

template <>
struct Log<double> {
    static constexpr uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
    static constexpr double denormal_scale = 0x1p54, denormal_shift = 54;
    static constexpr double huge = 0x1p1000;  // from here on 1 + a is a, and 2^-k may underflow
    static constexpr double log10_e = 0x1.bcb7b1526e50ep-2;
    static constexpr double log10_2_high = 0x1.34413509f78p-2;  // 42 bits
    static constexpr double log10_2_low = 0x1.fef311f12b358p-46;
    // 2 atanh(s) = 2 s + s z P(z), z = s^2, for |s| <= 0.172: 0.006 ulp
    static constexpr double p[] = {0x1.5555555555592p-1, 0x1.999999997fedep-2, 0x1.24924941e1651p-2,
                                   0x1.c71c5215c68f8p-3, 0x1.74663c6f1156cp-3, 0x1.39a1f8d784eaep-3,
                                   0x1.2f0301629bf83p-3};
    // 1 / (1 + t) and log(1 + t) at t = i / 16
    static constexpr double unit_inverse[] = {0x1p+0,
                                              0x1.e1e1e1e1e1e1ep-1,
                                              0x1.c71c71c71c71cp-1,
                                              0x1.af286bca1af28p-1,
                                              0x1.999999999999ap-1,
                                              0x1.8618618618618p-1,
                                              0x1.745d1745d1746p-1,
                                              0x1.642c8590b2164p-1,
                                              0x1.5555555555555p-1,
                                              0x1.47ae147ae147bp-1,
                                              0x1.3b13b13b13b14p-1,
                                              0x1.2f684bda12f68p-1,
                                              0x1.2492492492492p-1,
                                              0x1.1a7b9611a7b96p-1,
                                              0x1.1111111111111p-1,
                                              0x1.0842108421084p-1};
    static constexpr double unit_log[] = {0x0p+0,
                                          0x1.f0a30c01162a6p-5,
                                          0x1.e27076e2af2e6p-4,
                                          0x1.5ff3070a793d4p-3,
                                          0x1.c8ff7c79a9a22p-3,
                                          0x1.1675cababa60ep-2,
                                          0x1.4618bc21c5ec2p-2,
                                          0x1.739d7f6bbd007p-2,
                                          0x1.9f323ecbf984cp-2,
                                          0x1.c8ff7c79a9a22p-2,
                                          0x1.f128f5faf06edp-2,
                                          0x1.0be72e4252a83p-1,
                                          0x1.1e85f5e7040dp-1,
                                          0x1.307d7334f10bep-1,
                                          0x1.41d8fe84672aep-1,
                                          0x1.52a2d265bc5abp-1};
    // log(1 + r) = r + r^2 Q(r), 0 <= r <= 1/16: 0.05 ulp
    static constexpr double unit_q[] = {
        -0x1.ffffffffffeefp-2, 0x1.5555555532b3dp-2, -0x1.ffffffcfcd369p-3, 0x1.999989599ce2ep-3,
        -0x1.55524b32f9cb5p-3, 0x1.243d0b3220a06p-3, -0x1.f50ed6a6be468p-4, 0x1.6407fc264188ap-4};
    static constexpr double below_one = 0x1.ffffffffffffep-1;
};

template <>
struct Log<float> {
    static constexpr uint32_t sqrt_half = 0x3f3504f3;
    static constexpr float denormal_scale = 0x1p25f, denormal_shift = 25;
    static constexpr float huge = 0x1p100f;
    static constexpr float log10_e = 0x1.bcb7b2p-2f;
    static constexpr float log10_2_high = 0x1.344p-2f;  // 16 bits
    static constexpr float log10_2_low = 0x1.3509f6p-18f;
    static constexpr float p[] = {0x1.55557ap-1f, 0x1.995edp-2f, 0x1.31e0dp-2f};
    static constexpr float unit_inverse[] = {
        0x1p+0f,        0x1.e1e1e2p-1f, 0x1.c71c72p-1f, 0x1.af286cp-1f,
        0x1.99999ap-1f, 0x1.861862p-1f, 0x1.745d18p-1f, 0x1.642c86p-1f,
        0x1.555556p-1f, 0x1.47ae14p-1f, 0x1.3b13b2p-1f, 0x1.2f684cp-1f,
        0x1.24924ap-1f, 0x1.1a7b96p-1f, 0x1.111112p-1f, 0x1.08421p-1f};
    static constexpr float unit_log[] = {
        0x0p+0f,        0x1.f0a30cp-5f, 0x1.e27076p-4f, 0x1.5ff308p-3f,
        0x1.c8ff7cp-3f, 0x1.1675cap-2f, 0x1.4618bcp-2f, 0x1.739d8p-2f,
        0x1.9f323ep-2f, 0x1.c8ff7cp-2f, 0x1.f128f6p-2f, 0x1.0be72ep-1f,
        0x1.1e85f6p-1f, 0x1.307d74p-1f, 0x1.41d8fep-1f, 0x1.52a2d2p-1f};
    static constexpr float unit_q[] = {-0x1.fffde2p-2f, 0x1.54855ep-2f, -0x1.d21c3p-3f};
    static constexpr float below_one = 0x1.fffffcp-1f;
};

// A positive normal a as 2^k m, m from sqrt(1/2) to sqrt(2); biased is k + bias.
template <class T, int N>
struct Binary {
    Lanes<T, N> k, m;
    Bits<T, N> biased;
};

template <class T, int N>
TG_INLINE Binary<T, N> split_exponent(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using F = Format<T>;
    using U = typename F::UInt;
    constexpr int f = F::fraction_bits;
    constexpr T integers = T(uint64_t(1) << f);
    constexpr U integers_bits = U(F::exponent_bias + f) << f;
    auto offset = bits(a) + ((U(F::exponent_bias) << f) - Log<T>::sqrt_half);
    auto biased = offset >> f;
    L k = L::from_bits(biased | integers_bits) - (integers + T(F::exponent_bias));
    L m = L::from_bits((offset & ((U(1) << f) - 1)) + Log<T>::sqrt_half);
    return {k, m, biased};
}

// log(1 + f) + k ln 2 = f - s (f - z P(z)) + k ln 2 with s = f / (2 + f).
template <class T, int N>
TG_INLINE Lanes<T, N> log_of_parts(Lanes<T, N> k, Lanes<T, N> f) {
    using L = Lanes<T, N>;
    L s = f / (T(2) + f);
    L z = s * s;
    L inner = f - z * polynomial(Log<T>::p, z);
    L below = fma(k, -Exp<T>::ln2_low, s * inner);
    return fma(k, Exp<T>::ln2_high, f - below);
}

// log(1 + f) alone.
template <class T, int N>
TG_INLINE Lanes<T, N> log_of_fraction(Lanes<T, N> f) {
    using L = Lanes<T, N>;
    L s = f / (T(2) + f);
    L z = s * s;
    L inner = fma(-z, polynomial(Log<T>::p, z), f);
    return fma(-s, inner, f);
}

// A logarithm from of_parts(k, f), which gets a = 2^k (1 + f); this one for any argument.
template <class T, int N, class OfParts>
TG_RARE Lanes<T, N> logarithm_of_any(Lanes<T, N> a, OfParts of_parts) {
    using L = Lanes<T, N>;
    using F = Format<T>;
    auto denormal = a < F::smallest_normal;
    auto x = split_exponent(select(denormal, a * Log<T>::denormal_scale, a));
    L k = select(denormal, x.k - Log<T>::denormal_shift, x.k);
    L result = of_parts(k, x.m - T(1));
    result = select(a <= F::largest, result, a);
    result = select(a < T(0), F::nan, result);
    return select(a == T(0), -F::infinity, result);
}

template <class T, int N, class OfParts>
TG_INLINE Lanes<T, N> logarithm(Lanes<T, N> a, OfParts of_parts) {
    using F = Format<T>;
    if (__builtin_expect(!all((a >= F::smallest_normal) & (a <= F::largest)), 0)) {
        return logarithm_of_any(a, of_parts);
    }
    auto x = split_exponent(a);
    return of_parts(x.k, x.m - T(1));
}

template <class T, int N>
TG_INLINE Lanes<T, N> log(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    return logarithm(a, [](L k, L f) TG_LAMBDA { return log_of_parts(k, f); });
}

template <class T, int N>
TG_INLINE Lanes<T, N> log2(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    return logarithm(a,
                     [](L k, L f) TG_LAMBDA { return fma(log_of_fraction(f), Exp<T>::log2_e, k); });
}

template <class T, int N>
TG_INLINE Lanes<T, N> log10(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Log<T>;
    return logarithm(a, [](L k, L f) TG_LAMBDA {
        L low = fma(log_of_fraction(f), C::log10_e, k * C::log10_2_low);
        return fma(k, C::log10_2_high, low);
    });
}

// log1p outside of (-1, huge]: beyond it is log, at -1 -infinity, below NaN, as log is for 1 + a.
template <class T, int N>
TG_RARE Lanes<T, N> log1p_of_rare(Lanes<T, N> a) {
    return log(select(a > T(0), a, T(1) + a));
}

// log(u + c) where u + c is 1 + a exactly: f is the fraction of u, plus c on the scale of m.
template <class T, int N>
TG_INLINE Lanes<T, N> log1p(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using F = Format<T>;
    L u = T(1) + a;
    L c = a - (u - T(1));
    auto x = split_exponent(u);
    L inverse = L::from_bits((2 * F::exponent_bias - x.biased) << F::fraction_bits);
    L result = copysign(log_of_parts(x.k, fma(c, inverse, x.m - T(1))), a);
    auto usual = (a > T(-1)) & (a <= Log<T>::huge);
    if (__builtin_expect(!all(usual), 0)) {
        result = select(usual, result, log1p_of_rare(a));
    }
    return result;
}

// b + log(1 + a) for a in [0, 1] and b >= 0. With t the sixteenths of a it is
// b + log(1 + t) + log(1 + r), r = (a - t) / (1 + t): to look up takes less time than to divide.
// The largest part comes last: an addition more to wait for, and half an ulp less.
template <class T, int N>
TG_INLINE Lanes<T, N> log1p_unit(Lanes<T, N> a, Lanes<T, N> b) {
    using L = Lanes<T, N>;
    using F = Format<T>;
    using C = Log<T>;
    constexpr int sixteenths = F::fraction_bits - 4;
    constexpr auto below = (typename F::UInt(1) << sixteenths) - 1;
    auto u = bits(fma(a, C::below_one, T(1)));  // less than 2: the last row serves 1, too
    L t = L::from_bits(u & ~below) - T(1);
    L r = (a - t) * L::look_up(C::unit_inverse, u >> sixteenths);
    L whole = b + L::look_up(C::unit_log, u >> sixteenths);
    return whole + fma(r * r, polynomial(C::unit_q, r), r);
}

// ---- The logistic family -----------------------------------------------------------------------

template <class T, int N>
TG_INLINE Lanes<T, N> softplus_of(Lanes<T, N> a, Lanes<T, N> exp_minus_abs) {
    return log1p_unit(exp_minus_abs, at_least(a, Lanes<T, N>(0)));
}

// The quotient is corrected by what 1 + e^-|a| lost to rounding, which is found while it is
// divided.
template <class T, int N>
TG_INLINE Lanes<T, N> sigmoid_of(Lanes<T, N> a, Lanes<T, N> exp_minus_abs) {
    Lanes<T, N> whole = T(1) + exp_minus_abs;
    Lanes<T, N> quotient = select(a < T(0), exp_minus_abs, T(1)) / whole;
    return fma(-quotient, exp_minus_abs - (whole - T(1)), quotient);
}

template <class T, int N>
TG_INLINE Lanes<T, N> softplus(Lanes<T, N> a) {
    return softplus_of(a, exp(minus_abs(a)));
}

template <class T, int N>
TG_INLINE Lanes<T, N> sigmoid(Lanes<T, N> a) {
    return sigmoid_of(a, exp(minus_abs(a)));
}

template <class T, int N>
TG_INLINE void softplus_sigmoid(Lanes<T, N> a, Lanes<T, N>& softplus, Lanes<T, N>& sigmoid) {
    Lanes<T, N> e = exp(minus_abs(a));
    softplus = softplus_of(a, e);
    sigmoid = sigmoid_of(a, e);
}

// With t = e^(-2 |a|) - 1 it is -t / (2 + t).
template <class T, int N>
TG_INLINE Lanes<T, N> tanh(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    using C = Exp<T>;
    auto x = exp_reduce(at_least(T(-2) * abs(a), L(C::expm1_low)));
    L s = expm1_near_zero(x.r);
    L power = power_of_two<T, N>(x.n_bits);
    L t = fma(power, s, power - T(1));
    return copysign(t / (T(2) + t), a);
}

template <class T, int N>
TG_INLINE Lanes<T, N> relu(Lanes<T, N> a) {
    return maximum(a, Lanes<T, N>(0));
}

// ---- sinh and cosh -----------------------------------------------------------------------------

// e^a / 2, which is finite for all a where sinh and cosh are.
template <class T, int N>
TG_INLINE Lanes<T, N> half_exp(Lanes<T, N> a) {
    return exp_of_any(a, T(-1));
}

// With t = e^|a| - 1 it is (t + t / (t + 1)) / 2.
template <class T, int N>
TG_INLINE Lanes<T, N> sinh(Lanes<T, N> a) {
    using L = Lanes<T, N>;
    L u = abs(a);
    L t = expm1(at_most(u, L(Exp<T>::expm1_high)));
    L result = T(0.5) * (t + t / (t + T(1)));
    if (__builtin_expect(any(u > Exp<T>::expm1_high), 0)) {
        result = select(u > Exp<T>::expm1_high, half_exp(u), result);
    }
    return copysign(result, a);
}

template <class T, int N>
TG_INLINE Lanes<T, N> cosh(Lanes<T, N> a) {
    Lanes<T, N> half = half_exp(abs(a));
    return half + T(0.25) / half;
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
