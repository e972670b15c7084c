// core/scalar/levenberg.cpp -- damping after Nielsen, scaling after More, Cholesky's factors.
#include "levenberg.h"

#include <algorithm>
#include <cmath>

namespace tapegrad {
namespace {

constexpr double strongest = 1e20;   ///< damping at which no step is left
constexpr double weakest = 1e-20;    ///< below it, it makes no difference
constexpr double sufficient = 1e-4;  ///< part of the promised descent that a step must have

}  // namespace

void Levenberg::arrive(const double* squares) {
    const std::size_t n = n_;
    squares_.assign(squares, squares + n * n);
    diagonal_.resize(n, 0.0);
    for (std::size_t k = 0; k < n; ++k) diagonal_[k] = std::max(diagonal_[k], squares_[k * n + k]);
}

void Levenberg::judge(double value, const double* squares) {
    if (trial_ == x_) return end(Reason::no_descent);  // nothing is left of the step after rounding
    const double hoped = promised(), gained = value_ - value;
    const bool finite = std::isfinite(value) && all_finite(here_.data(), n_);
    if (finite && hoped > 0 && gained > sufficient * hoped) {
        const double surplus = 2 * gained / hoped - 1;
        const double factor = std::max(1.0 / 3, 1 - surplus * surplus * surplus);
        damping_ = std::max(weakest, damping_ * factor);
        growth_ = 2;
        return accept(value, squares);
    }
    // Values that differ by rounding alone cannot be told apart.
    if (finite && std::abs(gained) <= stops_.rounding * value_) return end(Reason::no_descent);
    raise_damping();
    leave();
}

void Levenberg::raise_damping() {
    damping_ *= growth_;
    growth_ *= 2;
}

void Levenberg::leave() {
    free_.clear();
    for (std::size_t k = 0; k < n_; ++k)
        if (is_free(k)) free_.push_back(k);
    for (; damping_ < strongest; raise_damping()) {
        if (!solve()) continue;
        if (!try_step(step_, 1)) break;
        if (promised() > 0) return;
    }
    end(Reason::no_descent);
}

bool Levenberg::solve() {
    if (!factorise()) return false;
    const std::size_t m = free_.size();
    std::vector<double> y(m);
    for (std::size_t i = 0; i < m; ++i) {
        double sum = -gradient_[free_[i]];
        for (std::size_t j = 0; j < i; ++j) sum -= factor_[i * m + j] * y[j];
        y[i] = sum / factor_[i * m + i];
    }
    step_.assign(padded(), 0.0);
    for (std::size_t i = m; i-- > 0;) {
        double sum = y[i];
        for (std::size_t j = i + 1; j < m; ++j) sum -= factor_[j * m + i] * step_[free_[j]];
        step_[free_[i]] = sum / factor_[i * m + i];
    }
    return true;
}

bool Levenberg::factorise() {
    const std::size_t m = free_.size(), n = n_;
    factor_.resize(m * m);
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j <= i; ++j) {
            double sum = squares_[free_[i] * n + free_[j]];
            if (i == j) {
                // A variable that no residual depends on gets a unit of its own.
                const double d = diagonal_[free_[i]];
                sum += damping_ * (d > 0 ? d : 1.0);
            }
            for (std::size_t k = 0; k < j; ++k) sum -= factor_[i * m + k] * factor_[j * m + k];
            if (i == j && !(sum > 0 && std::isfinite(sum))) return false;
            factor_[i * m + j] = i == j ? std::sqrt(sum) : sum / factor_[j * m + j];
        }
    return true;
}

double Levenberg::promised() const {
    const std::size_t n = n_;
    double descent = -slope();
    for (std::size_t i = 0; i < n; ++i) {
        double row = 0;
        for (std::size_t j = 0; j < n; ++j) row += squares_[i * n + j] * (trial_[j] - x_[j]);
        descent -= 0.5 * (trial_[i] - x_[i]) * row;
    }
    return descent;
}

}  // namespace tapegrad
