// core/tensor/loss.h -- losses that pick one entry per element, and their gradient.
#pragma once

#include "view.h"

namespace tapegrad {

/// Classes [outer, inner] of scores [outer, n, inner]; all arrays are contiguous.
struct Classes {
    Slab slab;
    const std::int64_t* target;
    /// A factor per class, of the type of the scores; null: 1.
    const char* weight;
    /// A class that does not count.
    std::int64_t ignored;

    Size count() const { return slab.outer * slab.inner; }
};

struct Totals {
    double loss = 0, weight = 0;
};

/// losses = -weight * x at the classes; where `losses` is null only their sums are found. Returns
/// the position of the first class that is out of range, or no_position.
Size negative_log_likelihood(const View& x, const Classes& classes, char* losses, Totals& totals);
/// out = -weight * scale * g at the classes, and 0 elsewhere; g has an element per class, or one.
Size negative_log_likelihood_gradient(const View& out, const Classes& classes, const View& g,
                                      double scale);

}  // namespace tapegrad
