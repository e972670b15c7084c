// core/scalar/lbfgs.h -- L-BFGS: Newton steps with a Hessian guessed from the last few steps.
#pragma once

#include "search.h"

namespace tapegrad {

/// Steps satisfy the weak Wolfe conditions, found by bisection and interpolation. With bounds,
/// variables that press against theirs are left out of the direction, and the step is projected.
class Lbfgs final : public Search {
   public:
    Lbfgs(std::vector<double> start, const Bounds& bounds, const Stops& stops, std::size_t memory);

   private:
    /// A step and the change of the gradient over it.
    struct Pair {
        std::vector<double> step, change;
        double product, scale;  ///< of both; and what it makes of the size of the Hessian
    };

    void judge(double value, const double* gradient, const double* squares) override;
    void leave() override;
    void remember();
    void find_direction();
    void steepest_descent();
    /// The inverse Hessian times the negative gradient, over the free variables.
    void apply_memory();
    /// Drops what the free variables are not meant to do, and tells whether the rest descends.
    bool descends();
    void shorten(double value);
    void lengthen(double slope);
    void look();
    void start_again();
    /// Step times change of the gradient, over the free variables.
    double product_of(const Pair& pair) const;

    std::size_t memory_;
    std::vector<Pair> pairs_;  ///< a ring
    std::size_t next_ = 0;
    std::vector<double> direction_, weights_, products_;
    std::vector<double> free_;               ///< 1 for variables that may move, else 0
    double start_ = 0;                       ///< slope along the direction at x
    double scale_ = 1, low_ = 0, high_ = 0;  ///< of the direction; high_ 0: none known
    std::vector<double> here_;               ///< gradient at the trial
    bool all_free_ = true;
    int looks_ = 0;
};

}  // namespace tapegrad
