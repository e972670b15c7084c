// core/tensor/programs.cpp -- scalar programs over strided, broadcast arrays.
#include <algorithm>
#include <vector>

#include "blocks.h"
#include "reach.h"
#include "threads.h"

namespace tapegrad {
namespace {

// ---- on arrays --------------------------------------------------------------------------------

/// What a block of all slots may take. All of it has to stay in the first-level cache together with
/// what is fetched ahead: a step of Adam on a million floats takes 0.5 ms with blocks of 6 to 10
/// KB, 0.7 with 13 KB and 1.2 with 26 KB, of a cache of 32.
constexpr std::size_t block_bytes = 12 * 1024;

/// Elements in a block: enough that finding an instruction costs little beside running it, unless
/// the program is a large one, whose slots are to stay in the second-level cache.
template <class T>
int pinned_width(const Runner<T>& runner) {
    constexpr std::size_t line = 64 / sizeof(T), enough = 8 * line, most = block_size;
    const std::size_t least = std::min(enough, static_cast<std::size_t>(runner.width()));
    const std::size_t fit = block_bytes / (sizeof(T) * runner.program().total_slots());
    return static_cast<int>(std::clamp(fit / line * line, least, most));
}

/// A pinned program over blocks of arrays. Its slots lie in the arrays where these have the type
/// and order of the result; else they are gathered to, or scattered from, a workspace.
template <class T>
class OnArrays {
   public:
    OnArrays(const Program& program, const Merged& merged);
    /// Where all slots lie; numbers that all elements share are in place.
    std::vector<T*> begin(const Workspace<T>& workspace) const;
    /// Computes elements [first, first + count).
    void run(const Workspace<T>& workspace, std::vector<T*>& slots, std::int64_t first,
             std::int64_t count) const;

   private:
    struct Item {
        const Strided& array;
        std::uint32_t slot;
        bool direct;  ///< the slot lies in the array
        bool own;     ///< the slot is no other item's, nor a constant's
    };

    /// Whether an output takes the memory of input `k` before that is read for the last time.
    bool is_overwritten(std::size_t k) const;
    /// Whether no other output has elements in common with this one.
    bool is_alone(std::size_t output) const;
    bool is_direct(const Strided& array) const {
        return array.type == dtype_of<T>() && is_dense(merged_.extent, array);
    }
    Reach reach(const Strided& array) const {
        const auto itemsize = static_cast<std::int64_t>(size_of(array.type));
        return reach_of(array.data, itemsize, merged_.extent.ndim, merged_.extent.sizes,
                        array.strides);
    }
    std::span<const Strided> results() const {
        return std::span(merged_.arrays).subspan(program_.code().input_count);
    }
    /// Runs `lanes`, the first `count` of which are elements [first, first + count). If that is not
    /// all of them, no slot lies in an array.
    void run_lanes(const Workspace<T>& workspace, std::vector<T*>& slots, std::int64_t first,
                   std::int64_t count, int lanes) const;

