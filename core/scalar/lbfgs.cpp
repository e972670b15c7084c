// core/scalar/lbfgs.cpp -- two loops over the pairs for a direction, then a line search.
#include "lbfgs.h"

#include <algorithm>
#include <cmath>

namespace tapegrad {
namespace {

constexpr double sufficient = 1e-4;  ///< part of the descent that the slope promises
constexpr double flatter = 0.9;      ///< part of the slope that may be left
constexpr double curved = 1e-12;     ///< cosine of step and change of gradient that is kept
constexpr int most_looks = 30;       ///< in one line search

}  // namespace

Lbfgs::Lbfgs(std::vector<double> start, const Bounds& bounds, const Stops& stops,
             std::size_t memory)
    : Search(std::move(start), bounds, stops),
      memory_(memory),
      direction_(x_.size()),
      weights_(memory),
      products_(memory),
      free_(x_.size(), 1.0) {}

void Lbfgs::judge(double value, const double* gradient, const double* squares) {
    if (trial_ == x_) return start_again();  // nothing is left of the step after rounding
    here_.assign(gradient, gradient + x_.size());
    const double promised = slope(), here = dot(here_, direction_);
    const bool clipped = bounds_.any() && std::abs(promised - scale_ * start_) > 1e-9 * -promised;
    const bool lower = value <= value_ + sufficient * promised;
    // Where values differ by rounding alone, a slope that got flatter is a descent.
    const bool level =
        value <= value_ + stops_.rounding * std::abs(value_) && here <= -flatter * start_;
    if (!(promised < 0) || !std::isfinite(value) || !std::isfinite(here) || !(lower || level))
        return shorten(value);
    if (!clipped && here < flatter * start_ && looks_ < most_looks) return lengthen(here);
    remember();
    accept(value, gradient, squares);
}

void Lbfgs::remember() {
    double product = 0, steps = 0, changes = 0;
    for (std::size_t k = 0; k < x_.size(); ++k) {
        const double step = trial_[k] - x_[k], change = here_[k] - gradient_[k];
        product += step * change;
        steps += step * step;
        changes += change * change;
    }
    if (!(product > curved * std::sqrt(steps) * std::sqrt(changes))) return;
    if (pairs_.size() < memory_)
        pairs_.push_back({std::vector<double>(x_.size()), std::vector<double>(x_.size()), 0, 0});
    Pair& pair = pairs_[next_];
    next_ = (next_ + 1) % memory_;
    for (std::size_t k = 0; k < x_.size(); ++k) {
        pair.step[k] = trial_[k] - x_[k];
        pair.change[k] = here_[k] - gradient_[k];
    }
    pair.product = product;
    pair.scale = product / changes;
}

void Lbfgs::leave() {
    find_direction();
    look();
}

void Lbfgs::find_direction() {
    all_free_ = true;
    for (std::size_t k = 0; k < x_.size(); ++k) {
        free_[k] = is_free(k);
        all_free_ &= free_[k] != 0;
    }
    low_ = high_ = 0;
    looks_ = 0;
    scale_ = 1;
    if (!pairs_.empty()) {
        apply_memory();
        if (descends()) return;
    }
    steepest_descent();
}

void Lbfgs::steepest_descent() {
    pairs_.clear();
    next_ = 0;
    for (std::size_t k = 0; k < x_.size(); ++k) direction_[k] = -gradient_[k] * free_[k];
    const double length = dot(direction_, direction_);
    low_ = high_ = 0;
    looks_ = 0;
    start_ = -length;
    scale_ = length > 0 && std::isfinite(length) ? 1 / std::sqrt(length) : 1;
}

double Lbfgs::product_of(const Pair& pair) const {
    if (all_free_) return pair.product;
    double sum = 0;
    for (std::size_t k = 0; k < x_.size(); ++k) sum += free_[k] * pair.step[k] * pair.change[k];
    return sum;
}

void Lbfgs::apply_memory() {
    const std::size_t count = pairs_.size(), n = x_.size();
    const auto at = [&](std::size_t age) -> const Pair& {  // 0 is the newest
        return pairs_[(next_ + memory_ - 1 - age) % memory_];
    };
    const auto add = [&](double scale, const std::vector<double>& a) {
        for (std::size_t k = 0; k < n; ++k) direction_[k] += free_[k] * (scale * a[k]);
    };
    for (std::size_t k = 0; k < n; ++k) direction_[k] = -gradient_[k] * free_[k];
    for (std::size_t age = 0; age < count; ++age) {
        const double product = product_of(at(age));
        products_[age] = product > curved * at(age).product ? product : 0;
        if (!products_[age]) continue;
        weights_[age] = dot(at(age).step, direction_) / products_[age];
        add(-weights_[age], at(age).change);
    }
    for (double& d : direction_) d *= at(0).scale;
    for (std::size_t age = count; age-- > 0;)
        if (products_[age])
            add(weights_[age] - dot(at(age).change, direction_) / products_[age], at(age).step);
}

bool Lbfgs::descends() {
    for (std::size_t k = 0; k < x_.size(); ++k)
        if (bounds_.blocks(k, x_[k], -direction_[k])) direction_[k] = 0;
    double steep = 0;
    for (std::size_t k = 0; k < x_.size(); ++k) steep += free_[k] * gradient_[k] * gradient_[k];
    start_ = dot(gradient_, direction_);
    return -start_ > 1e-10 * std::sqrt(steep) * std::sqrt(dot(direction_, direction_));
}

void Lbfgs::shorten(double value) {
    high_ = scale_;
    const double reach = high_ - low_;
    double next = low_ + 0.5 * reach;
    if (!std::isfinite(value))
        next = low_ + 0.1 * reach;
    else if (low_ == 0) {  // the lowest point of the parabola through both values
        const double bend = value - value_ - start_ * scale_;
        if (bend > 0) next = -start_ * scale_ * scale_ / (2 * bend);
    }
    scale_ = std::clamp(next, low_ + 0.1 * reach, low_ + 0.5 * reach);
    look();
}

void Lbfgs::lengthen(double slope) {
    low_ = scale_;
    // Where the slope would be zero if it went on changing as it did; far away if it hardly did.
    const double zero = slope > start_ ? scale_ * start_ / (start_ - slope) : 10 * scale_;
    scale_ = high_ > 0 ? 0.5 * (low_ + high_) : std::clamp(zero, 2 * scale_, 10 * scale_);
    look();
}

void Lbfgs::look() {
    if (++looks_ > 2 * most_looks || !try_step(direction_, scale_)) start_again();
}

void Lbfgs::start_again() {
    if (pairs_.empty()) return end(Reason::no_descent);
    steepest_descent();  // the memory misled: forget it
    look();
}

}  // namespace tapegrad
