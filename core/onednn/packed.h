// core/onednn/packed.h -- weights in the layouts of kernels, kept until they change.
//
// 1. A `Weight` belongs to whoever holds the numbers, and goes with them. It knows nothing but the
//    copies that plans made: a copy is found again by where its numbers lie, by what it is used
//    for, by its layout and by the version of the numbers.
// 2. The first use of a version keeps nothing: in training each version is used once forward and
//    once backward, in two layouts, and a copy would be memory for nothing. From the second use on
//    the copy is kept. When a version comes and goes unrepeated, the older copy goes, too.
// 3. Copies are shared by threads, and never written to once another thread can see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace tapegrad::onednn {

using Copy = std::shared_ptr<std::byte>;

class Weight {
   public:
    /// A way in which the weight is used.
    struct Use {
        const void* source = nullptr;  ///< a weight may be a part of what shares its versions
        std::int64_t kind = 0;         ///< what for, and how the numbers lie there
        bool operator==(const Use&) const = default;
    };

    /// Notes a use of a version; true if it is not the first.
    bool used_again(Use use, std::int64_t version);
    /// The copy of this version, or null.
    Copy find(Use use, std::int64_t version, const dnnl::memory::desc& layout) const;
    /// Memory for a copy; null beyond the limit of all weights.
    Copy room(Use use, const dnnl::memory::desc& layout);
    void keep(Use use, std::int64_t version, const dnnl::memory::desc& layout, Copy copy);

   private:
    struct Kept {
        std::int64_t version;
        dnnl::memory::desc layout;
        Copy copy;
    };
    struct Noted {
        Use use;
        std::int64_t version;
        std::vector<Kept> kept;
    };

    Noted* noted(Use use);
    const Noted* noted(Use use) const;

    std::vector<Noted> uses_;  ///< the oldest first
};

/// Which numbers a plan's weight has; without a weight nothing is kept.
struct WeightKey {
    Weight* weight = nullptr;
    std::int64_t version = 0;
    Weight::Use use{};
};

/// The key if a copy of the weight is worth keeping, else one that keeps nothing. The weight is
/// used for `rows` results each: with many of them packing takes no part of the time that one
/// could measure.
WeightKey worth_keeping(WeightKey key, const void* source, std::int64_t kind, std::int64_t rows);

/// Bytes of all copies, and how many there may be; 0: none.
std::size_t packed_bytes();
std::size_t packed_limit();
void set_packed_limit(std::size_t bytes);

}  // namespace tapegrad::onednn
