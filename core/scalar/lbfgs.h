// core/scalar/lbfgs.h -- L-BFGS: Newton steps with a Hessian guessed from the last few steps.
#pragma once

#include "search.h"

namespace tapegrad {

/// Steps satisfy the weak Wolfe conditions, found by bisection and interpolation. With bounds,
/// variables that press against theirs are left out of the direction, and the step is projected.
class Lbfgs final : public Search {
   public:
    Lbfgs(Numbers<double> start, const Bounds& bounds, const Stops& stops, std::size_t memory);

   private:
    /// A step and the change of the gradient over it.
    struct Pair {
        Numbers<double> step, change;
        double product = 0, scale = 1;  ///< of both; and what it makes of the size of the Hessian
    };
    /// One that has a say, and what.
    struct Use {
        const Pair* pair;
        double inverse, weight;  ///< of the product; of the change
    };

    void judge(double value, const double* squares) override;
    void leave() override;
    /// Writes the step to the trial to a pair that is not in use.
    TrialSums compare();
    void remember(const TrialSums& sums);
    void find_direction();
    void steepest_descent();
    /// The inverse Hessian times the negative gradient, over the free variables.
    void apply_memory();
    void choose_pairs();
    /// Drops what the free variables are not meant to do, and tells whether the rest descends.
    bool descends();
    void shorten(double value);
    void lengthen(double slope);
    void look();
    void start_again();
    /// Step times change of the gradient, over the free variables.
    double product_of(const Pair& pair) const;

    /// The pair of so many steps ago.
    const Pair& pair_at(std::size_t age) const {
        return pairs_[(next_ + memory_ - age) % (memory_ + 1)];
    }
    /// Which variables may move, or null: all.
    const double* free() const { return all_free_ ? nullptr : free_.data(); }

    std::size_t memory_;
    std::vector<Pair> pairs_;  ///< a ring of memory_ + 1, of which the next is not in use
    std::size_t next_ = 0, known_ = 0;
    std::vector<Use> used_;  ///< newest first
    Numbers<double> direction_;
    Numbers<double> free_;                   ///< 1 for variables that may move, else 0
    double start_ = 0;                       ///< slope along the direction at x
    double scale_ = 1, low_ = 0, high_ = 0;  ///< of the direction; high_ 0: none known
    bool all_free_ = true;
    int looks_ = 0;
};

}  // namespace tapegrad
