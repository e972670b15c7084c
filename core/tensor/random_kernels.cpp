// core/tensor/random_kernels.cpp -- uniform and normal numbers from Philox blocks.
//
// Compiled once per instruction set and number type. Numbers are made a group at a time, aligned to
// the counter, and the part of it that is wanted is copied out.
#include "kernels.h"
#include "philox.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

constexpr int blocks = philox_side_by_side;
/// Numbers of one block, and of a group of blocks.
constexpr int per_block = 16 / int(sizeof(Real));
constexpr int per_group = blocks * per_block;

/// Uniforms in [0, 1), number e of the group at out[e].
TG_INLINE void uniform_group(uint64_t first_block, uint64_t seed, Real* out) {
    PhiloxBlocks random;
    philox(first_block, seed, random);
    for (int b = 0; b < blocks; ++b)
        for (int i = 0; i < per_block; ++i) {
            if constexpr (sizeof(Real) == 4)
                out[b * per_block + i] = Real(int32_t(random.words[i][b] >> 8)) * Real(0x1p-24);
            else
                out[b * per_block + i] =
                    Real(int64_t(philox_pair(random, i, b) >> 11)) * Real(0x1p-53);
        }
}

/// Pairs (r cos t, r sin t) from the uniforms u, v: r^2 = -2 log(1 - u), t = 2 pi v.
TG_INLINE void normal_group(uint64_t first_block, uint64_t seed, Real* out) {
    constexpr int pairs = per_group / 2;
    Real uniforms[per_group], u[pairs], v[pairs];
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

template <class Group>
TG_INLINE void fill(Real* out, Size count, uint64_t seed, uint64_t offset, Group group) {
    Real numbers[per_group];
    uint64_t block = offset / per_block;
    Size skipped = Size(offset % per_block);
    for (Size done = 0; done < count; block += blocks) {
        const Size left = count - done, there = per_group - skipped;
        const Size taken = left < there ? left : there;
        if (taken == per_group) {
            group(block, seed, out + done);
        } else {
            group(block, seed, numbers);
            memcpy(out + done, numbers + skipped, size_t(taken) * sizeof(Real));
        }
        done += taken;
        skipped = 0;
    }
}

void uniform(Real* out, Size count, uint64_t seed, uint64_t offset) {
    fill(out, count, seed, offset,
         [](uint64_t block, uint64_t key, Real* to) TG_LAMBDA { uniform_group(block, key, to); });
}

void normal(Real* out, Size count, uint64_t seed, uint64_t offset) {
    fill(out, count, seed, offset,
         [](uint64_t block, uint64_t key, Real* to) TG_LAMBDA { normal_group(block, key, to); });
}

}  // namespace

extern const RandomKernels<Real> TG_TABLE(random_);
const RandomKernels<Real> TG_TABLE(random_) = {uniform, normal};

}  // namespace TG_ISA
}  // namespace tapegrad
