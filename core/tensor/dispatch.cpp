// core/tensor/dispatch.cpp -- chooses the instruction set of the tensor kernels, at first use.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "processor.h"

namespace tapegrad {
namespace {

struct Variant {
    const char* name;
    InstructionSet set;
    TensorKernels<float> f32;
    TensorKernels<double> f64;
};

}  // namespace

#define TG_DECLARE(isa)                \
    namespace isa {                    \
    TG_TABLES(float) TG_TABLES(double) \
    }
#define TG_TABLES(real)                               \
    extern const ReduceKernels<real> reduce_##real;   \
    extern const SoftmaxKernels<real> softmax_##real; \
    extern const RandomKernels<real> random_##real;   \
    extern const NormKernels<real> norm_##real;       \
    extern const PoolKernels<real> pool_##real;       \
    extern const GemmKernels<real> gemm_##real;
#define TG_VARIANT(isa) \
    {#isa, InstructionSet::isa, TG_KERNELS(isa, float), TG_KERNELS(isa, double)},
#define TG_KERNELS(isa, real)                                        \
    {&isa::reduce_##real, &isa::softmax_##real, &isa::random_##real, \
     &isa::norm_##real,   &isa::pool_##real,    &isa::gemm_##real}
TG_FOR_EACH_ISA(TG_DECLARE)

namespace {

const Variant variants[] = {TG_FOR_EACH_ISA(TG_VARIANT)};

/// The one of that name, or without a name the best; nullptr if there is none.
const Variant* find(const char* name) {
    for (const Variant& variant : variants)
        if (can_run(variant.set) && (!name || std::strcmp(variant.name, name) == 0))
            return &variant;
    return nullptr;
}

const Variant* choose() {
    const Variant* named = find(std::getenv("TAPEGRAD_ISA"));
    return named ? named : find(nullptr);
}

std::atomic<const Variant*>& current() {
    static std::atomic<const Variant*> chosen{choose()};
    return chosen;
}

const Variant& variant() { return *current().load(std::memory_order_relaxed); }

}  // namespace

template <>
const TensorKernels<float>& tensor_kernels<float>() {
    return variant().f32;
}
template <>
const TensorKernels<double>& tensor_kernels<double>() {
    return variant().f64;
}

bool set_tensor_isa(const char* name) {
    const Variant* found = find(name);
    if (found) current().store(found);
    return found;
}

const char* tensor_isa() { return variant().name; }

}  // namespace tapegrad
