// The elementary functions over Lanes<T, N>, for float and double, any N and any instruction set.
//
// One algorithm text serves all of them: fma() only where it is written, no approximate
// reciprocals, and a lane's result never depends on the other lanes, so that vectors of any width
// and scalars give the same bits. A rare argument (denormal result, infinity, NaN, huge angle)
// sends the whole vector into a second, slower path that is right for every lane.
//
// The measured maximal errors stand at each function, in units in the last place
// (tools/ulp.py); the coefficients come from tools/minimax.py.
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

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