    const Program& program_;
    const Merged& merged_;
    std::vector<Item> inputs_, shared_, outputs_;
};

template <class T>
OnArrays<T>::OnArrays(const Program& program, const Merged& merged)
    : program_(program), merged_(merged) {
    const Code& code = program.code();
    for (std::uint32_t k = 0; k < code.input_count; ++k) {
        if (code.inputs[k] == no_slot) continue;
        const Strided& array = merged.arrays[k];
        const bool direct = is_direct(array) && !is_overwritten(k);
        const bool shared = !direct && is_single(merged.extent, array);
        (shared ? shared_ : inputs_).push_back({array, code.inputs[k], direct, true});
    }
    for (std::uint32_t k = 0; k < code.output_count; ++k) {
        const bool own = program.lifetimes().writes[k] != at_end;
        const bool direct = own && is_direct(results()[k]) && is_alone(k);
        outputs_.push_back({results()[k], code.outputs[k], direct, own});
    }
}

template <class T>
bool OnArrays<T>::is_overwritten(std::size_t k) const {
    const Lifetimes& lifetimes = program_.lifetimes();
    const Reach own = reach(merged_.arrays[k]);
    for (std::size_t i = 0; i < results().size(); ++i)
        if (lifetimes.reads[k] >= lifetimes.writes[i] && overlap(own, reach(results()[i])))
            return true;
    return false;
}

template <class T>
bool OnArrays<T>::is_alone(std::size_t output) const {
    const Reach own = reach(results()[output]);
    for (std::size_t i = 0; i < results().size(); ++i)
        if (i != output && overlap(own, reach(results()[i]))) return false;
    return true;
}

template <class T>
std::vector<T*> OnArrays<T>::begin(const Workspace<T>& workspace) const {
    std::vector<T*> slots(program_.total_slots());
    for (std::uint32_t i = 0; i < slots.size(); ++i) slots[i] = workspace.slot(i);
    for (const Item& item : shared_) {
        gather(merged_.extent, item.array, 0, 1, slots[item.slot]);
        std::fill_n(slots[item.slot], workspace.width(), *slots[item.slot]);
    }
    return slots;
}

template <class T>
void OnArrays<T>::run(const Workspace<T>& workspace, std::vector<T*>& slots, std::int64_t first,
                      std::int64_t count) const {
    const int native = kernels<T>().native_lanes;
    const std::int64_t rest = count % native, whole = count - rest;
    if (whole) run_lanes(workspace, slots, first, whole, static_cast<int>(whole));
    if (rest) run_lanes(workspace, slots, first + whole, rest, native);
}

template <class T>
void OnArrays<T>::run_lanes(const Workspace<T>& workspace, std::vector<T*>& slots,
                            std::int64_t first, std::int64_t count, int lanes) const {
    const bool whole = count == lanes;
    const auto place = [&](const Item& item) {
        return slots[item.slot] = item.direct && whole
                                      ? reinterpret_cast<T*>(item.array.data) + first
                                      : workspace.slot(item.slot);
    };
    for (const Item& item : inputs_) {
        T* slot = place(item);
        if (item.direct && whole) continue;
        gather(merged_.extent, item.array, first, count, slot);
        std::fill(slot + count, slot + lanes, slot[0]);
    }
    for (const Item& item : outputs_)
        if (item.own) place(item);
    kernels<T>().run_arrays(program_.code(), slots.data(), lanes);
    for (const Item& item : outputs_)
        if (!item.direct || !whole)
            scatter(merged_.extent, item.array, first, count, slots[item.slot]);
}

template <class T>
void run_on_arrays(const Runner<T>& runner, const Merged& merged, int threads) {
    const OnArrays<T> program(runner.program(), merged);
    const std::int64_t total = merged.extent.count();
    const int width = pinned_width(runner);
    over_ranges(runner, width, block_count(total, width), threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    std::vector<T*> slots = program.begin(workspace);
                    each_block(low, high, width, total, [&](std::int64_t first, std::int64_t n) {
                        program.run(workspace, slots, first, n);
                    });
                });
}

// ---- in slots ---------------------------------------------------------------------------------

/// Elements in a block: up to 1,024 while the slots fit in the first-level cache, so that finding
/// the operands of a block costs little beside the arithmetic; fewer where there are no more.
template <class T>
int block_width(const Runner<T>& runner, std::int64_t total) {
    constexpr int least = 64 / sizeof(T), most = 1024;
    constexpr std::size_t cache_bytes = 32 * 1024;
    const std::size_t lane_bytes = sizeof(T) * runner.program().total_slots();
    int width = runner.width();
    while (width < most && 2 * static_cast<std::size_t>(width) * lane_bytes <= cache_bytes)
        width *= 2;
    while (width > least && width / 2 >= total) width /= 2;
    return width;
}

/// Every operand is gathered into its slot, every result scattered from its own: for programs with
/// loops, guards or functions from outside.
template <class T>
void run_in_slots(const Runner<T>& runner, const Merged& merged, int threads) {
    const Code& code = runner.program().code();
    const std::int64_t total = merged.extent.count();
    const int width = block_width(runner, total);
    const auto run = [&](const Workspace<T>& workspace, std::int64_t first, std::int64_t count) {
        for (std::uint32_t k = 0; k < code.input_count; ++k)
            if (code.inputs[k] != no_slot) {
                T* slot = workspace.slot(code.inputs[k]);
                gather(merged.extent, merged.arrays[k], first, count, slot);
                std::fill(slot + count, slot + width, slot[0]);
            }
        kernels<T>().lanes(code, workspace.slots(), width);
        for (std::uint32_t k = 0; k < code.output_count; ++k)
            scatter(merged.extent, merged.arrays[code.input_count + k], first, count,
                    workspace.slot(code.outputs[k]));
    };
    over_ranges(runner, width, block_count(total, width), threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    each_block(low, high, width, total, [&](std::int64_t first, std::int64_t n) {
                        run(workspace, first, n);
                    });
                });
}

}  // namespace

template <class T>
void pointwise(const Runner<T>& runner, const Extent& extent, std::span<const Strided> operands,
               std::span<const Strided> results, int threads) {
    if (extent.count() == 0) return;
    if (extent.count() < parallel_from / 4) threads = 1;
    const Merged merged = merge(extent, operands, results);
    if (const Runner<T>* pinned = runner.pinned()) return run_on_arrays(*pinned, merged, threads);
    run_in_slots(runner, merged, threads);
}

template void pointwise(const Runner<double>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);
template void pointwise(const Runner<float>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);

}  // namespace tapegrad
