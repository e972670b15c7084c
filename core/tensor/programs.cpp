// core/tensor/programs.cpp -- scalar programs over strided, broadcast arrays.
#include <algorithm>
#include <vector>

#include "blocks.h"
#include "reach.h"
#include "threads.h"

namespace tapegrad {
namespace {

// ---- on arrays --------------------------------------------------------------------------------

/// What a block of all slots that change from lane to lane may take. It has to stay in the
/// first-level cache together with what is fetched ahead, and large arrays begin at pages, so their
/// blocks want the same few places there. Steps on a million floats, by bytes in a block, us:
///
///                                4 KB   6 KB   8 KB   12 KB
///     SGD with momentum           216    200    197     184
///     Adam                        600    585    640     700
///     Adam with amsgrad           800    720    900    1200
///     RMSprop, all options        900    900   1200    1550
constexpr std::size_t block_bytes = 6 * 1024;

/// Elements in a block: enough that finding an instruction costs little beside running it, unless
/// the program is a large one, whose slots are to stay in the second-level cache.
template <class T>
int pinned_width(const Runner<T>& runner, std::size_t uniform_slots) {
    constexpr std::size_t line = 64 / sizeof(T), enough = 8 * line, most = block_size;
    const std::size_t least = std::min(enough, static_cast<std::size_t>(runner.width()));
    const std::size_t slots = runner.program().total_slots() - uniform_slots;
    const std::size_t fit = block_bytes / (sizeof(T) * std::max<std::size_t>(slots, 1));
    return static_cast<int>(std::clamp(fit / line * line, least, most));
}

/// A pinned program over blocks of arrays. Its slots lie in the arrays where these have the type
/// and order of the result; else they are gathered to, or scattered from, a workspace.
template <class T>
class OnArrays {
   public:
    OnArrays(const Program& program, const Merged& merged, const std::vector<char>& shared);
    /// Slots of constants and of inputs that are one number.
    std::size_t uniform_slots() const { return program_.code().constant_count + shared_.size(); }
    /// Where all slots lie; numbers that all elements share are in place.
    std::vector<T*> begin(const Workspace<T>& workspace) const;
    /// Computes elements [first, first + count).
    void run(const Workspace<T>& workspace, std::vector<T*>& slots, std::int64_t first,
             std::int64_t count) const;

   private:
    struct Item {
        const Strided& array;
        std::uint32_t slot;
    };

    void add_input(std::size_t k, bool shared);
    void add_output(std::size_t k);
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
    /// Whole vectors of elements, and fewer than one: the latter with all slots in the workspace.
    void run_whole(std::vector<T*>& slots, std::int64_t first, std::int64_t count) const;
    void run_rest(const Workspace<T>& workspace, std::vector<T*>& slots, std::int64_t first,
                  std::int64_t count) const;

    const Program& program_;
    const Merged& merged_;
    std::vector<Item> inputs_, outputs_, shared_;
    std::vector<Item> direct_, gathered_, scattered_;  ///< of inputs and outputs
};

template <class T>
OnArrays<T>::OnArrays(const Program& program, const Merged& merged, const std::vector<char>& shared)
    : program_(program), merged_(merged) {
    for (std::size_t k = 0; k < program.code().input_count; ++k)
        if (program.code().inputs[k] != no_slot) add_input(k, shared[k]);
    for (std::size_t k = 0; k < program.code().output_count; ++k) add_output(k);
}

template <class T>
void OnArrays<T>::add_input(std::size_t k, bool shared) {
    const Item item{merged_.arrays[k], program_.code().inputs[k]};
    if (shared) return shared_.push_back(item);
    inputs_.push_back(item);
    const bool direct = is_direct(item.array) && !is_overwritten(k);
    (direct ? direct_ : gathered_).push_back(item);
}

template <class T>
void OnArrays<T>::add_output(std::size_t k) {
    const Item item{results()[k], program_.code().outputs[k]};
    outputs_.push_back(item);
    const bool has_slot = program_.lifetimes().writes[k] != at_end;
    const bool direct = has_slot && is_direct(item.array) && is_alone(k);
    (direct ? direct_ : scattered_).push_back(item);
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
    const std::int64_t rest = count % kernels<T>().native_lanes, whole = count - rest;
    if (whole) run_whole(slots, first, whole);
    if (rest) run_rest(workspace, slots, first + whole, rest);
}

template <class T>
void OnArrays<T>::run_whole(std::vector<T*>& slots, std::int64_t first, std::int64_t count) const {
    for (const Item& item : direct_)
        slots[item.slot] = reinterpret_cast<T*>(item.array.data) + first;
    for (const Item& item : gathered_)
        gather(merged_.extent, item.array, first, count, slots[item.slot]);
    kernels<T>().run_arrays(program_.code(), slots.data(), static_cast<int>(count));
    for (const Item& item : scattered_)
        scatter(merged_.extent, item.array, first, count, slots[item.slot]);
}

template <class T>
void OnArrays<T>::run_rest(const Workspace<T>& workspace, std::vector<T*>& slots,
                           std::int64_t first, std::int64_t count) const {
    const int lanes = kernels<T>().native_lanes;
    for (const Item& item : direct_) slots[item.slot] = workspace.slot(item.slot);
    for (const Item& item : inputs_) {
        T* slot = slots[item.slot];
        gather(merged_.extent, item.array, first, count, slot);
        std::fill(slot + count, slot + lanes, slot[0]);
    }
    kernels<T>().run_arrays(program_.code(), slots.data(), lanes);
    for (const Item& item : outputs_)
        scatter(merged_.extent, item.array, first, count, slots[item.slot]);
}

template <class T>
void run_on_arrays(const Runner<T>& runner, const Merged& merged, const std::vector<char>& shared,
                   int threads) {
    const OnArrays<T> program(runner.program(), merged, shared);
    const std::int64_t total = merged.extent.count();
    const int width = pinned_width(runner, program.uniform_slots());
    over_ranges(runner, width, block_count(total, width), threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    std::vector<T*> slots = program.begin(workspace);
                    each_block(low, high, width, total, [&](std::int64_t first, std::int64_t n) {
                        program.run(workspace, slots, first, n);
                    });
                });
}

/// Which of the first `count` arrays are one number for all elements.
std::vector<char> shared_of(const Merged& merged, std::size_t count) {
    std::vector<char> out;
    for (std::size_t k = 0; k < count; ++k)
        out.push_back(is_single(merged.extent, merged.arrays[k]));
    return out;
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

/// Every operand is gathered into its slot, every result scattered from its own: for few elements,
/// and for programs with loops, guards or functions from outside.
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
    // To find out what lies where takes longer than to copy a few elements.
    if (extent.count() < block_size) return run_in_slots(runner, merged, threads);
    const std::vector<char> shared = shared_of(merged, operands.size());
    if (const Runner<T>* pinned = runner.pinned(shared))
        return run_on_arrays(*pinned, merged, shared, threads);
    run_in_slots(runner, merged, threads);
}

template void pointwise(const Runner<double>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);
template void pointwise(const Runner<float>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);

}  // namespace tapegrad
