// core/tensor/pointwise.cpp -- operations over strided, broadcast arrays.
#include "pointwise.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "blocks.h"
#include "integers.h"
#include "maps.h"
#include "processor.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// The operations whose text makes sense for whole numbers.
#define TG_INTEGER_OPS(X) \
    X(neg)                \
    X(add)                \
    X(sub)                \
    X(mul)                \
    X(square)             \
    X(relu)               \
    X(abs)                \
    X(sign)               \
    X(floor)              \
    X(ceil)               \
    X(trunc)              \
    X(round) X(floor_divide) X(remainder) X(minimum) X(maximum) X(lt) X(le) X(gt) X(ge) X(eq) X(ne)

constexpr bool is_integer_op(Op op) {
    switch (op) {
#define X(name) case Op::name:
        TG_INTEGER_OPS(X)
#undef X
        return true;
        default:
            return false;
    }
}

template <class T>
void map_integers(Op op, const T* first, const T* second, T* y, std::size_t n) {
    using namespace integers;
    switch (op) {
#define TG_LOOP(name, value)                                                 \
    case Op::name:                                                           \
        if constexpr (is_integer_op(Op::name))                               \
            for (std::size_t i = 0; i < n; ++i) {                            \
                [[maybe_unused]] const Integer<T> a(first[i]), b(second[i]); \
                y[i] = number<T>(value);                                     \
            }                                                                \
        break;
#define OP1(name, pace, domain, ulp, doc, oracle, value, da) TG_LOOP(name, value)
#define OP2(name, pace, domain, ulp, doc, oracle, value, da, db) TG_LOOP(name, value)
#include "../scalar/ops.def"
#undef OP1
#undef OP2
#undef TG_LOOP
        default:
            break;
    }
}

template <class T>
void map(Op op, const T* a, const T* b, T* y, std::size_t n) {
    if constexpr (std::is_floating_point_v<T>)
        maps<T>().op[static_cast<std::size_t>(op)](a, b, y, n);
    else
        map_integers(op, a, b, y, n);
}

template <class T>
void where(const T* c, const T* a, const T* b, T* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = c[i] != T(0) ? a[i] : b[i];
}

template <class T>
void map_bits(BitOp op, const T* a, const T* b, T* y, std::size_t n) {
    switch (op) {
        case BitOp::both:
            for (std::size_t i = 0; i < n; ++i) y[i] = a[i] & b[i];
            break;
        case BitOp::either:
            for (std::size_t i = 0; i < n; ++i) y[i] = a[i] | b[i];
            break;
        case BitOp::one:
            for (std::size_t i = 0; i < n; ++i) y[i] = a[i] ^ b[i];
            break;
    }
}

/// Calls body with a value of the C++ type behind `type`, which is not boolean.
template <class Body>
void with_number(DType type, Body body) {
    with_type(type, [&](auto value) {
        if constexpr (!std::is_same_v<decltype(value), bool>) body(value);
    });
}

/// Calls body(first, count) for blocks of [0, total) of at most `size`, over threads.
template <class Body>
void over_blocks(std::int64_t total, std::int64_t size, int threads, Body body) {
    const std::size_t blocks = block_count(total, size);
    const auto run = [&](std::size_t low, std::size_t high) {
        each_block(low, high, size, total, body);
    };
    // Counting the cores asks the system, which takes longer than a small array.
    const int count = total < parallel_from ? 1 : thread_count(threads);
    if (count <= 1) return run(0, blocks);
#pragma omp parallel num_threads(count)
    {
        const auto part = static_cast<std::size_t>(omp_get_thread_num()),
                   parts = static_cast<std::size_t>(omp_get_num_threads());
        run(blocks * part / parts, blocks * (part + 1) / parts);
    }
}

/// The most operands an operation has.
constexpr std::size_t most = 3;

/// Room for a block of each operand and of the result.
template <class T>
struct alignas(64) Blocks {
    T of[most + 1][block_size];
};

