// core/scalar/minimize.cpp -- descent as a native loop over a program.
#include "minimize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checks.h"
#include "lbfgs.h"
#include "levenberg.h"

namespace tapegrad {
namespace {

template <class T>
bool is_nan(T x) {
    return x != x;
}

/// Instructions that a step of one start takes outside the program, by measured times: some 0.4 us
/// for lbfgs with 10 variables, 1 us for lm.
double step_work(const DescentOptions& options, std::size_t variables) {
    const auto n = static_cast<double>(variables);
    if (options.method == Method::lbfgs)
        return (static_cast<double>(options.memory) + 6) * (120 + 2.5 * n);
    return options.method == Method::lm ? 800 + n * n * (40 + n) : n;
}

template <class T>
double descent_work(const Runner<T>& runner, const DescentOptions& options, std::size_t variables,
                    std::size_t looks) {
    return runner.work(looks) + static_cast<double>(looks) * step_work(options, variables);
}

}  // namespace

template <class T>
int threads_for(const Runner<T>& runner, const DescentOptions& options, std::size_t variables,
                std::size_t starts, std::size_t steps) {
    return threads_worth(descent_work(runner, options, variables, starts * steps), options.threads);
}

template <class T>
Descent<T>::Descent(const Runner<T>& runner, Objective<T> objective, DescentOptions options,
                    const T* starts, std::size_t count)
    : runner_(runner),
      objective_(std::move(objective)),
      options_(std::move(options)),
      count_(count),
      inputs_(objective_.inputs()),
      lanes_(count == 1 || objective_.has_data()
                 ? 1
                 : static_cast<std::size_t>(runner.lanes_for(count, options_.threads))) {
    for (auto* bounds : {&options_.bounds.low, &options_.bounds.high})
        for (double& bound : *bounds) bound = static_cast<double>(static_cast<T>(bound));
    low_.assign(options_.bounds.low.begin(), options_.bounds.low.end());
    high_.assign(options_.bounds.high.begin(), options_.bounds.high.end());
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
    if (by_searches())
        for (std::size_t l = 0; l < lanes_; ++l) block.searches.push_back(new_search(block, l));
}

template <class T>
std::unique_ptr<Search> Descent<T>::new_search(const Block& block, std::size_t lane) const {
    Numbers<double> start;
    for (std::uint32_t input : objective_.variables())
        start.push_back(static_cast<double>(block.x[input * lanes_ + lane]));
    if (options_.method == Method::lm)
        return std::make_unique<Levenberg>(std::move(start), options_.bounds, options_.stops);
    return std::make_unique<Lbfgs>(std::move(start), options_.bounds, options_.stops,
                                   options_.memory);
}

template <class T>
void Descent<T>::evaluate(Block& block, const Workspace<T>& workspace) const {
    try {
        if (options_.method == Method::lm)
            objective_.evaluate_squares(block.x.data(), workspace, block.found);
        else
            objective_.evaluate(block.x.data(), workspace, block.found);
    } catch (BranchChanged& changed) {
        changed.points.assign(block.x.begin(), block.x.end());
        changed.first_start = static_cast<std::size_t>(&block - blocks_.data()) * lanes_;
        throw;
    }
}

template <class T>
void Descent<T>::look(Block& block, const Workspace<T>& workspace, std::size_t t) {
    const bool rules = has_rules();
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
    if (by_searches()) search(block);
    const T* found = block.found.at(0);
    std::size_t better = 0;
    for (std::size_t l = 0; l < lanes_; ++l) {
        if (block.reason[l] != Reason::none) continue;
        const T value = by_searches() ? static_cast<T>(block.searches[l]->value()) : found[l];
        block.last_value[l] = value;
        const bool first = is_nan(block.best_value[l]) && !is_nan(value);
        if (!first && !(value < block.best_value[l])) continue;
        block.best_value[l] = value;
        block.best_step[l] = t;
        block.better[better++] = l;
    }
    if (by_searches()) return;  // their last point is the best
    block.all_better = better == lanes_;
    if (block.all_better) return;
    for (std::size_t i = 0; i < better; ++i) copy_lane(block.x, block.best_x, block.better[i]);
}

/// Copies points that no step has left yet.
template <class T>
void Descent<T>::keep_best(Block& block) {
    if (block.all_better) std::copy(block.x.begin(), block.x.end(), block.best_x.begin());
    block.all_better = false;
}

template <class T>
Moves<T> Descent<T>::moves_of(Block& block) const {
    const auto& variables = objective_.variables();
    const Found<T>& found = block.found;
    const bool any = options_.bounds.any();
    return {variables.size(),
            lanes_,
            variables.data(),
            block.x.data(),
            block.x.data(),
            found.numbers,
            found.places + 1,
            any ? low_.data() : nullptr,
            any ? high_.data() : nullptr};
}

/// Tells all searches what is at their trials, and goes to the next ones.
template <class T>
void Descent<T>::search(Block& block) const {
    const bool squares = options_.method == Method::lm;
    const Moves<T> moves = moves_of(block);
    block.vectors.resize(lanes_);
    if (!squares) {
        for (std::size_t l = 0; l < lanes_; ++l)
            block.vectors[l] = block.searches[l]->here().data();
        move_kernels<T>().split(moves, block.vectors.data());
    }
    for (std::size_t l = 0; l < lanes_; ++l) {
        Search& search = *block.searches[l];
        if (block.reason[l] == Reason::none && squares) {
            const double value =
                objective_.read_squares(block.found, l, search.here(), block.squares);
            search.tell(value, block.squares.data());
        } else if (block.reason[l] == Reason::none) {
            search.tell(static_cast<double>(block.found.at(0)[l]));
        }
        block.vectors[l] = search.trial().data();
    }
    move_kernels<T>().join(moves, block.vectors.data());
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
    for (std::size_t k = 0; k < objective_.variables().size(); ++k) {
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
    if (has_rules()) block.previous = block.last_value;
    Moves<T> moves = moves_of(block);
    if (block.all_better) {  // the best points stay where they are, and steps go elsewhere
        block.x.swap(block.best_x);
        moves.to = block.x.data();
        block.all_better = false;
    }
    const auto& o = options_;
    const auto rounds = static_cast<double>(t + 1);
    const AdamStep<T> adam{static_cast<T>(o.lr),
                           static_cast<T>(o.beta1),
                           static_cast<T>(o.beta2),
                           static_cast<T>(o.epsilon),
                           static_cast<T>(1 / (1 - std::pow(o.beta1, rounds))),
                           static_cast<T>(1 / (1 - std::pow(o.beta2, rounds)))};
    const MoveKernels<T>& kernels = move_kernels<T>();
    T *first = block.first_moment.data(), *second = block.second_moment.data();
    if (o.method == Method::sgd)
        kernels.sgd(moves, adam.lr);
    else if (o.method == Method::momentum)
        kernels.momentum(moves, adam.lr, static_cast<T>(o.momentum), first);
    else
        kernels.adam(moves, adam, first, second);
    for (std::size_t l = 0; l < lanes_; ++l)  // what has ended stays, and meets no branch
        if (block.reason[l] != Reason::none) copy_lane(block.last_x, block.x, l);
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
void Descent<T>::copy_lane(const Numbers<T>& from, Numbers<T>& to, std::size_t lane) const {
    for (std::size_t at = lane; at < from.size(); at += lanes_) to[at] = from[at];
}

/// Blocks that have not ended, so many steps each, in threads; with data, threads share the rows
/// instead.
template <class T>
template <class Body>
void Descent<T>::each_active(std::size_t steps, Body body) {
    std::vector<std::size_t> active;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
        if (!ended(blocks_[b])) active.push_back(b);
    const double work = descent_work(runner_, options_, objective_.variables().size(),
                                     active.size() * lanes_ * steps);
    over_ranges(runner_, static_cast<int>(lanes_), active.size(),
                Work{work, objective_.has_data() ? 1 : options_.threads},
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
    each_active(steps, [&](std::size_t b, const Workspace<T>& workspace) {
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
    each_active(1, [&](std::size_t b, const Workspace<T>& workspace) {
        Block& block = blocks_[b];
        take_values(block, workspace, taken_);
        keep_best(block);
        if (by_searches())
            for (std::size_t l = 0; l < lanes_; ++l)
                if (block.reason[l] == Reason::none) block.reason[l] = block.searches[l]->reason();
    });
}

template <class T>
void Descent<T>::unpack(Numbers<T> Block::* x, Numbers<T> Block::* value, T* xs, T* values) const {
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

template int threads_for(const Runner<double>&, const DescentOptions&, std::size_t, std::size_t,
                         std::size_t);
template int threads_for(const Runner<float>&, const DescentOptions&, std::size_t, std::size_t,
                         std::size_t);
template class Descent<double>;
template class Descent<float>;

}  // namespace tapegrad
