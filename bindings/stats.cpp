// bindings/stats.cpp -- the figures of a compiled program, as explain() shows them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "compiled.h"

namespace tapegrad::bindings {

std::string kernel_name(const Run& run) {
    if (run.kernel == kernel_softplus_sigmoid) return "softplus+sigmoid";
    if (run.kernel == kernel_sincos) return "sin+cos";
    if (run.kernel == kernel_sub_product) return "sub product";
    if (run.kernel == kernel_product_sub) return "product sub";
    std::uint32_t plain = run.n, pairs = run.m;
    if (run.kernel >= kernel_sumdot_small) {
        plain = (run.kernel - kernel_sumdot_small) / (small_terms + 1);
        pairs = (run.kernel - kernel_sumdot_small) % (small_terms + 1);
    } else if (run.kernel != static_cast<int>(Op::sumdot)) {
        return info(static_cast<Op>(run.kernel)).name;
    }
    if (pairs == 0) return plain == 2 ? "add" : "sum" + std::to_string(plain);
    if (plain == 0) return pairs == 1 ? "mul" : "dot" + std::to_string(pairs);
    if (plain == 1 && pairs == 1) return "muladd";
    return "sum" + std::to_string(plain) + "+dot" + std::to_string(pairs);
}

namespace {

/// Whether a run shares vectors in a single evaluation.
bool is_packed(const Run& run) {
    if (run.form != run_independent || run.count < pack_from) return false;
    if (run.kernel >= op_count) return run.kernel < kernel_sub_product;
    const OpInfo& op = info(static_cast<Op>(run.kernel));
    return op.vector_pace && op.arity == 1;
}

}  // namespace

nb::dict stats(const Compiled& c) {
    const Program& program = *c.program;
    nb::dict counts, passes, out;
    const std::vector<Run> runs = program.runs();
    const auto lanes = static_cast<std::size_t>(c.is_double() ? kernels<double>().native_lanes
                                                              : kernels<float>().native_lanes);
    std::size_t packed = 0, packs = 0;
    for (const Run& run : runs) {
        if (is_packed(run)) {
            packed += run.count;
            packs += (run.count + lanes - 1) / lanes;
        }
        const std::string name = kernel_name(run);
        nb::str key(name.c_str());
        counts[key] = (counts.contains(key) ? nb::cast<std::size_t>(counts[key]) : 0) + run.count;
    }
    for (const auto& [name, seconds] : program.stats().passes) passes[name.c_str()] = seconds;
    const double instructions = program.stats().instructions;
    out["live_nodes"] = program.stats().live_nodes;
    out["instructions"] = program.stats().instructions;
    out["kernels"] = counts;
    out["runs"] = runs.size();
    out["mean_run"] = runs.empty() ? 0.0 : instructions / static_cast<double>(runs.size());
    out["packed"] = packed;
    out["pack_width"] = packs ? static_cast<double>(packed) / static_cast<double>(packs) : 0.0;
    out["slots"] = program.total_slots();
    out["code_bytes"] = program.code_bytes();
    std::visit(
        [&](const auto& runner) {
            out["lanes"] = runner->width();
            out["many_lanes"] = runner->many_width();
            out["lane_bytes"] = runner->workspace_bytes();
            out["point_code_bytes"] = runner->point_code_bytes();
            out["row_code_bytes"] = runner->row_code_bytes();
        },
        c.runner);
    out["passes"] = passes;
    out["isa"] = isa().name;
    return out;
}

}  // namespace tapegrad::bindings
