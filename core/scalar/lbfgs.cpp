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
constexpr std::size_t most_pairs = 1u << 31;  ///< more than there is room for

}  // namespace

Lbfgs::Lbfgs(Numbers<double> start, const Bounds& bounds, const Stops& stops, std::size_t memory)
    : Search(std::move(start), bounds, stops),
      memory_(std::clamp<std::size_t>(memory, 1, most_pairs)),
      direction_(padded()),
      free_(padded(), 1.0) {}

void Lbfgs::judge(double value, const double* squares) {
    const TrialSums sums = compare();
    if (sums.moved == 0) return start_again();  // nothing is left of the step after rounding
    const double promised = sums.promised, here = sums.slope;
    const bool clipped = bounds_.any() && std::abs(promised - scale_ * start_) > 1e-9 * -promised;
    const bool lower = value <= value_ + sufficient * promised;
    // Where values differ by rounding alone, a slope that got flatter is a descent.
    const bool level =
        value <= value_ + stops_.rounding * std::abs(value_) && here <= -flatter * start_;
    if (!(promised < 0) || !std::isfinite(value) || !std::isfinite(here) || !(lower || level))
        return shorten(value);
    if (!clipped && here < flatter * start_ && looks_ < most_looks) return lengthen(here);
    remember(sums);
    accept(value, squares);
}

TrialSums Lbfgs::compare() {
    const std::size_t n = padded();
    if (next_ == pairs_.size()) pairs_.push_back({Numbers<double>(n), Numbers<double>(n)});
    Pair& pair = pairs_[next_];
    return kernels_.compare(n, x_.data(), trial_.data(), gradient_.data(), here_.data(),
                            direction_.data(), pair.step.data(), pair.change.data());
}

void Lbfgs::remember(const TrialSums& sums) {
    if (!(sums.product > curved * std::sqrt(sums.steps) * std::sqrt(sums.changes))) return;
    pairs_[next_].product = sums.product;
    pairs_[next_].scale = sums.product / sums.changes;
    next_ = (next_ + 1) % (memory_ + 1);
    known_ = std::min(known_ + 1, memory_);
}

void Lbfgs::leave() {
    find_direction();
    look();
}

void Lbfgs::find_direction() {
    all_free_ = true;
    if (bounds_.any())
        for (std::size_t k = 0; k < n_; ++k) {
            free_[k] = is_free(k);
            all_free_ &= free_[k] != 0;
        }
    low_ = high_ = 0;
    looks_ = 0;
    scale_ = 1;
    if (known_) {
        apply_memory();
        if (descends()) return;
    }
    steepest_descent();
}

void Lbfgs::steepest_descent() {
    known_ = 0;
    double* const d = direction_.data();
    const double length = kernels_.begin(padded(), -1, gradient_.data(), free(), d, d);
    low_ = high_ = 0;
    looks_ = 0;
    start_ = -length;
    scale_ = length > 0 && std::isfinite(length) ? 1 / std::sqrt(length) : 1;
}

double Lbfgs::product_of(const Pair& pair) const {
    if (all_free_) return pair.product;
    const double *free = free_.data(), *step = pair.step.data(), *change = pair.change.data();
    return sum_of(n_, [=](std::size_t k) { return free[k] * step[k] * change[k]; });
}

/// Those that curve upwards over the free variables.
void Lbfgs::choose_pairs() {
    used_.clear();
    for (std::size_t age = 0; age < known_; ++age) {
        const Pair& pair = pair_at(age);
        const double product = product_of(pair);
        if (product > curved * pair.product) used_.push_back({&pair, 1 / product, 0});
    }
}

void Lbfgs::apply_memory() {
    choose_pairs();
    const std::size_t n = padded(), count = used_.size();
    double* const d = direction_.data();
    const auto step = [&](std::size_t i) { return used_[i].pair->step.data(); };
    const auto change = [&](std::size_t i) { return used_[i].pair->change.data(); };
    // Each pass over d also takes the product that the next one needs.
    double product = kernels_.begin(n, -1, gradient_.data(), free(), d, count ? step(0) : d);
    for (std::size_t i = 0; i < count; ++i) {
        used_[i].weight = product * used_[i].inverse;
        const double* next = i + 1 < count ? step(i + 1) : d;
        product = kernels_.add(n, -used_[i].weight, change(i), free(), d, next);
    }
    product = kernels_.begin(n, pair_at(0).scale, d, nullptr, d, count ? change(count - 1) : d);
    for (std::size_t i = count; i-- > 0;) {
        const double weight = used_[i].weight - product * used_[i].inverse;
        product = kernels_.add(n, weight, step(i), free(), d, i ? change(i - 1) : d);
    }
}

bool Lbfgs::descends() {
    if (bounds_.any())
        for (std::size_t k = 0; k < n_; ++k)
            if (bounds_.blocks(k, x_[k], -direction_[k])) direction_[k] = 0;
    const DirectionSums sums =
        kernels_.direct(padded(), gradient_.data(), direction_.data(), free());
    start_ = sums.slope;
    return -start_ > 1e-10 * std::sqrt(sums.steepest) * std::sqrt(sums.length);
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
    if (!known_) return end(Reason::no_descent);
    steepest_descent();  // the memory misled: forget it
    look();
}

}  // namespace tapegrad
