// core/onednn/plan.h -- oneDNN primitives prepared for one problem, and a cache of them per thread.
//
// 1. A plan is made once per problem (sizes, layout, threads) and replayed: its primitives, their
//    memories and argument lists exist before the first run. A run sets a few pointers and calls
//    the C interface: a product of 1x1 matrices takes 0.9 us, seen from Python.
// 2. Everything here belongs to one thread: plans and scratch memory. So nothing is locked but the
//    making of primitives, whose cache inside oneDNN is one for the process; a fork waits for that
//    lock, and finds it free in the child.
// 3. Scratch memory (oneDNN's own, and tensors in layouts that only the plan knows) is one buffer
//    that grows to the largest plan. Its pages stay mapped: fresh ones cost more than a reorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "packed.h"

namespace tapegrad::onednn {

/// Threads for so much work: a small piece is done before a second thread has woken up. Never more
/// than libgomp would give.
int threads_for(double flops);
/// Plans that this thread keeps.
std::size_t plan_count();
/// Frees this thread's plans and scratch memory.
void release();

/// What a plan is made for. Equal signatures give equal bits.
struct Signature {
    std::int64_t threads;
    std::array<std::int64_t, 32> words{};
    std::size_t count = 0;

    Signature(double flops, std::initializer_list<std::int64_t> first)
        : threads(threads_for(flops)) {
        for (std::int64_t word : first) add(word);
    }
    void add(std::int64_t word) { words[count++] = word; }
    bool operator==(const Signature&) const = default;
};

class Plan {
   public:
    using Slot = std::size_t;

    explicit Plan(int threads) : threads_(threads) {}

    /// A tensor of the caller's; run() takes them in the order of these calls.
    Slot argument(const dnnl::memory::desc& desc);
    /// A tensor in scratch memory.
    Slot scratch(const dnnl::memory::desc& desc);
    /// The tensor in `wanted`: itself, or a copy in scratch memory.
    Slot reordered(Slot from, const dnnl::memory::desc& wanted);
    /// The same for a weight, whose copy may be kept from run to run.
    Slot packed(Slot from, const dnnl::memory::desc& wanted);
    /// Where a step may write what is to arrive in `to`; finished by reorder(slot, to).
    Slot in_layout(Slot to, const dnnl::memory::desc& wanted);
    /// Copies one tensor to another, unless they are the same.
    void reorder(Slot from, Slot to);
    void step(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
              std::initializer_list<std::pair<int, Slot>> arguments);

    /// With a key, the packed weight is taken from what was kept, or kept.
    void run(std::initializer_list<const void*> arguments, const WeightKey& key = {});

   private:
    struct Memory {
        dnnl::memory memory;
        bool is_argument;
        std::size_t offset;  ///< in scratch memory
    };
    struct Step {
        dnnl::primitive primitive;
        std::vector<dnnl_exec_arg_t> arguments;
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    Slot add(const dnnl::memory::desc& desc, bool is_argument);
    void execute(const Step& step) const;

    int threads_;
    std::vector<Memory> memories_;
    std::vector<Slot> arguments_;
    std::vector<Step> steps_;
    std::size_t bytes_ = 0;            ///< of scratch memory
    const std::byte* base_ = nullptr;  ///< of scratch memory when it was last bound
    std::size_t pack_step_ = none;     ///< the reorder that packs the weight
    Slot packed_ = none;
};

const dnnl::engine& engine();
/// Scratch memory is the plan's.
dnnl::primitive_attr attributes();

/// This thread's plan, or null.
Plan* find_plan(const Signature& signature);
/// Makes a plan for so many threads and keeps it. Beyond a limit all are forgotten first: programs
/// that come to this have new shapes all the time, and no order of use would help them.
Plan& keep_made(const Signature& signature, const std::function<Plan(int threads)>& make);

/// The plan for a signature, made when it is first asked for.
template <class Make>
Plan& plan_for(const Signature& signature, Make make) {
    if (Plan* found = find_plan(signature)) return *found;
    return keep_made(signature, make);
}

}  // namespace tapegrad::onednn
