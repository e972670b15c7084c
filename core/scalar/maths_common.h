// What all elementary functions share: polynomials, and the way through the C library.
#pragma once

#include "lanes.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- Polynomials -------------------------------------------------------------------------------

// c[First] + c[First + 1] x + ... of Count terms, by halving (Estrin's scheme): the chain of
// dependent operations grows with the logarithm of the degree. powers[i] is x^(2^i).
template <int First, int Count, class T, int Total, int N>
TG_INLINE Lanes<T, N> partial_polynomial(const T (&c)[Total], const Lanes<T, N>* powers) {
    if constexpr (Count == 1) {
        return c[First];
    } else {
        constexpr int level = 31 - __builtin_clz(Count - 1);
        constexpr int half = 1 << level;
        return fma(partial_polynomial<First + half, Count - half>(c, powers), powers[level],
                   partial_polynomial<First, half>(c, powers));
    }
}

template <int First = 0, class T, int Total, int N>
TG_INLINE Lanes<T, N> polynomial(const T (&c)[Total], Lanes<T, N> x) {
    Lanes<T, N> powers[5];
    powers[0] = x;
    for (int i = 1; i < 5; ++i) {
        powers[i] = powers[i - 1] * powers[i - 1];
    }
    return partial_polynomial<First, Total - First>(c, powers);
}

// ---- Lane by lane through the C library --------------------------------------------------------

template <class T, int N>
__attribute__((noinline)) static Lanes<T, N> lane_by_lane(double (*f)(double), Lanes<T, N> a) {
    T values[N];
    a.store(values);
    for (int i = 0; i < N; ++i) {
        values[i] = T(f(values[i]));
    }
    return Lanes<T, N>::load(values);
}

template <class T, int N>
__attribute__((noinline)) static Lanes<T, N> lane_by_lane(double (*f)(double, double),
                                                          Lanes<T, N> a, Lanes<T, N> b) {
    T values[N], others[N];
    a.store(values);
    b.store(others);
    for (int i = 0; i < N; ++i) {
        values[i] = T(f(values[i], others[i]));
    }
    return Lanes<T, N>::load(values);
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
