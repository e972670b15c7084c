// core/scalar/search.cpp -- bounds, stopping rules, and what searches share.
#include "search.h"

#include <algorithm>
#include <cmath>

namespace tapegrad {

bool changes_little(double before, double value, double change) {
    return change >= 0 &&
           std::abs(before - value) <= change * std::max(std::abs(before), std::abs(value));
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= a.size(); k += 8)
        for (std::size_t l = 0; l < 8; ++l) sums[l] += a[k + l] * b[k + l];
    for (; k < a.size(); ++k) sums[k % 8] += a[k] * b[k];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

Search::Search(std::vector<double> start, const Bounds& bounds, const Stops& stops)
    : bounds_(bounds),
      stops_(stops),
      x_(std::move(start)),
      trial_(x_),
      gradient_(x_.size(), std::numeric_limits<double>::quiet_NaN()) {}

void Search::tell(double value, const double* gradient, const double* squares) {
    if (reason_ != Reason::none) return;
    if (started_) return judge(value, gradient, squares);
    started_ = true;
    accept(value, gradient, squares);
}

void Search::accept(double value, const double* gradient, const double* squares) {
    const double before = value_;
    x_ = trial_;
    value_ = value;
    std::copy_n(gradient, gradient_.size(), gradient_.begin());
    arrive(squares);
    const auto finite = [](double g) { return std::isfinite(g); };
    if (!std::isfinite(value) || !std::all_of(gradient_.begin(), gradient_.end(), finite))
        return end(Reason::not_finite);
    if (projected_gradient() <= stops_.gradient) return end(Reason::gradient);
    if (value <= stops_.target) return end(Reason::target);
    if (changes_little(before, value, stops_.change)) return end(Reason::change);
    leave();
}

double Search::projected_gradient() const {
    double largest = 0;
    for (std::size_t k = 0; k < x_.size(); ++k)
        largest = std::max(largest, bounds_.projected(k, x_[k], gradient_[k]));
    return largest;
}

bool Search::try_step(const std::vector<double>& direction, double scale) {
    bool moved = false;
    for (std::size_t k = 0; k < x_.size(); ++k) {
        trial_[k] = bounds_.clip(k, x_[k] + scale * direction[k]);
        moved |= trial_[k] != x_[k];
    }
    return moved;
}

double Search::slope() const {
    double sum = 0;
    for (std::size_t k = 0; k < x_.size(); ++k) sum += gradient_[k] * (trial_[k] - x_[k]);
    return sum;
}

}  // namespace tapegrad
