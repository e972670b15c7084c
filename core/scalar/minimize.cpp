// core/scalar/minimize.cpp -- descent as a native loop over a program.
#include "minimize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lbfgs.h"
#include "levenberg.h"

namespace tapegrad {
namespace {

template <class T>
T clipped(T x, T low, T high) {
    return x < low ? low : x > high ? high : x;
}

template <class T>
bool is_nan(T x) {
    return x != x;
}

}  // namespace

template <class T>
Descent<T>::Descent(const Runner<T>& runner, Objective<T> objective, DescentOptions options,
                    const T* starts, std::size_t count)
    : runner_(runner),
      objective_(std::move(objective)),
      options_(std::move(options)),
      count_(count),
      inputs_(objective_.inputs()),
      lanes_(count == 1 || objective_.has_data() ? 1 : static_cast<std::size_t>(runner.width())) {
    for (auto* bounds : {&options_.bounds.low, &options_.bounds.high})
        for (double& bound : *bounds) bound = static_cast<double>(static_cast<T>(bound));
    blocks_.resize((count + lanes_ - 1) / lanes_);
    for (std::size_t b = 0; b < blocks_.size(); ++b) start(blocks_[b], b * lanes_, starts);
}

template <class T>
void Descent<T>::start(Block& block, std::size_t first, const T* starts) {
    const auto& variables = objective_.variables();
    block.x.resize(inputs_ * lanes_);
    for (std::size_t i = 0; i < inputs_; ++i)
        for (std::size_t l = 0; l < lanes_; ++l)
            block.x[i * lanes_ + l] = starts[std::min(count_ - 1, first + l) * inputs_ + i];
    for (std::size_t k = 0; k < variables.size(); ++k)
        for (std::size_t l = 0; l < lanes_; ++l) {
            T& x = block.x[variables[k] * lanes_ + l];
            x = static_cast<T>(options_.bounds.clip(k, static_cast<double>(x)));
        }
    if (options_.method == Method::adam || options_.method == Method::momentum)
        block.first_moment.assign(variables.size() * lanes_, T(0));
    if (options_.method == Method::adam)
        block.second_moment.assign(variables.size() * lanes_, T(0));
    block.last_x = block.best_x = block.x;
    block.last_value.assign(lanes_, std::numeric_limits<T>::quiet_NaN());
    block.best_value = block.previous = block.last_value;
    block.best_step.assign(lanes_, 0);
    block.better.resize(lanes_);
    block.reason.assign(lanes_, Reason::none);
    block.gradient.resize(variables.size());
    if (by_searches())
        for (std::size_t l = 0; l < lanes_; ++l) block.searches.push_back(new_search(block, l));
}

template <class T>
std::unique_ptr<Search> Descent<T>::new_search(const Block& block, std::size_t lane) const {
    std::vector<double> start;
    for (std::uint32_t input : objective_.variables())
        start.push_back(static_cast<double>(block.x[input * lanes_ + lane]));
    if (options_.method == Method::lm)
        return std::make_unique<Levenberg>(std::move(start), options_.bounds, options_.stops);
    return std::make_unique<Lbfgs>(std::move(start), options_.bounds, options_.stops,
                                   options_.memory);
}

template <class T>
void Descent<T>::evaluate(Block& block, const Workspace<T>& workspace) const {
    if (options_.method == Method::lm)
        objective_.evaluate_squares(block.x.data(), workspace, block.found);
    else
        objective_.evaluate(block.x.data(), workspace, block.found);
}

template <class T>
void Descent<T>::look(Block& block, const Workspace<T>& workspace, std::size_t t) {
    const bool rules = has_rules();
    if (rules) block.previous = block.last_value;
    take_values(block, workspace, t);
    const auto& values = block.last_value;
    for (std::size_t l = 0; l < lanes_; ++l) {
        if (!rules && !is_nan(values[l])) continue;
        if (block.reason[l] != Reason::none) continue;
        block.reason[l] = verdict(block, l, t);
        if (block.reason[l] != Reason::none) copy_lane(block.x, block.last_x, l);
    }
    block.steps = ended(block) ? t : t + 1;
}

/// Whether anything but NaN can end a lane before all steps are taken.
template <class T>
bool Descent<T>::has_rules() const {
    const Stops& stops = options_.stops;
    return by_searches() || stops.gradient >= 0 || stops.change >= 0 || stops.patience ||
           stops.target > -std::numeric_limits<double>::infinity();
}

/// Evaluates a block and keeps the points that are better than all before.
template <class T>
void Descent<T>::take_values(Block& block, const Workspace<T>& workspace, std::size_t t) const {
    evaluate(block, workspace);
    const bool by_search = by_searches();
    const T* found = by_search ? nullptr : block.found.at(0);
    std::size_t better = 0;
    for (std::size_t l = 0; l < lanes_; ++l) {
        if (block.reason[l] != Reason::none) continue;
        if (by_search)
            search(block, l);
        else
            block.last_value[l] = found[l];
        const T value = block.last_value[l];
        const bool first = is_nan(block.best_value[l]) && !is_nan(value);
        if (!first && !(value < block.best_value[l])) continue;
        block.best_value[l] = value;
        block.best_step[l] = t;
        block.better[better++] = l;
    }
    if (by_search) return;  // their last point is the best
    if (better == lanes_)
        std::copy(block.x.begin(), block.x.end(), block.best_x.begin());
    else
        for (std::size_t i = 0; i < better; ++i) copy_lane(block.x, block.best_x, block.better[i]);
}

/// Tells a search what is at its trial, and goes to the next one.
template <class T>
void Descent<T>::search(Block& block, std::size_t lane) const {
    const std::vector<std::uint32_t>& variables = objective_.variables();
    const std::size_t n = variables.size();
    double* gradient = block.gradient.data();
    Search& search = *block.searches[lane];
    if (options_.method == Method::lm) {
        const double value =
            objective_.read_squares(block.found, lane, block.gradient, block.squares);
        search.tell(value, gradient, block.squares.data());
    } else {
        for (std::size_t k = 0; k < n; ++k)
            gradient[k] = static_cast<double>(block.found.at(1 + k)[lane]);
        search.tell(static_cast<double>(block.found.at(0)[lane]), gradient, nullptr);
    }
    block.last_value[lane] = static_cast<T>(search.value());
    double* trial = search.trial().data();
    T* x = block.x.data() + lane;
    for (std::size_t k = 0; k < n; ++k) {
        const T rounded = static_cast<T>(trial[k]);
        x[variables[k] * lanes_] = rounded;
        trial[k] = static_cast<double>(rounded);
    }
}

template <class T>
Reason Descent<T>::verdict(const Block& block, std::size_t lane, std::size_t t) const {
    const Stops& stops = options_.stops;
    const auto before = static_cast<double>(block.previous[lane]);
    const auto value = static_cast<double>(block.last_value[lane]);
    if (by_searches() && block.searches[lane]->reason() != Reason::none)
        return block.searches[lane]->reason();
    if (stops.patience && t >= block.best_step[lane] + stops.patience) return Reason::patience;
    if (by_searches()) return Reason::none;
    if (value <= stops.target) return Reason::target;
    if (changes_little(before, value, stops.change)) return Reason::change;
    if (stops.gradient >= 0 && projected_gradient(block, lane) <= stops.gradient)
        return Reason::gradient;
    if (is_nan(value))
        for (std::uint32_t input : objective_.variables())
            if (is_nan(block.x[input * lanes_ + lane])) return Reason::not_finite;
    return Reason::none;
}

template <class T>
double Descent<T>::projected_gradient(const Block& block, std::size_t lane) const {
    double largest = 0;
    for (std::size_t k = 0; k < block.gradient.size(); ++k) {
        const auto x = static_cast<double>(block.x[objective_.variables()[k] * lanes_ + lane]);
        const auto g = static_cast<double>(block.found.at(1 + k)[lane]);
        const double move = options_.bounds.projected(k, x, g);
        if (is_nan(move)) return move;
        largest = std::max(largest, move);
    }
    return largest;
}

template <class T>
void Descent<T>::step(Block& block, std::size_t t) const {
    const auto& variables = objective_.variables();
    const T lr = static_cast<T>(options_.lr), decay = static_cast<T>(options_.momentum);
    const T b1 = static_cast<T>(options_.beta1), b2 = static_cast<T>(options_.beta2);
    const T epsilon = static_cast<T>(options_.epsilon);
    const auto rounds = static_cast<double>(t + 1);
    const T scale1 = static_cast<T>(1 / (1 - std::pow(options_.beta1, rounds)));
    const T scale2 = static_cast<T>(1 / (1 - std::pow(options_.beta2, rounds)));
    for (std::size_t k = 0; k < variables.size(); ++k) {
        const T* g = block.found.at(1 + k);
        T* x = block.x.data() + variables[k] * lanes_;
        T* m = block.first_moment.data() + k * lanes_;
        T* v = block.second_moment.data() + k * lanes_;
        if (options_.method == Method::sgd)
            for (std::size_t l = 0; l < lanes_; ++l) x[l] -= lr * g[l];
        else if (options_.method == Method::momentum)
            for (std::size_t l = 0; l < lanes_; ++l) {
                m[l] = decay * m[l] + g[l];
                x[l] -= lr * m[l];
            }
        else
            for (std::size_t l = 0; l < lanes_; ++l) {
                m[l] = b1 * m[l] + (1 - b1) * g[l];
                v[l] = b2 * v[l] + (1 - b2) * (g[l] * g[l]);
                x[l] -= lr * (m[l] * scale1) / (std::sqrt(v[l] * scale2) + epsilon);
            }
        if (!options_.bounds.any()) continue;
        const T low = static_cast<T>(options_.bounds.low[k]);
        const T high = static_cast<T>(options_.bounds.high[k]);
        for (std::size_t l = 0; l < lanes_; ++l) x[l] = clipped(x[l], low, high);
    }
}

template <class T>
bool Descent<T>::ended(const Block& block) const {
    return std::none_of(block.reason.begin(), block.reason.end(),
                        [](Reason reason) { return reason == Reason::none; });
}

template <class T>
bool Descent<T>::all_ended() const {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return ended(block); });
}

