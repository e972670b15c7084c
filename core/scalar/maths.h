// The elementary functions over Lanes<T, N>, for float and double, any N and any instruction set.
//
// One algorithm text serves all of them: fma() only where it is written, no approximate
// reciprocals, and a lane's result never depends on the other lanes, so that vectors of any width
// and scalars give the same bits. A rare argument (denormal result, infinity, NaN, huge angle)
// sends the whole vector into a second, slower path that is right for every lane.
//
// Maximal errors measured by tools/ulp.py, in units in the last place, the larger one of float and
// double and of all instruction sets; the coefficients come from tools/minimax.py:
//
//     exp   1.5   log    0.9   sin  1.5   asin  2.5   sigmoid   2.6   erf   1.3   pow    0.6
//     expm1 1.7   log1p  1.5   cos  1.5   acos  2.7   softplus  2.7   erfc  2.5   atan2  0.6
//     sinh  2.3   log2   1.8   tan  3.1   atan  1.9   tanh      2.5   gelu  2.9   hypot  0.6
//     cosh  1.6   log10  2.1
#pragma once

#include "maths_common.h"
#include "maths_erf.h"
#include "maths_exp.h"
#include "maths_trig.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- Single instructions -----------------------------------------------------------------------

template <class T, int N>
TG_INLINE Lanes<T, N> square(Lanes<T, N> a) {
    return a * a;
}

// ---- Through the C library ---------------------------------------------------------------------

template <class T, int N>
TG_INLINE Lanes<T, N> atan2(Lanes<T, N> a, Lanes<T, N> b) {
    return lane_by_lane<T, N>(::atan2, a, b);
}

template <class T, int N>
TG_INLINE Lanes<T, N> pow(Lanes<T, N> a, Lanes<T, N> b) {
    return lane_by_lane<T, N>(::pow, a, b);
}

template <class T, int N>
TG_INLINE Lanes<T, N> hypot(Lanes<T, N> a, Lanes<T, N> b) {
    return lane_by_lane<T, N>(::hypot, a, b);
}

/// Whether what a division leaves has another sign than the divisor.
inline bool is_opposed(double rest, double b) { return rest != 0 && (rest < 0) != (b < 0); }

/// a - b * floor(a / b) without the rounding of the quotient, as Python's a % b.
inline double remainder_of(double a, double b) {
    const double rest = ::fmod(a, b);
    if (rest == 0) return ::copysign(0.0, b);
    return is_opposed(rest, b) ? rest + b : rest;
}

/// Python's a // b: the quotient of what is left without the rest, which is whole. It is what the
/// quotient misses, by its own rounding and by the rest, that is rounded: huge ones are right, too.
inline double whole_quotient(double a, double b) {
    const double quotient = a / b, rest = ::fmod(a, b);
    if (std::isinf(quotient)) return b == 0 || !std::isnan(rest) ? quotient : rest;
    const double rounded = std::isinf(b) ? 0 : (std::fma(-quotient, b, a) - rest) / b;
    const double whole = ::rint(quotient + (rounded - is_opposed(rest, b)));
    return whole == 0 ? ::copysign(0.0, quotient) : whole;
}

template <class T, int N>
TG_INLINE Lanes<T, N> remainder(Lanes<T, N> a, Lanes<T, N> b) {
    return lane_by_lane<T, N>(remainder_of, a, b);
}

template <class T, int N>
TG_INLINE Lanes<T, N> floor_divide(Lanes<T, N> a, Lanes<T, N> b) {
    return lane_by_lane<T, N>(whole_quotient, a, b);
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
