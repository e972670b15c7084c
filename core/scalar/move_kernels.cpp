// core/scalar/move_kernels.cpp -- steps of sgd, momentum and adam; lanes apart, and together again.
//
// Compiled once per instruction set and number type. One start fills vectors with its variables,
// many fill them with lanes.
#include "lanes.h"
#include "moves.h"

namespace tapegrad {
namespace TG_ISA {
namespace {
namespace moving {

using Real = TG_REAL;
using Size = std::size_t;
constexpr int native = native_lanes<Real>;
using Vec = Lanes<Real, native>;

template <class L>
TG_INLINE L limited(L x, L low, L high) {
    return select(x < low, low, select(x > high, high, x));
}

/// Variables from k on of the only lane.
template <class L, class Update>
TG_INLINE void move_variables(const Moves<Real>& m, Size k, Update update) {
    L x = update(L::gather(m.from, m.inputs + k, 1), L::gather(m.found, m.places + k, 1), k);
    if (m.low) x = limited(x, L::load(m.low + k), L::load(m.high + k));
    x.scatter(m.to, m.inputs + k, 1);
}

/// All lanes of variable k.
template <class Update>
TG_INLINE void move_lanes(const Moves<Real>& m, Size k, Update update) {
    const Size point = m.inputs[k] * m.lanes, found = m.places[k] * m.lanes;
    for (Size l = 0; l < m.lanes; l += native) {
        Vec x =
            update(Vec::load(m.from + point + l), Vec::load(m.found + found + l), k * m.lanes + l);
        if (m.low) x = limited(x, Vec(m.low[k]), Vec(m.high[k]));
        x.store(m.to + point + l);
    }
}

/// Moves every variable of every lane to update(x, derivative, which entry of the moments).
template <class Update>
TG_INLINE void move_all(const Moves<Real>& m, Update update) {
    Size k = 0;
    if (m.lanes == 1) {
        for (; k + native <= m.variables; k += native) move_variables<Vec>(m, k, update);
        for (; k < m.variables; ++k) move_variables<Lanes<Real, 1>>(m, k, update);
    } else {
        for (; k < m.variables; ++k) move_lanes(m, k, update);
    }
}

void sgd(const Moves<Real>& moves, Real lr) {
    move_all(moves, [&](auto x, auto g, Size) TG_LAMBDA { return x - lr * g; });
}

void momentum(const Moves<Real>& moves, Real lr, Real decay, Real* moment) {
    move_all(moves, [&](auto x, auto g, Size at) TG_LAMBDA {
        using L = decltype(x);
        const L m = decay * L::load(moment + at) + g;
        m.store(moment + at);
        return x - lr * m;
    });
}

void adam(const Moves<Real>& moves, const AdamStep<Real>& step, Real* first, Real* second) {
    const AdamStep<Real> s = step;  // what is written could be a part of the one given
    move_all(moves, [=](auto x, auto g, Size at) TG_LAMBDA {
        using L = decltype(x);
        const L m = s.beta1 * L::load(first + at) + (1 - s.beta1) * g;
        const L v = s.beta2 * L::load(second + at) + (1 - s.beta2) * (g * g);
        m.store(first + at);
        v.store(second + at);
        return x - s.lr * (m * s.scale1) / (sqrt(v * s.scale2) + s.epsilon);
    });
}

/// Exchanges blocks of `step` entries beside the diagonal, then those of twice the size.
template <int step = 1>
TG_INLINE void transpose(Vec (&rows)[native]) {
    if constexpr (step < native) {
        using Index = Register<typename Format<Real>::Int, native>;
        Index upper, lower;
        for (int j = 0; j < native; ++j) {
            upper[j] = j & step ? native + j - step : j;
            lower[j] = j & step ? native + j : j + step;
        }
        for (int i = 0; i < native; ++i) {
            if (i & step) continue;
            const Vec a = rows[i], b = rows[i + step];
            rows[i] = Vec::of(__builtin_shuffle(a.v, b.v, upper));
            rows[i + step] = Vec::of(__builtin_shuffle(a.v, b.v, lower));
        }
        transpose<2 * step>(rows);
    }
}

template <int N>
TG_INLINE void widen(Lanes<double, N> a, double* to) {
    a.store(to);
}
template <int N>
TG_INLINE void widen(Lanes<float, N> a, double* to) {
    for (int i = 0; i < N; ++i) to[i] = static_cast<double>(a[i]);
}

/// A vector from doubles, which get the values that it has after rounding.
template <int N>
TG_INLINE void narrow(double* from, Lanes<double, N>& a) {
    a = Lanes<double, N>::load(from);
}
template <int N>
TG_INLINE void narrow(double* from, Lanes<float, N>& a) {
    for (int i = 0; i < N; ++i) {
        a.v[i] = static_cast<float>(from[i]);
        from[i] = static_cast<double>(a.v[i]);
    }
}

void split(const Moves<Real>& m, double* const* gradients) {
    const auto derivative = [&](Size k) TG_LAMBDA { return m.found + m.places[k] * m.lanes; };
    Size k = 0;
    if (m.lanes >= native)
        for (; k + native <= m.variables; k += native)
            for (Size l = 0; l < m.lanes; l += native) {
                Vec rows[native];
                for (int i = 0; i < native; ++i) rows[i] = Vec::load(derivative(k + i) + l);
                transpose(rows);
                for (int i = 0; i < native; ++i) widen(rows[i], gradients[l + i] + k);
            }
    for (; k < m.variables; ++k)
        for (Size l = 0; l < m.lanes; ++l) gradients[l][k] = static_cast<double>(derivative(k)[l]);
}

void join(const Moves<Real>& m, double* const* points) {
    Size k = 0;
    if (m.lanes >= native)
        for (; k + native <= m.variables; k += native)
            for (Size l = 0; l < m.lanes; l += native) {
                Vec rows[native];
                for (int i = 0; i < native; ++i) narrow(points[l + i] + k, rows[i]);
                transpose(rows);
                for (int i = 0; i < native; ++i)
                    rows[i].store(m.to + m.inputs[k + i] * m.lanes + l);
            }
    for (; k < m.variables; ++k)
        for (Size l = 0; l < m.lanes; ++l) {
            const Real rounded = static_cast<Real>(points[l][k]);
            m.to[m.inputs[k] * m.lanes + l] = rounded;
            points[l][k] = static_cast<double>(rounded);
        }
}

}  // namespace moving
}  // namespace

#define TG_JOIN(a, b) a##b
#define TG_EXPAND(a, b) TG_JOIN(a, b)
extern const MoveKernels<TG_REAL> TG_EXPAND(moves_, TG_REAL);
const MoveKernels<TG_REAL> TG_EXPAND(moves_, TG_REAL) = {moving::sgd, moving::momentum,
                                                         moving::adam, moving::split, moving::join};

}  // namespace TG_ISA
}  // namespace tapegrad
