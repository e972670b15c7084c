// core/scalar/search.cpp -- bounds, stopping rules, and what searches share.
#include "search.h"

#include <algorithm>
#include <cmath>

namespace tapegrad {

bool changes_little(double before, double value, double change) {
    return change >= 0 &&
           std::abs(before - value) <= change * std::max(std::abs(before), std::abs(value));
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
    if (!std::isfinite(value) || !all_finite(gradient, gradient_.size()))
        return end(Reason::not_finite);
    if (projected_gradient() <= stops_.gradient) return end(Reason::gradient);
    if (value <= stops_.target) return end(Reason::target);
    if (changes_little(before, value, stops_.change)) return end(Reason::change);
    leave();
}

double Search::projected_gradient() const {
    double largest[4] = {};  // four at a time: one after the other would wait for each
    for (std::size_t k = 0; k < x_.size(); ++k)
        largest[k % 4] = std::max(largest[k % 4], bounds_.projected(k, x_[k], gradient_[k]));
    return *std::max_element(largest, largest + 4);
}

bool Search::try_step(const std::vector<double>& direction, double scale) {
    const double *x = x_.data(), *d = direction.data();
    double* to = trial_.data();
    for (std::size_t k = 0; k < x_.size(); ++k) to[k] = x[k] + scale * d[k];
    if (bounds_.any())
        for (std::size_t k = 0; k < x_.size(); ++k) to[k] = bounds_.clip(k, to[k]);
    return trial_ != x_;
}

double Search::slope() const {
    const double *g = gradient_.data(), *to = trial_.data(), *x = x_.data();
    return sum_of(x_.size(), [=](std::size_t k) { return g[k] * (to[k] - x[k]); });
}

}  // namespace tapegrad
