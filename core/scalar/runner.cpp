// core/scalar/runner.cpp -- evaluates a program at one point, or at many points in lanes and
// threads.
#include "runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tapegrad {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = 2 * 1024 * 1024;
constexpr int max_width = 256;
constexpr std::size_t round_bytes = 16 * 1024;
constexpr std::uint32_t tile = 8;
/// Rows whose outputs are summed as one piece, and partial sums within a piece.
constexpr std::size_t sum_piece = 1024;
constexpr std::size_t sum_lanes = 16;

std::size_t cache_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
    static const long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (size > 0) return static_cast<std::size_t>(size);
#endif
    return 512 * 1024;
}

/// Sum by halves, in index order, of `count` numbers `stride` apart.
template <class T>
T pairwise_sum(const T* values, std::size_t count, std::size_t stride) {
    if (count == 0) return T(0);
    if (count == 1) return values[0];
    std::size_t half = count / 2;
    return pairwise_sum(values, half, stride) +
           pairwise_sum(values + half * stride, count - half, stride);
}

}  // namespace

template <class T>
void Workspace<T>::Free::operator()(void* memory) const {
    std::free(memory);
}

template <class T>
Workspace<T>::Workspace(const Program& program, int width) : width_(width) {
    std::size_t bytes = sizeof(T) * program.total_slots() * static_cast<std::size_t>(width);
    // Large programs touch hundreds of pages in no order; as huge pages they stay in the TLB.
    const std::size_t alignment = bytes >= huge_page / 8 ? huge_page : cache_line;
    bytes = (bytes / alignment + 1) * alignment;
    memory_.reset(std::aligned_alloc(alignment, bytes));
    if (!memory_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (alignment == huge_page) madvise(memory_.get(), bytes, MADV_HUGEPAGE);
#endif
    slots_ = static_cast<T*>(memory_.get());
    std::fill_n(slots_, bytes / sizeof(T), T(0));
    const Code& code = program.code();
    for (std::uint32_t i = 0; i < code.constant_count; ++i)
        std::fill_n(slot(code.constants[i].slot), width, static_cast<T>(code.constants[i].value));
}

template <class T>
Runner<T>::Runner(std::shared_ptr<const Program> program) : program_(std::move(program)) {
    width_ = cache_line / sizeof(T);
    // The rounds of a loop work in the same slots again and again: those stay in the first cache.
    const std::size_t round = sizeof(T) * program_->round_slots();
    while (width_ < max_width && workspace_bytes() * 2 <= cache_bytes() &&
           round * static_cast<std::size_t>(width_) * 2 <= round_bytes)
        width_ *= 2;
}

template <class T>
std::unique_ptr<Workspace<T>> Runner<T>::take(int width) const {
    {
        std::lock_guard lock(mutex_);
        for (auto& idle : idle_)
            if (idle->width() == width) {
                auto found = std::move(idle);
                idle = std::move(idle_.back());
                idle_.pop_back();
                return found;
            }
    }
    return std::make_unique<Workspace<T>>(*program_, width);
}

template <class T>
void Runner<T>::give(std::unique_ptr<Workspace<T>> workspace) const {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
}

template <class T>
void Runner<T>::one(const T* x, T* values, T* derivatives) const {
    Lease workspace(*this, 1);
    const Code& code = program_->code();
    T* slots = workspace->slots();
    for (std::uint32_t i = 0; i < code.input_count; ++i)
        if (code.inputs[i] != no_slot) slots[code.inputs[i]] = x[i];
    kernels<T>().single(code, slots);
    const std::uint32_t split = program_->values();
    for (std::uint32_t i = 0; i < split; ++i) values[i] = slots[code.outputs[i]];
    for (std::uint32_t i = split; i < code.output_count; ++i)
        derivatives[i - split] = slots[code.outputs[i]];
}

template <class T>
void Runner<T>::block(const Workspace<T>& workspace, const InputRows<T>* inputs, std::size_t first,
                      std::size_t count) const {
    const Code& code = program_->code();
    const auto width = static_cast<std::size_t>(workspace.width());
    // In tiles of eight rows and eight inputs, which share cache lines: rows far apart fall on few
    // cache sets, and a line read for one input would be gone before the next one wants it.
    for (std::uint32_t low = 0; low < code.input_count; low += tile)
        for (std::size_t l = 0; l < width; l += tile)
            for (std::uint32_t i = low; i < std::min(code.input_count, low + tile); ++i) {
                if (code.inputs[i] == no_slot) continue;
                T* to = workspace.slot(code.inputs[i]) + l;
                const std::ptrdiff_t stride = inputs[i].stride;
                const T* from = inputs[i].data + static_cast<std::ptrdiff_t>(first) * stride;
                if (l + tile <= count) {
                    from += static_cast<std::ptrdiff_t>(l) * stride;
                    for (std::size_t k = 0; k < tile; ++k, from += stride) to[k] = *from;
                } else {
                    for (std::size_t k = 0; k < tile; ++k)
                        to[k] =
                            from[static_cast<std::ptrdiff_t>(std::min(l + k, count - 1)) * stride];
                }
            }
    kernels<T>().lanes(code, workspace.slots(), workspace.width());
}

/// Writes the outputs of `rows` rows that are not summed.
template <class T>
void Runner<T>::scatter(const Workspace<T>& workspace, const OutputRows<T>* outputs,
                        std::size_t first, std::size_t rows) const {
    const Code& code = program_->code();
    for (std::uint32_t low = 0; low < code.output_count; low += tile)
        for (std::size_t l = 0; l < rows; l += tile)
            for (std::uint32_t i = low; i < std::min(code.output_count, low + tile); ++i) {
                if (outputs[i].sum) continue;
                const T* from = workspace.slot(code.outputs[i]) + l;
                const std::ptrdiff_t stride = outputs[i].stride;
                T* to = outputs[i].data + static_cast<std::ptrdiff_t>(first + l) * stride;
                const std::size_t count = std::min<std::size_t>(tile, rows - l);
                for (std::size_t k = 0; k < count; ++k, to += stride) *to = from[k];
            }
}

template <class T>
void Runner<T>::rows(const InputRows<T>* inputs, const OutputRows<T>* outputs, std::size_t count,
                     int threads) const {
    const Code& code = program_->code();
    const auto width = static_cast<std::size_t>(width_);
    std::vector<std::uint32_t> summed;
    for (std::uint32_t i = 0; i < code.output_count; ++i)
        if (outputs[i].sum) summed.push_back(i);
    const std::size_t piece = summed.empty() ? width : sum_piece;
    const std::size_t pieces = (count + piece - 1) / piece;
    std::vector<T> partial(pieces * summed.size());

    auto run_piece = [&](const Workspace<T>& workspace, std::vector<T>& lanes, std::size_t p) {
        std::fill(lanes.begin(), lanes.end(), T(0));
        const std::size_t end = std::min(count, (p + 1) * piece);
        for (std::size_t first = p * piece; first < end; first += width) {
            const std::size_t rows = std::min(width, end - first);
            block(workspace, inputs, first, rows);
            scatter(workspace, outputs, first, rows);
            for (std::size_t s = 0; s < summed.size(); ++s) {
                const T* slot = workspace.slot(code.outputs[summed[s]]);
                for (std::size_t l = 0; l < rows; ++l)
                    lanes[s * sum_lanes + (first + l) % sum_lanes] += slot[l];
            }
        }
        for (std::size_t s = 0; s < summed.size(); ++s)
            partial[p * summed.size() + s] =
                pairwise_sum(lanes.data() + s * sum_lanes, sum_lanes, 1);
    };

    over_ranges(*this, width_, pieces, threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    std::vector<T> lanes(summed.size() * sum_lanes);
                    for (std::size_t p = low; p < high; ++p) run_piece(workspace, lanes, p);
                });
    for (std::size_t s = 0; s < summed.size(); ++s)
        *outputs[summed[s]].data = pairwise_sum(partial.data() + s, pieces, summed.size());
}

template class Workspace<double>;
template class Workspace<float>;
template class Runner<double>;
template class Runner<float>;

}  // namespace tapegrad
