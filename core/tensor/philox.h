// core/tensor/philox.h -- blocks of Philox 4x32 with ten rounds, several side by side.
#pragma once

#include <stdint.h>

namespace tapegrad {
namespace {

constexpr int philox_side_by_side = 16;

/// Words of 16 consecutive blocks: word w of block b is words[w][b].
struct PhiloxBlocks {
    uint32_t words[4][philox_side_by_side];
};

inline __attribute__((always_inline)) void philox(uint64_t first, uint64_t seed,
                                                  PhiloxBlocks& out) {
    constexpr int n = philox_side_by_side;
    uint32_t (&w)[4][n] = out.words;
    for (int b = 0; b < n; ++b) {
        const uint64_t counter = first + static_cast<uint64_t>(b);
        w[0][b] = static_cast<uint32_t>(counter);
        w[1][b] = static_cast<uint32_t>(counter >> 32);
        w[2][b] = w[3][b] = 0;
    }
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int b = 0; b < n; ++b) {
            const uint64_t p = uint64_t{0xD2511F53} * w[0][b], q = uint64_t{0xCD9E8D57} * w[2][b];
            const uint32_t w1 = w[1][b], w3 = w[3][b];
            w[0][b] = static_cast<uint32_t>(q >> 32) ^ w1 ^ key0;
            w[1][b] = static_cast<uint32_t>(q);
            w[2][b] = static_cast<uint32_t>(p >> 32) ^ w3 ^ key1;
            w[3][b] = static_cast<uint32_t>(p);
        }
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
}

/// 64 bits from two words of a block.
inline __attribute__((always_inline)) uint64_t philox_pair(const PhiloxBlocks& blocks, int pair,
                                                           int block) {
    return blocks.words[2 * pair][block] | static_cast<uint64_t>(blocks.words[2 * pair + 1][block])
                                               << 32;
}

}  // namespace
}  // namespace tapegrad
