// core/tensor/loss.cpp -- losses that pick one entry per element, and their gradient.
#include "loss.h"

#include <algorithm>

#include "index.h"

namespace tapegrad {
namespace {

/// Calls body(position of the class, place of its score, factor) for all that count, in order;
/// returns the position of a class that is out of range.
template <class T, class Body>
Size each_class(const Classes& classes, Body body) {
    const auto [outer, n, inner] = classes.slab;
    const auto* weight = reinterpret_cast<const T*>(classes.weight);
    for (Size o = 0; o < outer; ++o)
        for (Size i = 0; i < inner; ++i) {
            const Size position = o * inner + i;
            const std::int64_t k = classes.target[position];
            if (k == classes.ignored) continue;
            if (k < 0 || k >= n) return position;
            body(position, (o * n + k) * inner + i, weight ? weight[k] : T(1));
        }
    return no_position;
}

/// Adds up in blocks, so that errors stay small however many there are.
class Sum {
   public:
    void add(double number) {
        block_ += number;
        if (++count_ % 512 == 0) {
            total_ += block_;
            block_ = 0;
        }
    }
    double total() const { return total_ + block_; }

   private:
    double total_ = 0, block_ = 0;
    Size count_ = 0;
};

template <class T>
Size find(const T* x, const Classes& classes, T* losses, Totals& totals) {
    if (losses) std::fill_n(losses, classes.count(), T(0));
    Sum loss, weight;
    const Size bad = each_class<T>(classes, [&](Size position, Size place, T factor) {
        const T value = -x[place] * factor;
        if (losses) losses[position] = value;
        loss.add(double(value));
        weight.add(double(factor));
    });
    totals = {loss.total(), weight.total()};
    return bad;
}

template <class T>
Size spread(T* out, const Classes& classes, const T* g, Size step, double scale) {
    std::fill_n(out, classes.slab.size(), T(0));
    return each_class<T>(classes, [&](Size position, Size place, T factor) {
        out[place] = -g[position * step] * T(double(factor) * scale);
    });
}

}  // namespace

Size negative_log_likelihood(const View& x, const Classes& classes, char* losses, Totals& totals) {
    return with_real(x.type, [&](auto real) {
        using T = decltype(real);
        return find(x.as<const T>(), classes, reinterpret_cast<T*>(losses), totals);
    });
}

Size negative_log_likelihood_gradient(const View& out, const Classes& classes, const View& g,
                                      double scale) {
    return with_real(out.type, [&](auto real) {
        using T = decltype(real);
        return spread(out.as<T>(), classes, g.as<const T>(), g.ndim ? 1 : 0, scale);
    });
}

}  // namespace tapegrad
