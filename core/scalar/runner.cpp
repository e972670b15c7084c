// core/scalar/runner.cpp -- evaluates a program at one point, or at many points in lanes and
// threads.
#include "runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <string>

#include "../locks.h"

namespace tapegrad {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = 2 * 1024 * 1024;
constexpr int max_width = 256;
constexpr std::size_t round_bytes = 16 * 1024;
/// Cache lines of a slot in blocks of many rows, and what these blocks may take of the third-level
/// cache, of which they leave three quarters to other cores.
constexpr int many_lines = 4;
constexpr std::size_t most_shared_cache = 5 * 1024 * 1024;
/// Blocks for each thread that make many rows: the last one, filled up, is one of so many.
constexpr std::size_t many_blocks = 4;
/// The most machine code: beyond 20 MB it comes from memory, and gains little in batches.
constexpr std::size_t most_code = 64 * 1024 * 1024;
/// Evaluations after which machine code is made: it takes about as long as it saves by then.
constexpr std::size_t many_points = 200, many_rows = 1000;

std::size_t cache_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
    static const long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (size > 0) return static_cast<std::size_t>(size);
#endif
    return 512 * 1024;
}

std::size_t shared_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
    static const long size = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (size > 0) return std::min(static_cast<std::size_t>(size) / 4, most_shared_cache);
#endif
    return 0;
}

/// Machine code can be forbidden by TAPEGRAD_MACHINE_CODE=0.
bool may_assemble() {
    static const char* wanted = std::getenv("TAPEGRAD_MACHINE_CODE");
    return !wanted || std::string(wanted) != "0";
}

template <class T>
void run_point_piece(void* slots, const Piece& piece) {
    kernels<T>().run_single(piece.code, static_cast<T*>(slots));
}

template <class T>
void run_row_piece(void* slots, const Piece& piece) {
    kernels<T>().run_lanes(piece.code, static_cast<T*>(slots), static_cast<int>(least_width<T>));
}

/// What `all` has for these shared inputs, made if need be: not under the lock, which is for
/// moments.
template <class Made, class Make>
const Made* find_or_make(std::map<std::vector<char>, std::unique_ptr<Made>>& all,
                         const std::vector<char>& shared, Make make) {
    {
        std::lock_guard lock(lock_of(&all));
        if (const auto found = all.find(shared); found != all.end()) return found->second.get();
    }
    std::unique_ptr<Made> made = make();
    std::lock_guard lock(lock_of(&all));
    return all.try_emplace(shared, std::move(made)).first->second.get();
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
    const ProgramStats& stats = program_->stats();
    const bool long_runs = stats.instructions >= std::uint64_t{8} * stats.runs;
    const std::size_t lane = sizeof(T) * program_->total_slots(),
                      round = sizeof(T) * program_->round_slots();
    const auto widest = [&](int width, int most, std::size_t room) {
        // The rounds of a loop work in the same slots again and again: those stay in the first
        // cache.
        while (width < most && lane * static_cast<std::size_t>(width) * 2 <= room &&
               round * static_cast<std::size_t>(width) * 2 <= round_bytes)
            width *= 2;
        return width;
    };
    const int least = static_cast<int>(least_width<T>);
    width_ = widest(least, max_width, long_runs ? cache_bytes() / 8 * 3 : cache_bytes());
    // Instructions of one vector wait for each other's results, and jumps from run to run of a
    // large program are more than the processor learns: it pays to have several vectors between,
    // even if that takes the third-level cache.
    many_width_ = std::max(width_, widest(least, many_lines * least, shared_cache_bytes()));
    // Machine code keeps values in registers; its slots are wide where that takes little of the
    // first-level cache, since lanes then cost less to fill.
    row_lanes_ = static_cast<int>(least_width<T>);
    if (program_->functions()) return;  // kernels are called for whole slots
    while (row_lanes_ < max_width &&
           sizeof(T) * program_->total_slots() * static_cast<std::size_t>(row_lanes_) * 2 <=
               round_bytes)
        row_lanes_ *= 2;
}

template <class T>
std::unique_ptr<Workspace<T>> Runner<T>::take(int width) const {
    {
        std::lock_guard lock(lock_of(this));
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
    std::lock_guard lock(lock_of(this));
    idle_.push_back(std::move(workspace));
}

template <class T>
int Runner<T>::width_for(std::size_t rows, int threads) const {
    const auto blocks = many_blocks * static_cast<std::size_t>(thread_count(threads));
    int width = many_width_;
    while (width > width_ && rows < blocks * static_cast<std::size_t>(width)) width /= 2;
    return width;
}

template <class T>
int Runner<T>::lanes_for(std::size_t starts, int threads) const {
    if (program_->code().machine) return width_;
    const auto blocks = static_cast<std::size_t>(thread_count(threads));
    auto lanes =
        static_cast<std::size_t>(program_->is_plain() ? row_lanes_ : width_for(starts, threads));
    while (lanes > least_width<T> && (starts <= lanes / 2 || (starts + lanes - 1) / lanes < blocks))
        lanes /= 2;
    return static_cast<int>(lanes);
}

template <class T>
auto Runner<T>::machine(int lanes) const -> Machine& {
    return machines_[static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(lanes)) - 1)];
}

