// core/scalar/moves.h -- what descents do to vectors: the border to code that is compiled once per
// instruction set.
//
// Every entry is computed alone, and sums go in an order of their own, so the bits depend neither
// on the instruction set nor on how many starts run side by side. Nothing here has a body: a weak
// symbol kept from the AVX-512 object would be an illegal instruction on an older CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapegrad {

/// A block of starts in lanes: entry k of lane l is number k * lanes + l, where k is an input of a
/// point, a place of a gradient, or a variable.
template <class T>
struct Moves {
    std::size_t variables, lanes;
    const std::uint32_t* inputs;  ///< of each variable
    const T* from;                ///< points
    T* to;                        ///< points, the same or others
    const T* found;               ///< what the program found there
    const std::uint32_t* places;  ///< of each variable's derivative
    const T *low, *high;          ///< bounds of each variable, or null
};

/// What adam needs to know of a step; the scales undo the zeros that the moments began with.
template <class T>
struct AdamStep {
    T lr, beta1, beta2, epsilon, scale1, scale2;
};

template <class T>
struct MoveKernels {
    void (*sgd)(const Moves<T>& moves, T lr);
    void (*momentum)(const Moves<T>& moves, T lr, T decay, T* moment);
    void (*adam)(const Moves<T>& moves, const AdamStep<T>& step, T* first, T* second);
    /// The gradient of each lane to a vector of its own.
    void (*split)(const Moves<T>& moves, double* const* gradients);
    /// Points of lanes to those of the block, rounded, and so are the vectors they come from.
    void (*join)(const Moves<T>& moves, double* const* points);
};

template <class T>
const MoveKernels<T>& move_kernels();
template <>
const MoveKernels<double>& move_kernels<double>();
template <>
const MoveKernels<float>& move_kernels<float>();

/// What a trial shows beside the point that the search is at.
struct TrialSums {
    double promised;                 ///< gradient . (trial - x)
    double slope;                    ///< gradient at the trial . direction
    double product, steps, changes;  ///< of step and change of gradient: both, squared, squared
    double moved;                    ///< magnitudes of the step
};

/// A direction at a point.
struct DirectionSums {
    double slope;     ///< gradient . direction
    double length;    ///< direction . direction
    double steepest;  ///< gradient . gradient, over the free variables
};

/// Numbers of a search's vectors are a multiple of this: zeros fill them up.
constexpr int search_width = 8;

/// Vectors of a search have n numbers. `free` is 1 for variables that may move, else 0; null: all.
struct SearchKernels {
    /// Writes what the trial is away from x, and its gradient `here` from that at x.
    TrialSums (*compare)(std::size_t n, const double* x, const double* trial,
                         const double* gradient, const double* here, const double* direction,
                         double* step, double* change);
    /// The largest magnitude; NaN if one is.
    double (*largest)(std::size_t n, const double* a);
    /// to = scale * from, where free; returns to . next.
    double (*begin)(std::size_t n, double scale, const double* from, const double* free, double* to,
                    const double* next);
    /// to += scale * row, where free; returns to . next.
    double (*add)(std::size_t n, double scale, const double* row, const double* free, double* to,
                  const double* next);
    DirectionSums (*direct)(std::size_t n, const double* gradient, const double* direction,
                            const double* free);
    /// to = x + scale * direction.
    void (*go)(std::size_t n, const double* x, double scale, const double* direction, double* to);
};

const SearchKernels& search_kernels();

}  // namespace tapegrad
