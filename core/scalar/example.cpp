// core/scalar/example.cpp -- the values that nodes have for example inputs.
#include "example.h"

#include "kernels.h"
#include "runner.h"

namespace tapegrad {

std::vector<double> evaluate_constants(const Graph& graph, std::span<const NodeId> nodes) {
    Runner<double> runner(Program::compile(graph, nodes, {}, false, {}));
    std::vector<double> values(nodes.size());
    runner.one(nullptr, values.data(), nullptr);
    return values;
}

void Example::set_input(std::uint32_t position, double value) {
    if (inputs_.size() <= position) inputs_.resize(position + 1);
    inputs_[position] = value;
}

std::optional<double> Example::value(const Graph& graph, NodeId id) {
    while (values_.size() <= id) {
        const auto next = static_cast<NodeId>(values_.size());
        if (has_projections(graph.op(next)))
            evaluate_several(graph, next);
        else
            values_.push_back(evaluate(graph, next));
    }
    return values_[id];
}

std::optional<double> Example::evaluate(const Graph& graph, NodeId id) const {
    const Op op = graph.op(id);
    if (op == Op::constant) return graph.constant_value(id);
    if (op == Op::input) {
        const std::uint32_t position = graph.node(id).a;
        return position < inputs_.size() ? inputs_[position] : std::nullopt;
    }
    const auto operands = graph.operands(id);
    for (NodeId operand : operands)
        if (!values_[operand]) return std::nullopt;
    if (op == Op::where) return *values_[*values_[operands[0]] != 0.0 ? operands[1] : operands[2]];
    if (!is_pooled(op))
        return fold(op, *values_[operands[0]], operands.size() > 1 ? *values_[operands[1]] : 0.0);
    Graph alone;
    std::vector<NodeId> constants;
    for (NodeId operand : operands) constants.push_back(alone.constant(*values_[operand]));
    const NodeId node[1] = {alone.copy(graph, id, constants)};
    return evaluate_constants(alone, node)[0];
}

/// A header has no value of its own; its results follow it.
void Example::evaluate_several(const Graph& graph, NodeId header) {
    const std::uint32_t results = graph.results(header);
    values_.resize(values_.size() + 1 + results);
    Graph alone;
    std::vector<NodeId> constants, nodes;
    for (NodeId operand : graph.operands(header)) {
        if (!values_[operand]) return;
        constants.push_back(alone.constant(*values_[operand]));
    }
    const NodeId twin = alone.copy(graph, header, constants);
    for (std::uint32_t i = 0; i < results; ++i) nodes.push_back(twin + 1 + i);
    const std::vector<double> found = evaluate_constants(alone, nodes);
    for (std::uint32_t i = 0; i < results; ++i) values_[header + 1 + i] = found[i];
}

}  // namespace tapegrad
