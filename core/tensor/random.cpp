// core/tensor/random.cpp -- counter-based random numbers in threads.
#include "random.h"

#include <cmath>

#include "kernels.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// Calls body(low, high, number of the first) for ranges of `count` numbers.
template <class Body>
void over_numbers(Size count, std::uint64_t offset, Body body) {
    in_parallel(count, count, [&](Size low, Size high) {
        body(low, high, offset + static_cast<std::uint64_t>(low));
    });
}

}  // namespace

void random_uniform(const View& out, std::uint64_t seed, std::uint64_t offset) {
    with_real(out.type, [&](auto real) {
        using T = decltype(real);
        over_numbers(out.size(), offset, [&](Size low, Size high, std::uint64_t first) {
            tensor_kernels<T>().random->uniform(out.as<T>() + low, high - low, seed, first);
        });
    });
}

void random_normal(const View& out, std::uint64_t seed, std::uint64_t offset) {
    with_real(out.type, [&](auto real) {
        using T = decltype(real);
        over_numbers(out.size(), offset, [&](Size low, Size high, std::uint64_t first) {
            tensor_kernels<T>().random->normal(out.as<T>() + low, high - low, seed, first);
        });
    });
}

void random_integers(std::int64_t* out, Size count, std::int64_t low, std::uint64_t span,
                     std::uint64_t seed, std::uint64_t offset) {
    const auto kernel = tensor_kernels<float>().random->integers;
    over_numbers(count, offset, [&](Size first, Size last, std::uint64_t number) {
        kernel(out + first, last - first, low, span, seed, number);
    });
}

void random_mask(bool* out, Size count, double p, std::uint64_t seed, std::uint64_t offset) {
    const auto kernel = tensor_kernels<float>().random->mask;
    const auto limit = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
    over_numbers(count, offset, [&](Size first, Size last, std::uint64_t number) {
        kernel(out + first, last - first, limit, seed, number);
    });
}

}  // namespace tapegrad
