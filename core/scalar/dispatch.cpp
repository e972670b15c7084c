// core/scalar/dispatch.cpp -- chooses the instruction set once, at first use.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "moves.h"
#include "processor.h"
#include "tiles.h"

namespace tapegrad {

#define TG_DECLARE(isa)                            \
    namespace isa {                                \
    extern const Kernels<double> kernels_double;   \
    extern const Kernels<float> kernels_float;     \
    extern const MoveKernels<double> moves_double; \
    extern const MoveKernels<float> moves_float;   \
    extern const SearchKernels searches;           \
    extern const Tiles<double> tiles_double;       \
    extern const Tiles<float> tiles_float;         \
    }
TG_FOR_EACH_ISA(TG_DECLARE)

namespace {

/// An instruction set with what only batches and descents need of it.
struct Variant : Isa {
    const MoveKernels<double>* moves64;
    const MoveKernels<float>* moves32;
    const SearchKernels* searches;
    const Tiles<double>* tiles64;
    const Tiles<float>* tiles32;
};

#define TG_ENTRY(isa)                                                                 \
    constexpr Variant isa##_isa = {{#isa, &isa::kernels_double, &isa::kernels_float}, \
                                   &isa::moves_double,                                \
                                   &isa::moves_float,                                 \
                                   &isa::searches,                                    \
                                   &isa::tiles_double,                                \
                                   &isa::tiles_float};
TG_FOR_EACH_ISA(TG_ENTRY)

const Isa* find(const char* name) {
    const Isa* list[4];
    int count = available_isas(list);
    for (int i = 0; i < count; ++i)
        if (std::strcmp(list[i]->name, name) == 0) return list[i];
    return nullptr;
}

const Isa* choose() {
    const char* wanted = std::getenv("TAPEGRAD_ISA");
    const Isa* named = wanted ? find(wanted) : nullptr;
    const Isa* list[4];
    available_isas(list);
    return named ? named : list[0];
}

std::atomic<const Isa*>& current() {
    static std::atomic<const Isa*> chosen{choose()};
    return chosen;
}

const Variant& variant() { return static_cast<const Variant&>(isa()); }

}  // namespace

int available_isas(const Isa* (&list)[4]) {
    int count = 0;
#define TG_ADD(isa) \
    if (can_run(InstructionSet::isa)) list[count++] = &isa##_isa;
    TG_FOR_EACH_ISA(TG_ADD)
    return count;
}

const Isa& isa() { return *current().load(std::memory_order_relaxed); }

bool set_isa(const char* name) {
    const Isa* found = find(name);
    if (found) current().store(found);
    return found;
}

template <>
const Kernels<double>& kernels<double>() {
    return *isa().f64;
}
template <>
const Kernels<float>& kernels<float>() {
    return *isa().f32;
}

template <>
const MoveKernels<double>& move_kernels<double>() {
    return *variant().moves64;
}
template <>
const MoveKernels<float>& move_kernels<float>() {
    return *variant().moves32;
}
const SearchKernels& search_kernels() { return *variant().searches; }
template <>
const Tiles<double>& tiles<double>() {
    return *variant().tiles64;
}
template <>
const Tiles<float>& tiles<float>() {
    return *variant().tiles32;
}

double fold(Op op, double a, double b) { return isa().f64->fold(op, a, b); }

std::uint32_t record_words(const Run& run, const Code& code) {
    if (run.kernel >= kernel_sumdot_small) {
        const std::uint32_t shape = run.kernel - kernel_sumdot_small;
        return 1 + shape / (small_terms + 1) + 2 * (shape % (small_terms + 1));
    }
    if (run.kernel >= kernel_sub_product) return 4;
    if (run.kernel >= op_count) return 3;
    switch (auto op = static_cast<Op>(run.kernel)) {
        case Op::where:
            return 4;
        case Op::sumdot:
            return 1 + run.n + 2 * run.m;
        case Op::prod:
        case Op::max:
        case Op::min:
        case Op::logsumexp:
        case Op::softmax:
            return 1 + run.n;
        case Op::softmax_vjp:
            return 2 + run.n;
        case Op::loop:
            return 1 + code.loops[run.m].operands;
        case Op::custom:
            return 1 + code.customs[run.m].operands;
        default:
            return 1 + static_cast<std::uint32_t>(info(op).arity);
    }
}

}  // namespace tapegrad