/// Runs loop(pointers to a block of each operand and of the result, elements) over all blocks.
template <class T, class Loop>
void run(const Merged& merged, int threads, Loop loop) {
    const std::size_t operands = merged.arrays.size() - 1;
    const Strided& result = merged.arrays.back();
    const std::int64_t total = merged.extent.count();
    if (total == 0) return;
    bool direct[most + 1], single[most + 1] = {};
    Blocks<T> singles;  // operands that are one number: filled once, for all blocks and threads
    for (std::size_t i = 0; i <= operands; ++i) {
        const Strided& array = merged.arrays[i];
        direct[i] = array.type == dtype_of<T>() && is_dense(merged.extent, array);
        single[i] = i < operands && !direct[i] && is_single(merged.extent, array);
        if (single[i]) gather(merged.extent, array, 0, std::min(total, block_size), singles.of[i]);
    }
    over_blocks(total, block_size, threads, [&](std::int64_t first, std::int64_t count) {
        Blocks<T> buffers;
        T* at[most + 1];
        for (std::size_t i = 0; i <= operands; ++i) {
            const Strided& array = merged.arrays[i];
            at[i] = direct[i]   ? reinterpret_cast<T*>(array.data) + first
                    : single[i] ? singles.of[i]
                                : buffers.of[i];
            if (!direct[i] && !single[i] && i < operands)
                gather(merged.extent, array, first, count, at[i]);
        }
        loop(at, static_cast<std::size_t>(count));
        if (!direct[operands]) scatter(merged.extent, result, first, count, at[operands]);
    });
}

}  // namespace

bool works_on_integers(Op op) { return op == Op::where || is_integer_op(op); }

void pointwise(Op op, DType compute, const Extent& extent, std::span<const Strided> operands,
               const Strided& result, int threads) {
    const Merged merged = merge(extent, operands, {&result, 1});
    const std::size_t arity = operands.size();
    with_number(compute, [&](auto type) {
        using T = decltype(type);
        run<T>(merged, threads, [&](T* const* at, std::size_t n) {
            if (op == Op::where)
                where(at[0], at[1], at[2], at[3], n);
            else
                map(op, at[0], at[arity - 1], at[arity], n);
        });
    });
}

void pointwise(BitOp op, DType compute, const Extent& extent, std::span<const Strided> operands,
               const Strided& result, int threads) {
    const Merged merged = merge(extent, operands, {&result, 1});
    with_number(compute, [&](auto type) {
        using T = decltype(type);
        if constexpr (std::is_integral_v<T>)
            run<T>(merged, threads,
                   [&](T* const* at, std::size_t n) { map_bits(op, at[0], at[1], at[2], n); });
    });
}

void pointwise(Op op, DType compute, std::int64_t count, const char* a, const char* b, char* y,
               int threads) {
    with_number(compute, [&](auto type) {
        using T = decltype(type);
        const auto *first = reinterpret_cast<const T*>(a), *second = reinterpret_cast<const T*>(b);
        over_blocks(count, block_size, threads, [&](std::int64_t from, std::int64_t n) {
            map(op, first + from, second + from, reinterpret_cast<T*>(y) + from,
                static_cast<std::size_t>(n));
        });
    });
}

// ---- which instruction set --------------------------------------------------------------------

#define TG_DECLARE(isa)                    \
    namespace isa {                        \
    extern const Maps<double> maps_double; \
    extern const Maps<float> maps_float;   \
    }
TG_FOR_EACH_ISA(TG_DECLARE)

namespace {

struct IsaMaps {
    const char* name;
    const Maps<double>* f64;
    const Maps<float>* f32;
};

#define TG_ENTRY(isa) {#isa, &isa::maps_double, &isa::maps_float},
constexpr IsaMaps all_maps[] = {TG_FOR_EACH_ISA(TG_ENTRY)};

const IsaMaps& chosen() {
    const char* name = isa().name;
    for (const IsaMaps& each : all_maps)
        if (std::strcmp(each.name, name) == 0) return each;
    return all_maps[std::size(all_maps) - 1];
}

}  // namespace

template <>
const Maps<double>& maps<double>() {
    return *chosen().f64;
}
template <>
const Maps<float>& maps<float>() {
    return *chosen().f32;
}

}  // namespace tapegrad
