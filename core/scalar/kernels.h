// core/scalar/kernels.h -- the border between a compiled program and the code that runs it.
//
// A program's code is one stream of words: 16 bits wide if all its numbers fit, else 32. Memory is
// what large programs wait for, and their code is read once per evaluation or block of lanes: in
// 16 bits the code of the 10,000-operation chain takes 0.4 MB; as records of 16 bytes and 32-bit
// operands it took 1.1 MB, more than the cache that its values have to share.
//
// The stream is a sequence of runs. A run is `count` instructions of one kernel and one shape, so
// it is dispatched once:
//
//   kernel [, count] [, traits] [, n, m], then the records
//
// The count is left out if it is 1; traits stand in runs whose records have operands in common
// (traits.h), n and m in runs of kernels with any number of operands. A record is its result, then
// operands, all of them slot numbers; a slot holds one value per lane. Any number of results lie in
// consecutive slots, of which the record has the first:
//
//   elementwise      out, a [, b]            where        out, c, a, b
//   sumdot           out, n plain terms, m pairs
//   prod max min logsumexp                   out, n operands
//   softmax          out, n operands         softmax_vjp  out, y (n in a row), n of g
//   paired           out, out, a             loop custom  out, operands; n: results, m: which one
//   sub_product product_sub                  out, a, b, c
//
// execute.cpp and execute_arrays.cpp are compiled once per instruction set and number type; this
// header is all they share with the rest, and what functions it has are evaluated while compiling
// (a weak symbol kept from the AVX-512 object would be an illegal instruction on an older CPU).
#pragma once

#include <cstdint>

#include "ops.h"

namespace tapegrad {

/// Sums of products with up to this many plain terms and pairs have unrolled kernels of their own.
constexpr int small_terms = 4;

/// In a single evaluation, so many independent instructions of a costly function or more share
/// vectors (packs); fewer are faster one by one.
constexpr std::uint32_t pack_from = 3;

/// Kernels that are no graph operation of their own.
enum Kernel : std::uint16_t {
    kernel_softplus_sigmoid = op_count,
    kernel_sincos,
    kernel_sub_product,   ///< a - b c
    kernel_product_sub,   ///< a b - c
    kernel_sumdot_small,  ///< + n * (small_terms + 1) + m
    kernel_count = kernel_sumdot_small + (small_terms + 1) * (small_terms + 1)
};

/// A run's first word is its kernel plus one of these times kernel_count.
enum RunForm : std::uint32_t {
    run_alone,        ///< one instruction; no count follows
    run_dependent,    ///< some instruction needs another's result
    run_independent,  ///< none does
    run_traits,       ///< all have traits, which follow the count; either of the above
    run_forms
};

/// Whether runs of this kernel carry n and m.
constexpr bool is_open(std::uint32_t kernel) {
    return kernel < op_count && is_pooled(static_cast<Op>(kernel));
}

/// Whether the kernel's results lie in a row of slots.
constexpr bool has_row(std::uint32_t kernel) {
    return kernel < op_count && has_projections(static_cast<Op>(kernel));
}

/// A run, taken out of the stream.
struct Run {
    std::uint32_t kernel;
    RunForm form;
    std::uint32_t count, n, m;
    std::uint32_t header;  ///< words before the records
};

struct SlotValue {
    std::uint32_t slot;
    double value;
};

constexpr std::uint32_t no_slot = 0xffffffff;

struct LoopCode;
struct CustomCode;

/// A condition that must be what it was when the graph was recorded.
struct GuardSlot {
    std::uint32_t slot;
    bool taken;
    const struct Guard* guard;
};

/// A view of a program's code; the Program owns what it points to.
struct Code {
    const void *begin, *end;  ///< the stream
    bool wide;                ///< of 32-bit words
    const LoopCode* loops;
    const CustomCode* customs;
    const SlotValue* constants;  ///< slots that nothing overwrites
    std::uint32_t constant_count;
    const std::uint32_t* inputs;  ///< slot of each input, no_slot if unused
    std::uint32_t input_count;
    const std::uint32_t* outputs;  ///< slot of each output
    std::uint32_t output_count;
    std::uint32_t slots;  ///< of the program itself; bodies of loops use slots behind them
    const GuardSlot* guards;
    std::uint32_t guard_count;
    bool calls;  ///< functions from outside, which may fail
    /// Machine code instead of a stream (assemble.h), or nullptr. One call computes so many bytes
    /// of each slot, from the address on that it is given.
    void (*machine)(void* slots);
    std::uint32_t machine_bytes;
};

/// A loop (see Loop in graph.h): operands are carried values, shared ones, those of each round, and
/// with a table the number of its first row.
struct LoopCode {
    std::uint32_t count;
    std::uint32_t carried, shared, stepped, outputs;
    std::uint32_t operands;  ///< all of them
    std::uint32_t columns;   ///< of the table; 0 without one
    std::uint32_t rows;
    const double* table;
    bool backward;  ///< through the table
    const Code* body;
};

/// One call of a function from outside: where its operands and results lie.
struct CustomCall {
    void* slots;
    int width;
    bool is_float;
    const void* record;  ///< first result, then operands: slot numbers
    bool wide;           ///< of 32 bits
    std::uint32_t operands, results;
};

/// A function from outside. `call` does not throw: what fails is reported (checks.h).
struct CustomCode {
    std::uint32_t operands;
    void (*call)(const void* self, const CustomCall& call);
    const void* self;
};

/// One instruction set's code for one number type.
template <class T>
struct Kernels {
    int native_lanes;
    void (*run_lanes)(const Code& code, T* slots, int width);
    /// Runs a pinned program's code over `lanes` lanes, a multiple of native_lanes, of slots that
    /// lie anywhere (program.h).
    void (*run_arrays)(const Code& code, T* const* slots, int lanes);
    void (*run_single)(const Code& code, T* slots);
    /// One elementwise operation on numbers.
    T (*fold)(Op op, T a, T b);

    // Defined in checks.cpp: what they run is checked after it, so no caller can forget it.
    /// Runs the code over `width` lanes, a power of two and at least native_lanes.
    void lanes(const Code& code, T* slots, int width) const;
    /// Runs the code over one lane; runs of independent costly instructions share vectors.
    void single(const Code& code, T* slots) const;
};

/// An instruction set's kernels and name ("avx512", "avx2", "baseline", "neon").
struct Isa {
    const char* name;
    const Kernels<double>* f64;
    const Kernels<float>* f32;
};

/// The instruction set in use: the best this CPU has, or the one TAPEGRAD_ISA names.
const Isa& isa();
/// Those this CPU can run, best first.
int available_isas(const Isa* (&list)[4]);
/// Chooses by name; false if there is none of that name here.
bool set_isa(const char* name);

template <class T>
const Kernels<T>& kernels();
template <>
const Kernels<double>& kernels<double>();
template <>
const Kernels<float>& kernels<float>();

/// One elementwise operation on numbers, as the programs compute it.
double fold(Op op, double a, double b);
/// Words of one instruction's record.
std::uint32_t record_words(const Run& run, const Code& code);

}  // namespace tapegrad
