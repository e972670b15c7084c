// core/scalar/search.h -- what all ways of descending share: bounds, when to stop, and searches
// that look at a point before they go there.
//
// A search is asked for a trial point and told what was found there. So any number of searches run
// side by side in lanes, each at a place of its own in its line search or with damping of its own.
// Searches compute in double, whatever the program's number type; who evaluates rounds the trial.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "aligned.h"
#include "moves.h"

namespace tapegrad {

/// Why a descent ended.
enum class Reason : unsigned char {
    none,        ///< it did not yet
    gradient,    ///< the gradient is as small as asked for
    change,      ///< the value changes as little as asked for
    target,      ///< the value asked for is reached
    patience,    ///< no better value for so many steps
    no_descent,  ///< nothing better nearby, as far as the numbers show
    not_finite,  ///< the value or the gradient is NaN or infinite
};

/// When to stop; by default never.
struct Stops {
    double gradient = -1;  ///< largest entry of the gradient, projected on the bounds
    double change = -1;    ///< of the value in a step, relative to the value
    double target = -std::numeric_limits<double>::infinity();
    std::size_t patience = 0;  ///< steps without a better value; 0 waits for ever
    double rounding = 0;       ///< relative error of values, below which they are the same
};

/// Per variable the lowest and the highest value; empty: any.
struct Bounds {
    std::vector<double> low, high;

    bool any() const { return !low.empty(); }
    double clip(std::size_t k, double x) const {
        if (!any()) return x;
        return x < low[k] ? low[k] : x > high[k] ? high[k] : x;
    }
    /// How far the gradient would go down within the bounds.
    double projected(std::size_t k, double x, double gradient) const {
        const double size = gradient < 0 ? -gradient : gradient;
        if (!any()) return size;
        const double room = gradient < 0 ? high[k] - x : x - low[k];
        return room < size ? room : size;
    }
    /// Whether going down the gradient would leave the bounds at once.
    bool blocks(std::size_t k, double x, double gradient) const {
        return any() && ((x <= low[k] && gradient > 0) || (x >= high[k] && gradient < 0));
    }
};

/// Whether `value` differs from `before` by no more than the part `change` of the larger one.
bool changes_little(double before, double value, double change);

/// Sum of term(k) for k < n, in eight partial sums that share vectors.
template <class Term>
double sum_of(std::size_t n, Term term) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (std::size_t l = 0; l < 8; ++l) sums[l] += term(k + l);
    for (; k < n; ++k) sums[k % 8] += term(k);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// Whether none of them is NaN or infinite.
inline bool all_finite(const double* a, std::size_t n) {
    return sum_of(n, [a](std::size_t k) { return a[k] - a[k]; }) == 0;
}

/// One start of a method that looks before it goes.
class Search {
   public:
    Search(Numbers<double> start, const Bounds& bounds, const Stops& stops);
    virtual ~Search() = default;

    /// The point to look at next; may be rounded.
    Numbers<double>& trial() { return trial_; }
    /// Where to write the gradient at the trial, before tell().
    Numbers<double>& here() { return here_; }
    /// What is at the trial: the value, and of least squares also the matrix J'J, by rows.
    void tell(double value, const double* squares = nullptr);

    const Numbers<double>& x() const { return x_; }
    double value() const { return value_; }  ///< NaN before the first trial
    Reason reason() const { return reason_; }

   protected:
    /// Judges a trial that is not the start.
    virtual void judge(double value, const double* squares) = 0;
    /// Makes the next trial from x.
    virtual void leave() = 0;
    /// Keeps what is needed of the matrix at x.
    virtual void arrive(const double*) {}

    /// Goes to the trial and on from there, unless a rule ends it.
    void accept(double value, const double* squares);
    void end(Reason reason) { reason_ = reason; }
    bool is_free(std::size_t k) const { return !bounds_.blocks(k, x_[k], gradient_[k]); }
    /// Puts the trial at x + scale * direction, within the bounds; false if that is x.
    bool try_step(const Numbers<double>& direction, double scale);
    /// gradient . (trial - x)
    double slope() const;

    const Bounds& bounds_;
    const Stops& stops_;
    const SearchKernels& kernels_ = search_kernels();
    const std::size_t n_;  ///< variables; vectors are longer, filled up with zeros
    Numbers<double> x_, trial_, gradient_, here_;  ///< gradients at x and at the trial
    double value_ = std::numeric_limits<double>::quiet_NaN();

    std::size_t padded() const { return x_.size(); }

   private:
    double projected_gradient() const;

    bool started_ = false;
    Reason reason_ = Reason::none;
};

}  // namespace tapegrad
