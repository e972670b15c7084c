// core/onednn/packed.cpp -- weights in the layouts of kernels, kept until they change.
#include "packed.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "buffer.h"

namespace tapegrad::onednn {
namespace {

constexpr std::size_t max_uses = 16;
constexpr std::size_t max_layouts = 4;  ///< of one use: batch sizes may differ in what they want
/// Packing 512 kernels of 512x3x3 is 6 % of a convolution with 1,568 results each, 32 % with 49.
constexpr std::int64_t max_rows = 2048;

std::atomic<std::size_t> total{0};
std::atomic<std::size_t> limit{std::size_t{1} << 30};

/// One for all weights: it is held for moments only, and a fork waits for it.
std::mutex guard;
[[maybe_unused]] const int fork_handler =
    pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); }, [] { guard.unlock(); });

template <class List>
auto* find_use(List& uses, Weight::Use use) {
    for (auto& each : uses)
        if (each.use == use) return &each;
    return decltype(&uses.front()){nullptr};
}

/// Takes bytes off the account of all weights, if there are so many left.
bool reserve(std::size_t bytes) {
    std::size_t before = total.load();
    do {
        if (before + bytes > limit.load()) return false;
    } while (!total.compare_exchange_weak(before, before + bytes));
    return true;
}

}  // namespace

Weight::Noted* Weight::noted(Use use) { return find_use(uses_, use); }
const Weight::Noted* Weight::noted(Use use) const { return find_use(uses_, use); }

bool Weight::used_again(Use use, std::int64_t version) {
    const std::lock_guard lock(guard);
    Noted* found = noted(use);
    if (!found) {
        if (uses_.size() >= max_uses) uses_.erase(uses_.begin());
        uses_.push_back({use, version, {}});
        return false;
    }
    if (found->version == version) return true;
    std::erase_if(found->kept, [&](const Kept& each) { return each.version != found->version; });
    found->version = version;
    return false;
}

Copy Weight::find(Use use, std::int64_t version, const dnnl::memory::desc& layout) const {
    const std::lock_guard lock(guard);
    const Noted* found = noted(use);
    if (found)
        for (const Kept& each : found->kept)
            if (each.version == version && each.layout == layout) return each.copy;
    return {};
}

Copy Weight::room(Use use, const dnnl::memory::desc& layout) {
    {
        const std::lock_guard lock(guard);
        if (Noted* found = noted(use)) {
            const auto old =
                std::find_if(found->kept.begin(), found->kept.end(), [&](const Kept& each) {
                    return each.version != found->version && each.layout == layout;
                });
            if (old != found->kept.end()) {
                Copy copy = std::move(old->copy);
                found->kept.erase(old);
                if (copy.use_count() == 1) return copy;  // nobody computes with it
            }
        }
    }
    const std::size_t bytes = layout.get_size();
    if (!reserve(bytes)) return {};
    try {
        return {allocate(bytes).release(), [bytes](std::byte* memory) {
                    Free{}(memory);
                    total -= bytes;
                }};
    } catch (...) {
        total -= bytes;
        throw;
    }
}

void Weight::keep(Use use, std::int64_t version, const dnnl::memory::desc& layout, Copy copy) {
    const std::lock_guard lock(guard);
    Noted* found = noted(use);
    if (!found || found->version != version) return;  // meanwhile it has changed
    if (found->kept.size() >= max_layouts) found->kept.erase(found->kept.begin());
    found->kept.push_back({version, layout, std::move(copy)});
}

WeightKey worth_keeping(WeightKey key, const void* source, std::int64_t kind, std::int64_t rows) {
    if (!key.weight || rows > max_rows || limit.load() == 0) return {};
    key.use = {source, kind};
    return key.weight->used_again(key.use, key.version) ? key : WeightKey{};
}

std::size_t packed_bytes() { return total.load(); }

std::size_t packed_limit() { return limit.load(); }

void set_packed_limit(std::size_t bytes) { limit = bytes; }

}  // namespace tapegrad::onednn
