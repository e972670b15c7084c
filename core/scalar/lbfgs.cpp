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
      memory_(std::max<std::size_t>(memory, 1)),
      direction_(x_.size()),
      free_(x_.size(), 1.0) {}

void Lbfgs::judge(double value, const double* gradient, const double* squares) {
    if (trial_ == x_) return start_again();  // nothing is left of the step after rounding
    here_.assign(gradient, gradient + x_.size());
    const double promised = slope(), here = dot(gradient, direction_.data(), x_.size());
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
    const std::size_t n = x_.size();
    const double *x = x_.data(), *to = trial_.data(), *g = gradient_.data(), *here = here_.data();
    const auto step = [=](std::size_t k) { return to[k] - x[k]; };
    const auto change = [=](std::size_t k) { return here[k] - g[k]; };
    const double product = sum_of(n, [=](std::size_t k) { return step(k) * change(k); });
    const double steps = sum_of(n, [=](std::size_t k) { return step(k) * step(k); });
    const double changes = sum_of(n, [=](std::size_t k) { return change(k) * change(k); });
    if (!(product > curved * std::sqrt(steps) * std::sqrt(changes))) return;
    if (pairs_.size() < memory_)
        pairs_.push_back({std::vector<double>(n), std::vector<double>(n), 0, 0});
    Pair& pair = pairs_[next_];
    next_ = (next_ + 1) % memory_;
    for (std::size_t k = 0; k < n; ++k) {
        pair.step[k] = step(k);
        pair.change[k] = change(k);
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
    const double length = dot(direction_.data(), direction_.data(), x_.size());
    low_ = high_ = 0;
    looks_ = 0;
    start_ = -length;
    scale_ = length > 0 && std::isfinite(length) ? 1 / std::sqrt(length) : 1;
}

double Lbfgs::product_of(const Pair& pair) const {
    if (all_free_) return pair.product;
    const double *free = free_.data(), *step = pair.step.data(), *change = pair.change.data();
    return sum_of(x_.size(), [=](std::size_t k) { return free[k] * step[k] * change[k]; });
}

void Lbfgs::apply_memory() {
    const std::size_t count = pairs_.size(), n = x_.size();
    const auto at = [&](std::size_t age) -> const Pair& {  // 0 is the newest
        return pairs_[(next_ + memory_ - 1 - age) % memory_];
    };
    weights_.resize(count);
    products_.resize(count);
    double* const d = direction_.data();
    const double* const free = free_.data();
    const auto add = [&](double scale, const double* a) {
        if (all_free_)
            for (std::size_t k = 0; k < n; ++k) d[k] += scale * a[k];
        else
            for (std::size_t k = 0; k < n; ++k) d[k] += free[k] * (scale * a[k]);
    };
    for (std::size_t k = 0; k < n; ++k) d[k] = -gradient_[k] * free[k];
    for (std::size_t age = 0; age < count; ++age) {
        const double product = product_of(at(age));
        products_[age] = product > curved * at(age).product ? product : 0;
        if (!products_[age]) continue;
        weights_[age] = dot(at(age).step.data(), d, n) / products_[age];
        add(-weights_[age], at(age).change.data());
    }
    for (std::size_t k = 0; k < n; ++k) d[k] *= at(0).scale;
    for (std::size_t age = count; age-- > 0;) {
        if (!products_[age]) continue;
        const double weight = dot(at(age).change.data(), d, n) / products_[age];
        add(weights_[age] - weight, at(age).step.data());
    }
}

bool Lbfgs::descends() {
    const std::size_t n = x_.size();
    if (bounds_.any())
        for (std::size_t k = 0; k < n; ++k)
            if (bounds_.blocks(k, x_[k], -direction_[k])) direction_[k] = 0;
    const double *free = free_.data(), *g = gradient_.data();
    const double steep = sum_of(n, [=](std::size_t k) { return free[k] * g[k] * g[k]; });
    const double length = dot(direction_.data(), direction_.data(), n);
    start_ = dot(gradient_.data(), direction_.data(), n);
    return -start_ > 1e-10 * std::sqrt(steep) * std::sqrt(length);
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
