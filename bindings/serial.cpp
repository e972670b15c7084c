// bindings/serial.cpp -- programs as bytes, and as a listing that other languages are written from.
#include "scalar/serial.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "compiled.h"
#include "scalar/lower.h"

namespace tapegrad::bindings {
namespace {

const char* kernel_name(std::uint32_t kernel) {
    if (kernel == kernel_softplus_sigmoid) return "softplus_sigmoid";
    if (kernel == kernel_sincos) return "sincos";
    if (kernel == kernel_sub_product) return "sub_product";
    if (kernel == kernel_product_sub) return "product_sub";
    return info(kernel < op_count ? static_cast<Op>(kernel) : Op::sumdot).name;
}

nb::tuple instruction(const Lowered& lowered, const Instruction& i) {
    nb::list operands;
    for (std::uint32_t w = 0; w < i.words; ++w) operands.append(lowered.operands[i.operands + w]);
    return nb::make_tuple(kernel_name(i.kernel), i.first_result, i.results, i.n, i.m, operands);
}

nb::dict listing_of(const Program& program);

nb::dict loop_listing(const Loop& loop) {
    nb::dict out;
    out["count"] = loop.count;
    out["carried"] = loop.carried;
    out["shared"] = loop.shared();
    out["stepped"] = loop.stepped;
    out["outputs"] = loop.outputs;
    out["columns"] = loop.columns();
    nb::list table;
    if (loop.table)
        for (double value : loop.table->values) table.append(value);
    out["table"] = table;
    out["backward"] = loop.backward;
    out["body"] = listing_of(*loop.body);
    return out;
}

nb::dict listing_of(const Program& program) {
    const Expanded nodes = program.expanded();
    const Lowered lowered = lower(nodes.graph, nodes.targets, nodes.positions,
                                  static_cast<std::uint32_t>(program.input_names().size()));
    nb::list inputs, constants, instructions, outputs, loops;
    for (ValueId input : lowered.inputs)
        inputs.append(input == no_value ? nb::none() : nb::cast(input));
    for (const SlotValue& constant : lowered.constants)
        constants.append(nb::make_tuple(constant.slot, constant.value));
    for (const Instruction& i : lowered.instructions) instructions.append(instruction(lowered, i));
    for (ValueId output : lowered.outputs) outputs.append(output);
    for (const Loop* loop : lowered.loops) loops.append(loop_listing(*loop));
    nb::dict out;
    out["inputs"] = inputs;
    out["constants"] = constants;
    out["instructions"] = instructions;
    out["outputs"] = outputs;
    out["loops"] = loops;
    return out;
}

}  // namespace

nb::tuple opened(const Program& program) {
    const Opened found = program.open();
    const auto vars = [&](const std::vector<NodeId>& ids) {
        nb::list out;
        for (NodeId id : ids) out.append(make_var(found.graph, id));
        return out;
    };
    return nb::make_tuple(vars(found.outputs), vars(found.wrt), vars(found.inputs));
}

void restore(Compiled* self, const nb::bytes& record) {
    Saved saved = read_record({record.c_str(), record.size()});
    new (self) Compiled{make_runner(saved.program, !saved.is_float), saved.program, saved.scalar,
                        saved.with_gradient, std::move(saved.wrt_input)};
}

nb::bytes record(const Compiled& c) {
    const std::string bytes =
        write_record({c.program, !c.is_double(), c.scalar, c.with_gradient, c.wrt_input});
    return nb::bytes(bytes.data(), bytes.size());
}

nb::dict listing(const Compiled& c) { return listing_of(*c.program); }

nb::list input_names(const Compiled& c) {
    nb::list out;
    for (const std::string& name : c.program->input_names()) out.append(decoded(name));
    return out;
}

}  // namespace tapegrad::bindings
