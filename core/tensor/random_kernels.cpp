// core/tensor/random_kernels.cpp -- random numbers of all kinds from Philox blocks.
//
// Compiled once per instruction set and number type. Numbers are made a group at a time, aligned to
// the counter, and the part of it that is wanted is copied out.
#include "kernels.h"
#include "philox.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// Numbers of a group with 32 and with 64 random bits each.
constexpr int words_per_group = 4 * philox_blocks;
constexpr int pairs_per_group = 2 * philox_blocks;
constexpr int reals_per_group = sizeof(Real) == 4 ? words_per_group : pairs_per_group;

TG_INLINE void words_of(uint64_t first_block, uint64_t seed, uint32_t (&out)[words_per_group]) {
    uint64_t pairs[pairs_per_group];
    philox(first_block, seed, pairs);
    memcpy(out, pairs, sizeof(out));
}

/// Uniforms in [0, 1).
TG_INLINE void uniform_group(uint64_t first_block, uint64_t seed, Real* out) {
    if constexpr (sizeof(Real) == 4) {
        uint32_t words[words_per_group];
        words_of(first_block, seed, words);
        for (int i = 0; i < words_per_group; ++i)
            out[i] = Real(int32_t(words[i] >> 8)) * Real(0x1p-24);
    } else {
        uint64_t pairs[pairs_per_group];
        philox(first_block, seed, pairs);
        for (int i = 0; i < pairs_per_group; ++i)
            out[i] = Real(int64_t(pairs[i] >> 11)) * Real(0x1p-53);
    }
}

/// Pairs (r cos t, r sin t) from the uniforms u, v: r^2 = -2 log(1 - u), t = 2 pi v.
TG_INLINE void normal_group(uint64_t first_block, uint64_t seed, Real* out) {
    constexpr int pairs = reals_per_group / 2;
    Real uniforms[reals_per_group], u[pairs], v[pairs];
    uniform_group(first_block, seed, uniforms);
    for (int i = 0; i < pairs; ++i) u[i] = uniforms[2 * i], v[i] = uniforms[2 * i + 1];
    for (int i = 0; i < pairs; i += native) {
        const Vec r = sqrt(Real(-2) * log(Real(1) - Vec::load(u + i)));
        const Vec t = Vec::load(v + i) * Real(6.283185307179586);
        (r * cos(t)).store(u + i);
        (r * sin(t)).store(v + i);
    }
    for (int i = 0; i < pairs; ++i) out[2 * i] = u[i], out[2 * i + 1] = v[i];
}

/// Numbers from `offset` on, of which group(block, seed, to) makes per_group from philox_blocks.
template <int per_group, class Out, class Group>
TG_INLINE void fill(Out* out, Size count, uint64_t offset, Group group) {
    constexpr uint64_t per_block = per_group / philox_blocks;
    Out numbers[per_group];
    uint64_t block = offset / per_block;
    Size skipped = Size(offset % per_block);
    for (Size done = 0; done < count; block += philox_blocks) {
        const Size left = count - done, there = per_group - skipped;
        const Size taken = left < there ? left : there;
        if (taken == per_group) {
            group(block, out + done);
        } else {
            group(block, numbers);
            memcpy(out + done, numbers + skipped, size_t(taken) * sizeof(Out));
        }
        done += taken;
        skipped = 0;
    }
}

void uniform(Real* out, Size count, uint64_t seed, uint64_t offset) {
    fill<reals_per_group>(out, count, offset, [&](uint64_t block, Real* to) TG_LAMBDA {
        uniform_group(block, seed, to);
    });
}

void normal(Real* out, Size count, uint64_t seed, uint64_t offset) {
    fill<reals_per_group>(out, count, offset, [&](uint64_t block, Real* to) TG_LAMBDA {
        normal_group(block, seed, to);
    });
}

void integers(int64_t* out, Size count, int64_t low, uint64_t span, uint64_t seed,
              uint64_t offset) {
    fill<pairs_per_group>(out, count, offset, [&](uint64_t block, int64_t* to) TG_LAMBDA {
        uint64_t pairs[pairs_per_group];
        philox(block, seed, pairs);
        for (int i = 0; i < pairs_per_group; ++i)
            to[i] = int64_t(uint64_t(low) + uint64_t((unsigned __int128)(pairs[i]) * span >> 64));
    });
}

void mask(bool* out, Size count, uint32_t limit, uint64_t seed, uint64_t offset) {
    fill<words_per_group>(out, count, offset, [&](uint64_t block, bool* to) TG_LAMBDA {
        uint32_t words[words_per_group];
        words_of(block, seed, words);
        for (int i = 0; i < words_per_group; ++i) to[i] = words[i] >> 8 < limit;
    });
}

}  // namespace

extern const RandomKernels<Real> TG_TABLE(random_);
const RandomKernels<Real> TG_TABLE(random_) = {uniform, normal, integers, mask};

}  // namespace TG_ISA
}  // namespace tapegrad