template <class T>
void Descent<T>::copy_lane(const std::vector<T>& from, std::vector<T>& to, std::size_t lane) const {
    for (std::size_t at = lane; at < from.size(); at += lanes_) to[at] = from[at];
}

/// Blocks that have not ended, in threads; with data, threads share the rows instead.
template <class T>
template <class Body>
void Descent<T>::each_active(Body body) {
    std::vector<std::size_t> active;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
        if (!ended(blocks_[b])) active.push_back(b);
    over_ranges(runner_, static_cast<int>(lanes_), active.size(),
                objective_.has_data() ? 1 : options_.threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    for (std::size_t a = low; a < high; ++a) body(active[a], workspace);
                });
}

template <class T>
void Descent<T>::advance(std::size_t steps, T* history, std::size_t every) {
    const std::size_t begin = taken_, end = taken_ + steps;
    const auto record = [&](std::size_t b, std::size_t t) {
        const std::size_t first = b * lanes_, lanes = std::min(lanes_, count_ - first);
        if (history && t % every == 0)
            std::copy_n(blocks_[b].last_value.data(), lanes, history + t / every * count_ + first);
    };
    each_active([&](std::size_t b, const Workspace<T>& workspace) {
        for (std::size_t t = begin; t < end && !ended(blocks_[b]); ++t) {
            look(blocks_[b], workspace, t);
            record(b, t);
            if (!by_searches()) step(blocks_[b], t);
        }
    });
    taken_ = 0;
    for (const Block& block : blocks_) taken_ = std::max(taken_, block.steps);
    if (!history) return;
    for (std::size_t b = 0; b < blocks_.size(); ++b)  // values of those that ended stay
        for (std::size_t t = std::max(begin, blocks_[b].steps); t < taken_; ++t) record(b, t);
}

template <class T>
void Descent<T>::settle() {
    if (!by_searches()) finish();
}

template <class T>
void Descent<T>::finish() {
    each_active([&](std::size_t b, const Workspace<T>& workspace) {
        Block& block = blocks_[b];
        take_values(block, workspace, taken_);
        if (by_searches())
            for (std::size_t l = 0; l < lanes_; ++l)
                if (block.reason[l] == Reason::none) block.reason[l] = block.searches[l]->reason();
    });
}

template <class T>
void Descent<T>::unpack(std::vector<T> Block::* x, std::vector<T> Block::* value, T* xs,
                        T* values) const {
    for (std::size_t row = 0; row < count_; ++row) {
        const Block& block = blocks_[row / lanes_];
        const std::size_t lane = row % lanes_;
        values[row] = (block.*value)[lane];
        for (std::size_t i = 0; i < inputs_; ++i)
            xs[row * inputs_ + i] = (block.*x)[i * lanes_ + lane];
    }
}

template <class T>
void Descent<T>::best(T* x, T* values) {
    if (by_searches()) return last(x, values);
    unpack(&Block::best_x, &Block::best_value, x, values);
}

template <class T>
void Descent<T>::last(T* x, T* values) {
    for (Block& block : blocks_)
        for (std::size_t l = 0; l < lanes_; ++l)
            if (by_searches())
                copy_search(block, l);
            else if (block.reason[l] == Reason::none)
                copy_lane(block.x, block.last_x, l);
    unpack(&Block::last_x, &Block::last_value, x, values);
}

/// Where a search is, to the last points.
template <class T>
void Descent<T>::copy_search(Block& block, std::size_t lane) const {
    const std::vector<std::uint32_t>& variables = objective_.variables();
    for (std::size_t k = 0; k < variables.size(); ++k)
        block.last_x[variables[k] * lanes_ + lane] = static_cast<T>(block.searches[lane]->x()[k]);
}

template class Descent<double>;
template class Descent<float>;

}  // namespace tapegrad
