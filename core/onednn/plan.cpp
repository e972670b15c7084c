// core/onednn/plan.cpp -- oneDNN primitives prepared for one problem.
#include "plan.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "buffer.h"
#include "threads.h"

namespace tapegrad::onednn {
namespace {

constexpr std::size_t max_plans = 1024;
/// About 4 us on one thread, twice what a second one takes to begin and end.
constexpr double parallel_flops = 1 << 18;

class Scratch {
   public:
    std::byte* at_least(std::size_t bytes) {
        if (bytes > size_) {
            buffer_.reset();  // the old one first: both at once would be the peak
            size_ = 0;
            buffer_ = allocate(bytes);
            size_ = bytes;
        }
        return buffer_.get();
    }
    void clear() {
        buffer_.reset();
        size_ = 0;
    }

   private:
    Buffer buffer_;
    std::size_t size_ = 0;
};

struct Hash {
    std::size_t operator()(const Signature& signature) const {
        std::uint64_t h = static_cast<std::uint64_t>(signature.threads);
        for (std::size_t i = 0; i < signature.count; ++i) {
            h = (h ^ static_cast<std::uint64_t>(signature.words[i])) * 0x9E3779B97F4A7C15u;
            h ^= h >> 32;
        }
        return h;
    }
};

thread_local Scratch scratch_memory;
thread_local std::unordered_map<Signature, Plan, Hash> plans;

std::mutex making_primitives;
[[maybe_unused]] const int fork_handler =
    pthread_atfork([] { making_primitives.lock(); }, [] { making_primitives.unlock(); },
                   [] { making_primitives.unlock(); });

dnnl_stream_t stream() {
    thread_local const dnnl::stream own(engine());
    return own.get();
}

void check(dnnl_status_t status) {
    if (status != dnnl_success) throw dnnl::error(status, "a primitive could not be executed");
}

/// oneDNN asks libgomp for its number of threads when a primitive is made, divides the work among
/// so many, and computes nonsense if it gets fewer when it runs: so they are asked for in both
/// places, and libgomp may not give fewer as the load of the machine rises (OMP_DYNAMIC).
class Threads {
   public:
    explicit Threads(int count) : before_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) {
        if (before_ != count) omp_set_num_threads(count);
        if (dynamic_) omp_set_dynamic(0);
    }
    ~Threads() {
        omp_set_num_threads(before_);
        if (dynamic_) omp_set_dynamic(1);
    }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

   private:
    int before_;
    bool dynamic_;
};

}  // namespace

const dnnl::engine& engine() {
    static const dnnl::engine only(dnnl::engine::kind::cpu, 0);
    return only;
}

dnnl::primitive_attr attributes() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
}

int threads_for(double flops) {
    if (flops < parallel_flops || omp_in_parallel() || omp_get_max_active_levels() < 1) return 1;
    return std::min(threads(), omp_get_thread_limit());
}

std::size_t plan_count() { return plans.size(); }

void release() {
    plans.clear();
    scratch_memory.clear();
}

Plan* find_plan(const Signature& signature) {
    const auto found = plans.find(signature);
    return found == plans.end() ? nullptr : &found->second;
}

Plan& keep_made(const Signature& signature, const std::function<Plan(int)>& make) {
    const int count = static_cast<int>(signature.threads);
    const std::lock_guard lock(making_primitives);
    const Threads threads(count);
    if (plans.size() >= max_plans) plans.clear();
    return plans.emplace(signature, make(count)).first->second;
}

// ---- plans ------------------------------------------------------------------------------------

Plan::Slot Plan::add(const dnnl::memory::desc& desc, bool is_argument) {
    memories_.push_back({dnnl::memory(desc, engine(), DNNL_MEMORY_NONE), is_argument, bytes_});
    return memories_.size() - 1;
}

Plan::Slot Plan::argument(const dnnl::memory::desc& desc) {
    arguments_.push_back(add(desc, true));
    return arguments_.back();
}

Plan::Slot Plan::scratch(const dnnl::memory::desc& desc) {
    const Slot slot = add(desc, false);
    bytes_ += rounded(desc.get_size(), alignment);
    return slot;
}

Plan::Slot Plan::in_layout(Slot to, const dnnl::memory::desc& wanted) {
    return memories_[to].memory.get_desc() == wanted ? to : scratch(wanted);
}

Plan::Slot Plan::reordered(Slot from, const dnnl::memory::desc& wanted) {
    const Slot to = in_layout(from, wanted);
    reorder(from, to);
    return to;
}

Plan::Slot Plan::packed(Slot from, const dnnl::memory::desc& wanted) {
    const Slot to = reordered(from, wanted);
    if (to != from) {
        packed_ = to;
        pack_step_ = steps_.size() - 1;
    }
    return to;
}

void Plan::reorder(Slot from, Slot to) {
    if (from == to) return;
    const dnnl::reorder::primitive_desc desc(engine(), memories_[from].memory.get_desc(), engine(),
                                             memories_[to].memory.get_desc(), attributes());
    step(dnnl::reorder(desc), desc.scratchpad_desc(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Plan::step(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                std::initializer_list<std::pair<int, Slot>> arguments) {
    Step step{primitive, {}};
    for (auto [name, slot] : arguments)
        step.arguments.push_back({name, memories_[slot].memory.get()});
    if (scratchpad.get_size() > 0)
        step.arguments.push_back(
            {DNNL_ARG_SCRATCHPAD, memories_[scratch(scratchpad)].memory.get()});
    steps_.push_back(std::move(step));
}

void Plan::execute(const Step& step) const {
    check(dnnl_primitive_execute(step.primitive.get(), stream(),
                                 static_cast<int>(step.arguments.size()), step.arguments.data()));
}

void Plan::run(std::initializer_list<const void*> arguments, const WeightKey& key) {
    std::byte* base = scratch_memory.at_least(bytes_);
    if (base != base_) {
        for (Memory& each : memories_)
            if (!each.is_argument) each.memory.set_data_handle(base + each.offset);
        base_ = base;
    }
    const Slot* slot = arguments_.data();
    for (const void* pointer : arguments)
        memories_[*slot++].memory.set_data_handle(const_cast<void*>(pointer));
    Copy copy;
    bool found = false;
    if (packed_ != none) {
        Memory& weight = memories_[packed_];
        const dnnl::memory::desc layout = weight.memory.get_desc();
        if (key.weight) copy = key.weight->find(key.use, key.version, layout);
        found = copy != nullptr;
        if (key.weight && !found) copy = key.weight->room(key.use, layout);
        weight.memory.set_data_handle(copy ? copy.get() : base + weight.offset);
    }
    const Threads threads(threads_);
    for (std::size_t i = 0; i < steps_.size(); ++i)
        if (!found || i != pack_step_) execute(steps_[i]);
    if (copy && !found)
        key.weight->keep(key.use, key.version, memories_[packed_].memory.get_desc(), copy);
}

}  // namespace tapegrad::onednn
