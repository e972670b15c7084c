// core/scalar/minimize.h -- descent as a native loop over a program.
//
// Many starts run in lanes: sgd, momentum and adam step all lanes of a block at once, lbfgs and lm
// are a Search per lane. With data, a program gives one row's part of the value: the parts are
// summed over the rows, threads share the rows, and starts come one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "objective.h"
#include "search.h"

namespace tapegrad {

enum class Method { sgd, momentum, adam, lbfgs, lm };

struct DescentOptions {
    Method method = Method::sgd;
    double lr = 1e-2;                                   ///< of sgd, momentum and adam
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of adam
    double momentum = 0.9;
    std::size_t memory = 10;  ///< pairs that lbfgs keeps
    Stops stops;
    Bounds bounds;  ///< by variable
    int threads = 1;
};

/// Threads that are worth it for so many starts, if they take all steps.
template <class T>
int threads_for(const Runner<T>& runner, const DescentOptions& options, std::size_t variables,
                std::size_t starts, std::size_t steps);

/// Many starts of one minimisation. lm takes the program's values for residuals, the others
/// minimise its only value.
template <class T>
class Descent {
   public:
    Descent(const Runner<T>& runner, Objective<T> objective, DescentOptions options,
            const T* starts, std::size_t count);

    /// Takes `steps` steps, or as many as there are before all starts have ended. If `history` is
    /// given, the values before step t are written to history[t / every * count ...] for every t
    /// that `every` divides, t counted over all calls.
    void advance(std::size_t steps, T* history, std::size_t every);
    /// Makes the last values those at the last points.
    void settle();
    /// Looks where the steps ended, so that it can be the best, too.
    void finish();

    std::size_t taken() const { return taken_; }
    bool all_ended() const;
    Reason reason(std::size_t start) const {
        return blocks_[start / lanes_].reason[start % lanes_];
    }
    void best(T* x, T* values);
    void last(T* x, T* values);

   private:
    struct Block {
        Numbers<T> x, first_moment, second_moment;  ///< [input or derivative][lane]
        Numbers<T> last_x;                          ///< where lanes are that ended, or searches
        Numbers<T> best_x;
        Numbers<T> last_value, previous;  ///< found last, and before the last step
        Numbers<T> best_value;
        std::vector<std::size_t> best_step, better;  ///< better: lanes that just got there
        bool all_better = false;                     ///< and best_x still has to follow x
        std::vector<Reason> reason;
        std::vector<std::unique_ptr<Search>> searches;  ///< of lbfgs and lm, per lane
        std::vector<double*> vectors;                   ///< one of each search
        std::size_t steps = 0;                          ///< until its last lane ended
        Found<T> found;
        std::vector<double> squares;  ///< of one lane
    };

    bool by_searches() const {
        return options_.method == Method::lbfgs || options_.method == Method::lm;
    }
    bool has_rules() const;
    void start(Block& block, std::size_t first, const T* starts);
    std::unique_ptr<Search> new_search(const Block& block, std::size_t lane) const;
    void evaluate(Block& block, const Workspace<T>& workspace) const;
    /// Looks at a block's points, and judges them before step t is taken.
    void look(Block& block, const Workspace<T>& workspace, std::size_t t);
    void search(Block& block) const;
    Moves<T> moves_of(Block& block) const;
    static void keep_best(Block& block);
    void take_values(Block& block, const Workspace<T>& workspace, std::size_t t) const;
    void copy_search(Block& block, std::size_t lane) const;
    Reason verdict(const Block& block, std::size_t lane, std::size_t t) const;
    double projected_gradient(const Block& block, std::size_t lane) const;
    void step(Block& block, std::size_t t) const;
    bool ended(const Block& block) const;
    void copy_lane(const Numbers<T>& from, Numbers<T>& to, std::size_t lane) const;
    template <class Body>
    void each_active(std::size_t steps, Body body);
    void unpack(Numbers<T> Block::* x, Numbers<T> Block::* value, T* xs, T* values) const;

    const Runner<T>& runner_;
    Objective<T> objective_;
    DescentOptions options_;
    Numbers<T> low_, high_;  ///< bounds, or none
    std::size_t count_, inputs_, lanes_, taken_ = 0;
    std::vector<Block> blocks_;
};

}  // namespace tapegrad
