// core/tensor/philox.h -- blocks of Philox 4x32 with ten rounds, several side by side.
#pragma once

#include "scalar/lanes.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

/// Blocks in a register, and in a group of two registers that hide each other's latency.
constexpr int philox_lanes = register_bytes / 8;
constexpr int philox_blocks = 2 * philox_lanes;

/// One word of 32 bits in the lower half of each lane; the upper half means nothing.
using Words = Register<uint64_t, philox_lanes>;

/// Products of 64 bits of the lower halves.
TG_INLINE Words times(Words a, uint32_t factor) {
#if TG_AVX512
    return Words(_mm512_mul_epu32(__m512i(a), _mm512_set1_epi64(factor)));
#elif TG_AVX2
    return Words(_mm256_mul_epu32(__m256i(a), _mm256_set1_epi64x(factor)));
#elif defined(__x86_64__)
    return Words(_mm_mul_epu32(__m128i(a), _mm_set1_epi64x(factor)));
#else
    return (a & 0xFFFFFFFF) * factor;
#endif
}

/// Two words for each of philox_blocks consecutive blocks and each half of a block: words 0 and 1
/// of block b make out[2 b], words 2 and 3 make out[2 b + 1].
TG_INLINE void philox(uint64_t first, uint64_t seed, uint64_t* out) {
    uint64_t counters[philox_blocks];
    for (int b = 0; b < philox_blocks; ++b) counters[b] = first + uint64_t(b);
    Words w[2][4] = {};
    memcpy(&w[0][0], counters, sizeof(Words));
    memcpy(&w[1][0], counters + philox_lanes, sizeof(Words));
    for (auto& words : w) words[1] = words[0] >> 32;
    uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85)
        for (auto& words : w) {
            const Words p = times(words[0], 0xD2511F53), q = times(words[2], 0xCD9E8D57);
            words[0] = (q >> 32) ^ words[1] ^ key0;
            words[1] = q;
            words[2] = (p >> 32) ^ words[3] ^ key1;
            words[3] = p;
        }
    for (int r = 0; r < 2; ++r) {
        const Words low = (w[r][0] & 0xFFFFFFFF) | w[r][1] << 32;
        const Words high = (w[r][2] & 0xFFFFFFFF) | w[r][3] << 32;
        for (int lane = 0; lane < philox_lanes; ++lane) {
            out[2 * (r * philox_lanes + lane)] = low[lane];
            out[2 * (r * philox_lanes + lane) + 1] = high[lane];
        }
    }
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad
