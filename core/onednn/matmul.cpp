// core/onednn/matmul.cpp -- products of matrices and of batches of them, float32.
#include "matmul.h"

#include <string>

namespace tapegrad::onednn {
namespace {

using dnnl::memory;

constexpr std::int64_t kind = 3;  ///< among the signatures of all plans

/// The steps of a tensor whose last two dimensions are contiguous, or are when they are swapped.
memory::dims steps(const memory::dims& sizes, bool transposed) {
    memory::dims out(sizes.size());
    std::int64_t step = 1;
    for (std::size_t d = sizes.size(); d-- > 0; step *= sizes[d]) out[d] = step;
    if (transposed) {
        const std::size_t last = sizes.size() - 1;
        out[last - 1] = 1;
        out[last] = sizes[last - 1];
    }
    return out;
}

memory::desc described(const memory::dims& sizes, bool transposed = false) {
    return {sizes, memory::data_type::f32, steps(sizes, transposed)};
}

template <class Batch>
memory::dims sizes(const Matmul& p, Batch batch, std::int64_t rows, std::int64_t columns) {
    memory::dims out;
    for (std::size_t d = 0; d < static_cast<std::size_t>(p.batch_dims); ++d)
        out.push_back(batch(d));
    out.push_back(rows);
    out.push_back(columns);
    return out;
}

memory::desc any_layout(const memory::desc& own) {
    return {own.get_dims(), memory::data_type::f32, memory::format_tag::any};
}

/// Thin products read their large operand once. oneDNN's first choice copies it into blocks before,
/// its second does not (a row of 1024 times 1024 x 2048: 471 and 147 us). With 7 or 8 rows and
/// more numbers than caches hold both take the same time, and half of it once they are packed.
bool is_thin(const Matmul& p) {
    const std::int64_t numbers = p.k * p.n;
    const std::int64_t few = numbers >= 8 * 1024 * 1024 ? 6 : 8;
    return p.batch_dims == 0 && (p.n == 1 || (p.m <= few && numbers >= 16 * 1024));
}

/// The implementation whose name begins with `wanted`, or the first one.
dnnl::matmul::primitive_desc implementation(const std::string& wanted, const memory::desc& a,
                                            const memory::desc& b, const memory::desc& bias,
                                            const memory::desc& y) {
    dnnl::matmul::primitive_desc found(engine(), a, b, bias, y, attributes());
    do {
        if (std::string(found.impl_info_str()).starts_with(wanted)) return found;
    } while (found.next_impl());
    return {engine(), a, b, bias, y, attributes()};
}

Plan make_plan(int threads, const Matmul& p, bool with_bias, bool keep_packed) {
    const auto a_own =
        described(sizes(p, [&](auto d) { return p.a_batch[d]; }, p.m, p.k), p.a_transposed != 0);
    const auto b_own =
        described(sizes(p, [&](auto d) { return p.b_batch[d]; }, p.k, p.n), p.b_transposed != 0);
    const auto y_own = described(sizes(p, [&](auto d) { return p.y_batch(d); }, p.m, p.n));
    const auto bias_own =
        with_bias ? described(sizes(p, [](auto) { return 1; }, 1, p.n)) : memory::desc();
    const auto desc = implementation(is_thin(p) ? "gemm" : "", a_own,
                                     keep_packed ? any_layout(b_own) : b_own, bias_own, y_own);
    const dnnl::matmul primitive(desc);
    Plan plan(threads);
    const auto a = plan.argument(a_own), b = plan.argument(b_own), y = plan.argument(y_own);
    const auto by = plan.packed(b, desc.weights_desc());
    if (with_bias)
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, a},
                   {DNNL_ARG_WEIGHTS, by},
                   {DNNL_ARG_DST, y},
                   {DNNL_ARG_BIAS, plan.argument(bias_own)}});
    else
        plan.step(primitive, desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, by}, {DNNL_ARG_DST, y}});
    return plan;
}

Signature signature(const Matmul& p, bool with_bias, bool keep_packed) {
    Signature s(p.flops(), {kind, with_bias, keep_packed, p.m, p.k, p.n, p.a_transposed,
                            p.b_transposed, p.batch_dims});
    for (std::size_t d = 0; d < static_cast<std::size_t>(p.batch_dims); ++d) {
        s.add(p.a_batch[d]);
        s.add(p.b_batch[d]);
    }
    return s;
}

}  // namespace

void matmul(const Matmul& problem, const float* a, const float* b, const float* bias, float* y,
            WeightKey key) {
    // a thin product would change its kernel, and so its bits, from the first use to the second
    key = is_thin(problem) ? WeightKey{}
                           : worth_keeping(key, b, 2 * kind + problem.b_transposed, problem.m);
    const bool keep_packed = key.weight != nullptr;
    Plan& plan = plan_for(signature(problem, bias, keep_packed), [&](int threads) {
        return make_plan(threads, problem, bias, keep_packed);
    });
    if (bias)
        plan.run({a, b, y, bias}, key);
    else
        plan.run({a, b, y}, key);
}

}  // namespace tapegrad::onednn
