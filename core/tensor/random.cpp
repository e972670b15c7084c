// core/tensor/random.cpp -- counter-based random numbers in threads.
#include "random.h"

#include <cmath>

#include "kernels.h"
#include "philox.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// A random number counts as so many elements of work.
constexpr Size number_work = 4;

/// Calls body(T{}, low, high) for ranges of the array.
template <class Body>
void fill_reals(const View& out, Body body) {
    const Size count = out.size();
    with_real(out.type, [&](auto element) {
        in_parallel(count, number_work * count,
                    [&](Size low, Size high) { body(element, low, high); });
    });
}

/// Calls body(i, block, j) for numbers [low, high), of which `per_block` come from one block.
template <int per_block, class Body>
void each_number(Size low, Size high, std::uint64_t seed, std::uint64_t offset, Body body) {
    PhiloxBlocks random;
    std::uint64_t block = (offset + static_cast<std::uint64_t>(low)) / per_block;
    int next = static_cast<int>((offset + static_cast<std::uint64_t>(low)) % per_block);
    for (Size i = low; i < high; block += philox_side_by_side, next = 0) {
        philox(block, seed, random);
        for (; next < per_block * philox_side_by_side && i < high; ++next, ++i)
            body(i, random, next / per_block, next % per_block);
    }
}

}  // namespace

void random_uniform(const View& out, std::uint64_t seed, std::uint64_t offset) {
    fill_reals(out, [&](auto element, Size low, Size high) {
        using T = decltype(element);
        tensor_kernels<T>().random->uniform(out.as<T>() + low, high - low, seed,
                                            offset + static_cast<std::uint64_t>(low));
    });
}

void random_normal(const View& out, std::uint64_t seed, std::uint64_t offset) {
    fill_reals(out, [&](auto element, Size low, Size high) {
        using T = decltype(element);
        tensor_kernels<T>().random->normal(out.as<T>() + low, high - low, seed,
                                           offset + static_cast<std::uint64_t>(low));
    });
}

void random_integers(std::int64_t* out, Size count, std::int64_t low, std::uint64_t span,
                     std::uint64_t seed, std::uint64_t offset) {
    in_parallel(count, number_work * count, [&](Size first, Size last) {
        each_number<2>(first, last, seed, offset,
                       [&](Size i, const PhiloxBlocks& random, int block, int pair) {
                           const std::uint64_t bits = philox_pair(random, pair, block);
                           const auto scaled = static_cast<std::uint64_t>(
                               static_cast<unsigned __int128>(bits) * span >> 64);
                           out[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                                              (span ? scaled : bits));
                       });
    });
}

void random_mask(bool* out, Size count, double p, std::uint64_t seed, std::uint64_t offset) {
    const auto limit = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
    in_parallel(count, number_work * count, [&](Size first, Size last) {
        each_number<4>(first, last, seed, offset,
                       [&](Size i, const PhiloxBlocks& random, int block, int word) {
                           out[i] = random.words[word][block] >> 8 < limit;
                       });
    });
}

}  // namespace tapegrad
