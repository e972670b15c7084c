// core/scalar/minimize.cpp -- gradient descent as a native loop over a program.
#include "minimize.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapegrad {

template <class T>
Descent<T>::Descent(const Runner<T>& runner, std::vector<std::uint32_t> moved,
                    DescentOptions options, const T* starts, std::size_t count)
    : runner_(runner),
      moved_(std::move(moved)),
      options_(options),
      count_(count),
      inputs_(runner.program().code().input_count),
      lanes_(count == 1 ? 1 : static_cast<std::size_t>(runner.width())) {
    blocks_.resize((count + lanes_ - 1) / lanes_);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        Block& block = blocks_[b];
        block.x.resize(inputs_ * lanes_);
        for (std::size_t i = 0; i < inputs_; ++i)
            for (std::size_t l = 0; l < lanes_; ++l) {
                std::size_t row = std::min(count - 1, b * lanes_ + l);
                block.x[i * lanes_ + l] = starts[row * inputs_ + i];
            }
        if (options_.method == Method::adam) {
            block.first_moment.assign(moved_.size() * lanes_, T(0));
            block.second_moment.assign(moved_.size() * lanes_, T(0));
        }
        block.best_x = block.x;
        block.value.assign(lanes_, std::numeric_limits<T>::quiet_NaN());
        block.best_value.assign(lanes_, std::numeric_limits<T>::quiet_NaN());
    }
}

template <class T>
void Descent<T>::evaluate(Block& block, const Workspace<T>& workspace) const {
    const Code& code = runner_.program().code();
    for (std::size_t i = 0; i < inputs_; ++i)
        if (code.inputs[i] != no_slot)
            std::copy_n(block.x.data() + i * lanes_, lanes_, workspace.slot(code.inputs[i]));
    if (lanes_ == 1)
        kernels<T>().single(code, workspace.slots());
    else
        kernels<T>().lanes(code, workspace.slots(), workspace.width());
    std::copy_n(workspace.slot(code.outputs[0]), lanes_, block.value.data());
    for (std::size_t l = 0; l < lanes_; ++l) {
        const bool first = block.best_value[l] != block.best_value[l];  // NaN until there is one
        if (!(block.value[l] < block.best_value[l]) && !(first && block.value[l] == block.value[l]))
            continue;
        block.best_value[l] = block.value[l];
        for (std::size_t i = 0; i < inputs_; ++i)
            block.best_x[i * lanes_ + l] = block.x[i * lanes_ + l];
    }
}

template <class T>
void Descent<T>::step(Block& block, const Workspace<T>& workspace, std::size_t t) const {
    const Code& code = runner_.program().code();
    const T lr = static_cast<T>(options_.lr);
    const T b1 = static_cast<T>(options_.beta1), b2 = static_cast<T>(options_.beta2);
    const T epsilon = static_cast<T>(options_.epsilon);
    const auto rounds = static_cast<double>(t + 1);
    const T scale1 = static_cast<T>(1 / (1 - std::pow(options_.beta1, rounds)));
    const T scale2 = static_cast<T>(1 / (1 - std::pow(options_.beta2, rounds)));
    for (std::size_t k = 0; k < moved_.size(); ++k) {
        const T* g = workspace.slot(code.outputs[1 + k]);
        T* x = block.x.data() + moved_[k] * lanes_;
        if (options_.method == Method::sgd) {
            for (std::size_t l = 0; l < lanes_; ++l) x[l] -= lr * g[l];
            continue;
        }
        T* m = block.first_moment.data() + k * lanes_;
        T* v = block.second_moment.data() + k * lanes_;
        for (std::size_t l = 0; l < lanes_; ++l) {
            m[l] = b1 * m[l] + (1 - b1) * g[l];
            v[l] = b2 * v[l] + (1 - b2) * (g[l] * g[l]);
            x[l] -= lr * (m[l] * scale1) / (std::sqrt(v[l] * scale2) + epsilon);
        }
    }
}

template <class T>
template <class Body>
void Descent<T>::each_block(Body body) {
    over_ranges(runner_, static_cast<int>(lanes_), blocks_.size(), options_.threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    for (std::size_t b = low; b < high; ++b) body(b, workspace);
                });
}

template <class T>
void Descent<T>::advance(std::size_t steps, T* history, std::size_t every) {
    each_block([&](std::size_t b, const Workspace<T>& workspace) {
        Block& block = blocks_[b];
        const std::size_t lanes = std::min(lanes_, count_ - b * lanes_);
        for (std::size_t t = taken_; t < taken_ + steps; ++t) {
            evaluate(block, workspace);
            if (history && t % every == 0)
                std::copy_n(block.value.data(), lanes, history + t / every * count_ + b * lanes_);
            step(block, workspace, t);
        }
    });
    taken_ += steps;
}

template <class T>
void Descent<T>::settle() {
    each_block(
        [&](std::size_t b, const Workspace<T>& workspace) { evaluate(blocks_[b], workspace); });
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
void Descent<T>::best(T* x, T* values) const {
    unpack(&Block::best_x, &Block::best_value, x, values);
}

template <class T>
void Descent<T>::last(T* x, T* values) const {
    unpack(&Block::x, &Block::value, x, values);
}

template class Descent<double>;
template class Descent<float>;

}  // namespace tapegrad
