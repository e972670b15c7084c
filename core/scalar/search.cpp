// core/scalar/search.cpp -- bounds, stopping rules, and what searches share.
#include "search.h"

#include <algorithm>
#include <cmath>

namespace tapegrad {

bool changes_little(double before, double value, double change) {
    return change >= 0 &&
           std::abs(before - value) <= change * std::max(std::abs(before), std::abs(value));
}

Search::Search(Numbers<double> start, const Bounds& bounds, const Stops& stops)
    : bounds_(bounds), stops_(stops), n_(start.size()), x_(std::move(start)) {
    x_.resize((n_ + search_width - 1) / search_width * search_width);
    trial_ = x_;
    gradient_.resize(padded());
    here_ = gradient_;
}

void Search::tell(double value, const double* squares) {
    if (reason_ != Reason::none) return;
    if (started_) return judge(value, squares);
    started_ = true;
    accept(value, squares);
}

void Search::accept(double value, const double* squares) {
    const double before = value_;
    x_.swap(trial_);
    gradient_.swap(here_);
    value_ = value;
    arrive(squares);
    const double largest = kernels_.largest(padded(), gradient_.data());
    if (!std::isfinite(value) || !std::isfinite(largest)) return end(Reason::not_finite);
    if ((bounds_.any() ? projected_gradient() : largest) <= stops_.gradient)
        return end(Reason::gradient);
    if (value <= stops_.target) return end(Reason::target);
    if (changes_little(before, value, stops_.change)) return end(Reason::change);
    leave();
}

double Search::projected_gradient() const {
    double largest[4] = {};  // four at a time: one after the other would wait for each
    for (std::size_t k = 0; k < n_; ++k)
        largest[k % 4] = std::max(largest[k % 4], bounds_.projected(k, x_[k], gradient_[k]));
    return *std::max_element(largest, largest + 4);
}

bool Search::try_step(const Numbers<double>& direction, double scale) {
    kernels_.go(padded(), x_.data(), scale, direction.data(), trial_.data());
    if (bounds_.any())
        for (std::size_t k = 0; k < n_; ++k) trial_[k] = bounds_.clip(k, trial_[k]);
    return trial_ != x_;
}

double Search::slope() const {
    const double *g = gradient_.data(), *to = trial_.data(), *x = x_.data();
    return sum_of(n_, [=](std::size_t k) { return g[k] * (to[k] - x[k]); });
}

}  // namespace tapegrad
