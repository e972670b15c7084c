// core/scalar/search_kernels.cpp -- vectors of one search; compiled once per instruction set.
//
// Sums have eight partial sums, term k in k % 8, whatever the width of a register.
#include "lanes.h"
#include "moves.h"

namespace tapegrad {
namespace TG_ISA {
namespace {
namespace moving {

using Size = std::size_t;
using Vec = Lanes<double, native_lanes<double>>;
constexpr int registers = search_width / Vec::size;  ///< of partial sums

/// Entries of vectors from k on.
struct At {
    Size k;

    TG_METHOD Vec operator()(const double* a) const { return Vec::load(a + k); }
    TG_METHOD void put(Vec value, double* to) const { value.store(to + k); }
};

/// Calls body(entries, register of partial sums) for all entries.
template <class Body>
TG_INLINE void each(Size n, Body body) {
    for (Size k = 0; k < n; k += search_width)
        for (int r = 0; r < registers; ++r) body(At{k + Size(r * Vec::size)}, r);
}

template <int count>
struct Terms {
    Vec of[count];
};

/// Sums of the `count` terms that term(entries) gives.
template <int count, class Term>
TG_INLINE void sum(Size n, double (&sums)[count], Term term) {
    Vec partial[count][registers];
    for (auto& each : partial)
        for (Vec& part : each) part = 0.0;
    each(n, [&](At at, int r) TG_LAMBDA {
        const Terms<count> terms = term(at);
        for (int i = 0; i < count; ++i) partial[i][r] = partial[i][r] + terms.of[i];
    });
    for (int i = 0; i < count; ++i) {
        double s[search_width];
        for (int r = 0; r < registers; ++r) partial[i][r].store(s + r * Vec::size);
        sums[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
}

TrialSums compare(Size n, const double* x, const double* trial, const double* gradient,
                  const double* here, const double* direction, double* step, double* change) {
    double sums[6];
    sum(n, sums, [=](At at) TG_LAMBDA {
        const Vec g = at(gradient), h = at(here), s = at(trial) - at(x), c = h - g;
        at.put(s, step);
        at.put(c, change);
        return Terms<6>{{g * s, h * at(direction), s * c, s * s, c * c, abs(s)}};
    });
    return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

double largest(Size n, const double* a) {
    Vec most[registers];
    for (Vec& part : most) part = 0.0;
    each(n, [&](At at, int r) TG_LAMBDA { most[r] = maximum(abs(at(a)), most[r]); });
    Lanes<double, 1> out = 0.0;
    for (int r = 0; r < registers; ++r)
        for (int l = 0; l < Vec::size; ++l) out = maximum(Lanes<double, 1>(most[r][l]), out);
    return out[0];
}

double begin(Size n, double scale, const double* from, const double* free, double* to,
             const double* next) {
    double sums[1];
    sum(n, sums, [=](At at) TG_LAMBDA {
        Vec value = scale * at(from);
        if (free) value = value * at(free);
        at.put(value, to);
        return Terms<1>{{value * at(next)}};
    });
    return sums[0];
}

double add(Size n, double scale, const double* row, const double* free, double* to,
           const double* next) {
    double sums[1];
    sum(n, sums, [=](At at) TG_LAMBDA {
        Vec more = scale * at(row);
        if (free) more = at(free) * more;
        const Vec value = at(to) + more;
        at.put(value, to);
        return Terms<1>{{value * at(next)}};
    });
    return sums[0];
}

DirectionSums direct(Size n, const double* gradient, const double* direction, const double* free) {
    double sums[3];
    sum(n, sums, [=](At at) TG_LAMBDA {
        const Vec g = at(gradient), d = at(direction);
        return Terms<3>{{g * d, d * d, free ? at(free) * g * g : g * g}};
    });
    return {sums[0], sums[1], sums[2]};
}

void go(Size n, const double* x, double scale, const double* direction, double* to) {
    each(n, [=](At at, int) TG_LAMBDA { at.put(at(x) + scale * at(direction), to); });
}

}  // namespace moving
}  // namespace

extern const SearchKernels searches;
const SearchKernels searches = {moving::compare, moving::largest, moving::begin,
                                moving::add,     moving::direct,  moving::go};

}  // namespace TG_ISA
}  // namespace tapegrad
