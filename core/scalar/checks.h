// core/scalar/checks.h -- what must hold after an evaluation: branches as recorded, no function
// from outside failed.
#pragma once

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <vector>

namespace tapegrad {

/// A point would take another branch than the one that was recorded.
struct BranchChanged : std::runtime_error {
    using std::runtime_error::runtime_error;
    /// Where a descent was, [input][lane], and the start of its first lane: nobody else knows.
    /// Empty for other evaluations.
    std::vector<double> points;
    std::size_t first_start = 0;
};

/// Keeps what a function from outside threw; the evaluation goes on and throws it at its end, as
/// the executors' code cannot be unwound. Further functions are not called.
void report_failure(std::exception_ptr failure);
bool has_failed();

}  // namespace tapegrad
