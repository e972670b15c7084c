// core/tensor/pointwise.cpp -- operations and scalar programs over strided, broadcast arrays.
#include "pointwise.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include "integers.h"
#include "maps.h"
#include "processor.h"
#include "threads.h"

namespace tapegrad {
namespace {

/// Elements computed at a time: three operands of doubles stay in the first-level cache.
constexpr std::int64_t block_size = 1024;

// ---- moving blocks ----------------------------------------------------------------------------

/// Dimensions that lie behind one another in every operand are one: fewer, longer rows.
struct Merged {
    Extent extent;
    std::vector<Strided> arrays;
};

Merged merge(const Extent& extent, std::span<const Strided> operands,
             std::span<const Strided> results) {
    Merged out;
    out.arrays.assign(operands.begin(), operands.end());
    out.arrays.insert(out.arrays.end(), results.begin(), results.end());
    int last = -1;  // the dimension that the next one may join
    for (int d = 0; d < extent.ndim; ++d) {
        const std::int64_t size = extent.sizes[d];
        if (size == 1) continue;
        const bool joins =
            last >= 0 && std::all_of(out.arrays.begin(), out.arrays.end(), [&](const Strided& a) {
                return a.strides[last] == a.strides[d] * size;
            });
        const int to = joins ? last : ++last;
        for (Strided& array : out.arrays) array.strides[to] = array.strides[d];
        out.extent.sizes[to] = joins ? out.extent.sizes[to] * size : size;
    }
    out.extent.ndim = last + 1;
    return out;
}

/// Whether the array's elements lie in the order of the result without gaps.
bool is_dense(const Extent& extent, const Strided& array) {
    return extent.ndim == 0 ||
           (extent.ndim == 1 && array.strides[0] == static_cast<std::int64_t>(size_of(array.type)));
}

/// Whether all elements are one and the same.
bool is_single(const Extent& extent, const Strided& array) {
    return std::all_of(array.strides, array.strides + extent.ndim,
                       [](std::int64_t stride) { return stride == 0; });
}

/// Calls body(data, stride, count, done) for the rows and parts of rows of elements
/// [first, first + count); `done` elements came before.
template <class Body>
void each_row(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
              Body body) {
    if (extent.ndim == 0) return body(array.data, std::int64_t{0}, count, std::int64_t{0});
    const int inner = extent.ndim - 1;
    std::int64_t index[max_dims], rest = first;
    char* data = array.data;
    for (int d = inner; d >= 0; --d) {
        index[d] = rest % extent.sizes[d];
        rest /= extent.sizes[d];
        data += index[d] * array.strides[d];
    }
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t n = std::min(extent.sizes[inner] - index[inner], count - done);
        body(data, array.strides[inner], n, done);
        done += n;
        index[inner] += n;
        data += n * array.strides[inner];
        for (int d = inner; d > 0 && index[d] == extent.sizes[d]; --d) {
            data += array.strides[d - 1] - index[d] * array.strides[d];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}

/// Unaligned where a foreign array is.
template <class S>
S read(const char* at) {
    S value;
    std::memcpy(&value, at, sizeof(S));
    return value;
}

template <class T>
void gather(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
            T* to) {
    with_type(array.type, [&](auto type) {
        using S = decltype(type);
        using Stored = std::conditional_t<std::is_same_v<S, bool>, std::uint8_t, S>;
        const auto cast = [](Stored value) {
            if constexpr (std::is_same_v<S, bool>) return static_cast<T>(value != 0);
            return static_cast<T>(value);
        };
        each_row(extent, array, first, count,
                 [&](const char* data, std::int64_t stride, std::int64_t n, std::int64_t done) {
                     T* out = to + done;
                     if (stride == 0) return void(std::fill_n(out, n, cast(read<Stored>(data))));
                     if (stride == sizeof(Stored)) {
                         if constexpr (std::is_same_v<S, T>)
                             return void(std::memcpy(out, data, sizeof(T) * std::size_t(n)));
                         for (std::int64_t i = 0; i < n; ++i)
                             out[i] = cast(read<Stored>(data + i * std::int64_t(sizeof(Stored))));
                         return;
                     }
                     for (std::int64_t i = 0; i < n; ++i)
                         out[i] = cast(read<Stored>(data + i * stride));
                 });
    });
}

template <class T>
void scatter(const Extent& extent, const Strided& array, std::int64_t first, std::int64_t count,
             const T* from) {
    with_type(array.type, [&](auto type) {
        using S = decltype(type);
        each_row(
            extent, array, first, count,
            [&](char* data, std::int64_t stride, std::int64_t n, std::int64_t done) {
                if constexpr (std::is_same_v<S, T>)
                    if (stride == sizeof(S))
                        return void(std::memcpy(data, from + done, sizeof(T) * std::size_t(n)));
                for (std::int64_t i = 0; i < n; ++i) {
                    const auto value = std::is_same_v<S, bool>
                                           ? static_cast<S>(from[done + i] != T(0))
                                           : static_cast<S>(from[done + i]);
                    std::memcpy(data + i * stride, &value, sizeof(S));
                }
            });
    });
}

// ---- one operation ----------------------------------------------------------------------------

/// The operations whose text makes sense for whole numbers.
#define TG_INTEGER_OPS(X) \
    X(neg)                \
    X(add)                \
    X(sub)                \
    X(mul)                \
    X(square)             \
    X(relu)               \
    X(abs) X(sign) X(floor) X(ceil) X(minimum) X(maximum) X(lt) X(le) X(gt) X(ge) X(eq) X(ne)

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
    const std::int64_t blocks = (total + size - 1) / size;
    const auto run = [&](std::int64_t low, std::int64_t high) {
        for (std::int64_t i = low; i < high; ++i) body(i * size, std::min(size, total - i * size));
    };
    // Counting the cores asks the system, which takes longer than a small array.
    const int count = total < parallel_from ? 1 : thread_count(threads);
    if (count <= 1) return run(0, blocks);
#pragma omp parallel num_threads(count)
    {
        const std::int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
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

template <class T>
void run(Op op, const Merged& merged, int threads) {
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
        const auto n = static_cast<std::size_t>(count);
        if (op == Op::where)
            where(at[0], at[1], at[2], at[3], n);
        else
            map(op, at[0], at[operands - 1], at[operands], n);
        if (!direct[operands]) scatter(merged.extent, result, first, count, at[operands]);
    });
}

}  // namespace

bool works_on_integers(Op op) { return op == Op::where || is_integer_op(op); }

void pointwise(Op op, DType compute, const Extent& extent, std::span<const Strided> operands,
               const Strided& result, int threads) {
    const Merged merged = merge(extent, operands, {&result, 1});
    with_number(compute, [&](auto type) { run<decltype(type)>(op, merged, threads); });
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

// ---- programs ---------------------------------------------------------------------------------

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

template <class T>
void pointwise(const Runner<T>& runner, const Extent& extent, std::span<const Strided> operands,
               std::span<const Strided> results, int threads) {
    const Merged merged = merge(extent, operands, results);
    const Code& code = runner.program().code();
    const std::int64_t total = extent.count();
    const int width = block_width(runner, total);
    const std::int64_t blocks = (total + width - 1) / width;
    if (total < parallel_from / 4) threads = 1;
    over_ranges(runner, width, static_cast<std::size_t>(blocks), threads,
                [&](const Workspace<T>& workspace, std::size_t low, std::size_t high) {
                    for (std::size_t i = low; i < high; ++i) {
                        const std::int64_t first = static_cast<std::int64_t>(i) * width;
                        const std::int64_t count = std::min<std::int64_t>(width, total - first);
                        for (std::uint32_t k = 0; k < code.input_count; ++k)
                            if (code.inputs[k] != no_slot) {
                                T* slot = workspace.slot(code.inputs[k]);
                                gather(merged.extent, merged.arrays[k], first, count, slot);
                                std::fill(slot + count, slot + width, slot[0]);
                            }
                        kernels<T>().lanes(code, workspace.slots(), width);
                        for (std::uint32_t k = 0; k < code.output_count; ++k)
                            scatter(merged.extent, merged.arrays[operands.size() + k], first, count,
                                    workspace.slot(code.outputs[k]));
                    }
                });
}

template void pointwise(const Runner<double>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);
template void pointwise(const Runner<float>&, const Extent&, std::span<const Strided>,
                        std::span<const Strided>, int);

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
