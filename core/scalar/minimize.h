// core/scalar/minimize.h -- gradient descent as a native loop over a program.
#pragma once

#include <cstdint>
#include <vector>

#include "runner.h"

namespace tapegrad {

enum class Method { sgd, adam };

struct DescentOptions {
    Method method = Method::sgd;
    double lr = 1e-2;
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of adam
    int threads = 1;
};

/// Many starts of one minimisation, in lanes. The program's first output is the value, the others
/// the derivatives; `moved[k]` is the input that derivative k belongs to.
template <class T>
class Descent {
   public:
    Descent(const Runner<T>& runner, std::vector<std::uint32_t> moved, DescentOptions options,
            const T* starts, std::size_t count);

    /// Takes `steps` steps. If `history` is given, the values before step t are written to
    /// history[t / every * count ...] for every t that `every` divides, t counted over all calls.
    void advance(std::size_t steps, T* history, std::size_t every);
    /// Evaluates where the steps ended, so that it can be the best, too.
    void settle();

    std::size_t taken() const { return taken_; }
    void best(T* x, T* values) const;
    void last(T* x, T* values) const;

   private:
    struct Block {
        std::vector<T> x, first_moment, second_moment, best_x;  ///< [input or derivative][lane]
        std::vector<T> value, best_value;
    };
    void evaluate(Block& block, const Workspace<T>& workspace) const;
    void step(Block& block, const Workspace<T>& workspace, std::size_t t) const;
    template <class Body>
    void each_block(Body body);
    void unpack(std::vector<T> Block::* x, std::vector<T> Block::* value, T* xs, T* values) const;

    const Runner<T>& runner_;
    std::vector<std::uint32_t> moved_;
    DescentOptions options_;
    std::size_t count_, inputs_, lanes_, taken_ = 0;
    std::vector<Block> blocks_;
};

}  // namespace tapegrad
