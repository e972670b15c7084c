// core/scalar/levenberg.h -- Levenberg-Marquardt: Gauss-Newton steps, damped until they descend.
#pragma once

#include "search.h"

namespace tapegrad {

/// Minimises half the sum of squares of residuals r with Jacobian J: steps solve
/// (J'J + damping * diagonal) step = -J'r, with the largest diagonal of J'J seen so far, so that
/// the units of the variables do not matter. With bounds, variables that press against theirs stay,
/// and the step is projected.
class Levenberg final : public Search {
   public:
    using Search::Search;

   private:
    void judge(double value, const double* squares) override;
    void leave() override;
    void arrive(const double* squares) override;
    void raise_damping();
    /// Solves for the step over the free variables; false if the matrix is not positive definite.
    bool solve();
    bool factorise();
    /// Descent that the quadratic model promises for the trial.
    double promised() const;

    std::vector<double> squares_, diagonal_, factor_;
    Numbers<double> step_;
    std::vector<std::size_t> free_;
    double damping_ = 1e-3, growth_ = 2;
};

}  // namespace tapegrad
