// core/scalar/profile.h -- where the time of an evaluation goes, run by run.
#pragma once

#include <cstddef>
#include <vector>

#include "runner.h"

namespace tapegrad {

struct RunTime {
    Run run;
    double seconds;  ///< of one evaluation (of all lanes)
};

struct Profile {
    std::vector<RunTime> runs;
    double seconds;  ///< of one evaluation as a whole
    int lanes;       ///< rows evaluated at once
};

/// Evaluates `repeats` times, every run of the stream timed by itself. What the clock takes is
/// subtracted, and the least of all repeats counts: others only had more disturbance.
template <class T>
Profile profile(const Runner<T>& runner, const InputRows<T>* inputs, std::size_t rows,
                std::size_t repeats);

}  // namespace tapegrad
