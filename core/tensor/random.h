// core/tensor/random.h -- counter-based random numbers: Philox 4x32 with ten rounds.
//
// Number e = offset + i of a seed depends on (seed, e) alone, so the same numbers come from any
// number of threads and any split of an array. A block of the generator has four words of 32 bits;
// its counter is the number of the block, its key the seed:
//
//   float32 uniforms, masks         word e % 4 of block e / 4; the upper 24 bits
//   float64 uniforms, integers      words 2 (e % 2) and the next of block e / 2; 53 bits, 64 bits
//   normal numbers                  in pairs, from two uniforms (Box and Muller): even e the cosine
#pragma once

#include "view.h"

namespace tapegrad {

template <class T>
struct RandomKernels {
    void (*uniform)(T* out, Size count, std::uint64_t seed, std::uint64_t offset);
    void (*normal)(T* out, Size count, std::uint64_t seed, std::uint64_t offset);
    /// low + (64 random bits * span) / 2^64.
    void (*integers)(std::int64_t* out, Size count, std::int64_t low, std::uint64_t span,
                     std::uint64_t seed, std::uint64_t offset);
    /// Whether 24 random bits are below the limit.
    void (*mask)(bool* out, Size count, std::uint32_t limit, std::uint64_t seed,
                 std::uint64_t offset);
};

void random_uniform(const View& out, std::uint64_t seed, std::uint64_t offset);
void random_normal(const View& out, std::uint64_t seed, std::uint64_t offset);
/// Integers from low on, `span` of them.
void random_integers(std::int64_t* out, Size count, std::int64_t low, std::uint64_t span,
                     std::uint64_t seed, std::uint64_t offset);
/// true where the float32 uniform lies below p.
void random_mask(bool* out, Size count, double p, std::uint64_t seed, std::uint64_t offset);

}  // namespace tapegrad