template <class T>
void Runner<T>::make(Machine& machine, int lanes) const {
    machine.isa = &isa();
    const std::string name = machine.isa->name;
    if (!may_assemble() || (name != "avx512" && name != "avx2")) return;
    const Shape shape = lanes == 1 ? Shape::scalar : name == "avx512" ? Shape::whole : Shape::half;
    const Target target{shape, sizeof(T) == sizeof(double),
                        static_cast<std::uint32_t>(sizeof(T)) * static_cast<std::uint32_t>(lanes),
                        lanes == 1 ? run_point_piece<T> : run_row_piece<T>};
    auto program = program_->assembled(target, most_code);
    if (!program) return;
    machine.runner = std::make_unique<Runner>(std::move(program));
    machine.runner->width_ = machine.runner->many_width_ = lanes;
    machine.made.store(machine.runner.get(), std::memory_order_release);
}

template <class T>
void Runner<T>::make_once(Machine& machine, int lanes, bool waits) const {
    struct Done {
        std::atomic<int>& maker;
        ~Done() {
            maker.store(tried, std::memory_order_release);
            maker.notify_all();
        }
    };
    const int self = getpid();
    int maker = machine.maker.load(std::memory_order_acquire);
    while (maker != tried) {
        if (maker == self) {
            if (!waits) return;
            machine.maker.wait(maker, std::memory_order_acquire);
            maker = machine.maker.load(std::memory_order_acquire);
        } else if (machine.maker.compare_exchange_strong(maker, self)) {
            // Of nobody, or of a thread that was lost in a fork.
            const Done done{machine.maker};
            return make(machine, lanes);
        }
    }
}

template <class T>
const Runner<T>& Runner<T>::in_lanes(int lanes, std::size_t count) const {
    if (!program_->is_plain()) return *this;
    Machine& machine = this->machine(lanes);
    if (const Runner* made = machine.made.load(std::memory_order_acquire))
        return machine.isa == &isa() ? *made : *this;
    if (machine.maker.load(std::memory_order_relaxed) == tried) return *this;
    const std::size_t before = machine.asked.load(std::memory_order_relaxed);
    const std::size_t many = lanes == 1 ? many_points : many_rows;
    machine.asked.store(before + count, std::memory_order_relaxed);
    if (before + count < many) return *this;
    make_once(machine, lanes, count >= many);
    const Runner* made = machine.made.load(std::memory_order_acquire);
    return made && machine.isa == &isa() ? *made : *this;
}

template <class T>
std::size_t Runner<T>::code_bytes(int lanes) const {
    const Runner* made = machine(lanes).made.load(std::memory_order_acquire);
    return made ? made->program().code_bytes() : 0;
}

template <class T>
void Runner<T>::one(const T* x, T* values, T* derivatives) const {
    if (const Runner& other = in_lanes(1, 1); &other != this)
        return other.one(x, values, derivatives);
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
void Runner<T>::rows(const InputRows<T>* inputs, const OutputRows<T>* outputs, std::size_t count,
                     int threads) const {
    std::vector<std::uint32_t> summed;
    const std::uint32_t output_count = program_->code().output_count;
    if (output_count && outputs[0].sum) summed.reserve(output_count);
    for (std::uint32_t i = 0; i < output_count; ++i)
        if (outputs[i].sum) summed.push_back(i);
    std::vector<T> totals(summed.size());
    in_parts(inputs, count, [&](const Runner& runner, const InputRows<T>* all) {
        const Scatter<T> scatter(runner.program().code(), outputs);
        const auto collect = [&](const RowBlock<T>& block, T* sums) {
            scatter.write(block.workspace.lanes(), block.first, block.rows);
            for (std::size_t s = 0; s < summed.size(); ++s)
                add_rows(block.output(summed[s]), block.first, block.rows, sums + s * sum_lanes);
        };
        runner.sum_pieces(all, count, threads, totals, collect);
    });
    for (std::size_t s = 0; s < summed.size(); ++s) *outputs[summed[s]].data = totals[s];
}

template <class T>
const Runner<T>* Runner<T>::pinned(const std::vector<char>& shared) const {
    return find_or_make(pinned_, shared, [&]() -> std::unique_ptr<Runner> {
        auto program = program_->pinned(shared);
        return program ? std::make_unique<Runner>(std::move(program)) : nullptr;
    });
}

template <class T>
auto Runner<T>::parts_for(const InputRows<T>* inputs) const -> const Parts* {
    std::vector<char> shared;
    for (std::uint32_t i = 0; i < program_->code().input_count; ++i)
        shared.push_back(inputs[i].stride == 0);
    if (std::find(shared.begin(), shared.end(), char(true)) == shared.end()) return nullptr;
    return find_or_make(parts_, shared, [&]() -> std::unique_ptr<Parts> {
        const Split found = split(*program_, shared);
        if (!found.rows) return nullptr;
        return std::unique_ptr<Parts>(new Parts{Runner(found.shared), Runner(found.rows)});
    });
}

template <class T>
std::vector<InputRows<T>> Runner<T>::with_shared(const Parts& parts, const InputRows<T>* inputs,
                                                 std::vector<T>& values) {
    const std::uint32_t count = parts.shared.program().code().input_count;
    std::vector<InputRows<T>> out(inputs, inputs + count);
    std::vector<T> x;
    for (const InputRows<T>& input : out) x.push_back(input.stride ? T(0) : *input.data);
    values.resize(parts.shared.program().values());
    parts.shared.one(x.data(), values.data(), nullptr);
    for (const T& value : values) out.push_back({&value, 0});
    return out;
}

template class Workspace<double>;
template class Workspace<float>;
template class Runner<double>;
template class Runner<float>;

}  // namespace tapegrad
