// bindings/loops.cpp -- loops recorded from step functions: the native side of tg.scan.
#include "scalar/loops.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>

#include "compiled.h"

namespace tapegrad::bindings {
namespace {

nb::list vars_from(const std::shared_ptr<Graph>& graph, const std::vector<NodeId>& ids) {
    nb::list out;
    for (NodeId id : ids) out.append(make_var(graph, id));
    return out;
}

std::vector<NodeId> ids_in(const std::shared_ptr<Graph>& graph, nb::handle vars, const char* what) {
    std::vector<NodeId> ids;
    for (const Var* var : vars_of(vars, what).all) {
        if (var->graph != graph) raise_two_graphs("scan", var->graph, graph);
        ids.push_back(var->id);
    }
    return ids;
}

nb::list placeholders(const std::shared_ptr<Graph>& graph, std::uint32_t count) {
    std::vector<NodeId> ids;
    for (; count; --count) ids.push_back(graph->placeholder());
    return vars_from(graph, ids);
}

void leave_step(nb::handle arguments) {
    const Vars left = vars_of(arguments, "scan: arguments");
    if (left.all.empty()) return;
    const auto graph = left.all[0]->graph;
    graph->leave(ids_in(graph, arguments, "scan: arguments"));
}

/// Numbers as a table, row by row; none if there are no columns.
std::shared_ptr<const Table> table_of(nb::handle rows) {
    nb::object array = nb::steal(PyArray_FROMANY(rows.ptr(), NPY_DOUBLE, 2, 2, NPY_ARRAY_CARRAY));
    if (!array.is_valid()) throw nb::python_error();
    PyArrayObject* raw = array_of(array);
    if (PyArray_DIM(raw, 1) == 0) return nullptr;
    if (PyArray_DIM(raw, 0) > Graph::max_arity || PyArray_DIM(raw, 1) > Graph::max_arity)
        raise("ShapeError", "scan: more than 16,777,215 rows or columns of numbers; scan parts");
    const auto* data = static_cast<const double*>(PyArray_DATA(raw));
    return std::make_shared<const Table>(
        Table{static_cast<std::uint32_t>(PyArray_DIM(raw, 1)), {data, data + PyArray_SIZE(raw)}});
}

nb::list record_scan(nb::handle arguments, nb::handle outputs, nb::handle carried,
                     nb::handle stepped, nb::handle table, std::uint32_t count,
                     std::uint32_t limit) {
    const Vars first = vars_of(arguments, "scan: arguments");
    if (first.all.empty()) raise("ShapeError", "scan: expected at least one argument, got none");
    const auto graph = first.all[0]->graph;
    const auto places = ids_in(graph, arguments, "scan: arguments"),
               ends = ids_in(graph, outputs, "scan: outputs");
    LoopOperands operands{
        ids_in(graph, carried, "scan: carry"), {}, ids_in(graph, stepped, "scan: xs"), no_node};
    Rounds rounds{nullptr,
                  static_cast<std::uint32_t>(operands.carried.size()),
                  0,
                  0,
                  table_of(table),
                  std::max(limit, 2u)};
    const std::uint32_t columns = rounds.table ? rounds.table->columns : 0;
    rounds.stepped = count ? static_cast<std::uint32_t>(operands.stepped.size() / count) : 0;
    const bool fits = places.size() == rounds.carried + rounds.stepped + columns &&
                      operands.stepped.size() == std::size_t{count} * rounds.stepped &&
                      ends.size() >= rounds.carried && !ends.empty() &&
                      (!rounds.table || rounds.table->rows() >= count);
    if (!fits) raise("ShapeError", "scan: arguments, outputs and operands do not fit together");
    if (std::any_of(places.begin(), places.end(),
                    [&](NodeId id) { return !graph->is_placeholder(id); }))
        raise("GraphError", "scan: expected arguments made for it, got other Vars");
    rounds.outputs = static_cast<std::uint32_t>(ends.size()) - rounds.carried;
    const std::uint64_t most = std::max(rounds.outputs, rounds.stepped);
    if (most * count > Graph::max_arity)
        raise("ShapeError",
              "scan: more than 16,777,215 operands or outputs of all steps together; "
              "sum outputs up in the carry");
    rounds.body = close_body(*graph, places, rounds.carried, ends, operands.shared);
    if (rounds.table) operands.start = graph->constant(0.0);
    return vars_from(graph, record_rounds(*graph, rounds, count, std::move(operands)));
}

/// Records a loop: `body` maps carried and shared values to the carried values of the next round.
nb::list record_loop(const Compiled& body, std::uint32_t count, nb::handle carried,
                     nb::handle shared) {
    const Vars first = vars_of(carried, "loop: carried");
    const auto results = static_cast<std::uint32_t>(first.all.size());
    if (!results) raise("ShapeError", "loop: expected at least one carried value, got none");
    const auto graph = first.all[0]->graph;
    std::vector<NodeId> ids = ids_in(graph, carried, "loop: carried");
    for (NodeId id : ids_in(graph, shared, "loop: shared")) ids.push_back(id);
    if (body.inputs() != ids.size() || body.values() != results || body.with_gradient)
        raise("ShapeError", "loop: expected a body with " + std::to_string(ids.size()) +
                                " inputs, " + std::to_string(results) +
                                " outputs and no derivatives");
    if (!body.program->guards().empty())
        raise("GraphError", "loop: expected a body without frozen branches; use tg.where in it");
    const NodeId header = graph->loop({count, results, 0, 0, body.program, nullptr}, ids);
    std::vector<NodeId> out;
    for (std::uint32_t i = 0; i < results; ++i) out.push_back(header + 1 + i);
    return vars_from(graph, out);
}

/// What a node of a loop repeats, as Vars of a graph of its own, and how it is fed.
nb::dict loop_parts(const Var& var) {
    const NodeId header =
        var.graph->op(var.id) == Op::projection ? var.graph->node(var.id).a : var.id;
    if (var.graph->op(header) != Op::loop)
        raise("GraphError", "loop_parts: expected a Var of a loop, got another");
    const Loop& loop = var.graph->loop_of(header);
    const LoopOperands in = split(loop, var.graph->operands(header));
    nb::dict out;
    out["carried"] = vars_from(var.graph, in.carried);
    out["shared"] = vars_from(var.graph, in.shared);
    out["stepped"] = vars_from(var.graph, in.stepped);
    out["start"] = in.start == no_node ? nb::none() : make_var(var.graph, in.start);
    nb::list table;
    if (loop.table)
        for (double value : loop.table->values) table.append(value);
    out["table"] = table;
    out["columns"] = loop.columns();
    out["direction"] = loop.backward ? -1 : 1;
    out["count"] = loop.count;
    out["first_step"] = loop.first_step;
    out["steps"] = loop.steps;
    out["body"] = opened(*loop.body);
    return out;
}

}  // namespace

void bind_loops(nb::module_& m) {
    m.def("placeholders", &placeholders, nb::arg("graph"), nb::arg("count"),
          nb::sig("def placeholders(graph: Graph, count: int) -> list[Var]"),
          "Arguments for a step function that record_scan takes.");
    m.def("leave_step", &leave_step, nb::arg("arguments"),
          nb::sig("def leave_step(arguments: collections.abc.Sequence[Var]) -> None"),
          "Says that the step function was called: nothing else may depend on its arguments.");
    m.def(
        "record_scan", &record_scan, nb::arg("arguments"), nb::arg("outputs"), nb::arg("carried"),
        nb::arg("stepped"), nb::arg("table"), nb::arg("count"), nb::arg("limit"),
        nb::sig("def record_scan(arguments: collections.abc.Sequence[Var], outputs: "
                "collections.abc.Sequence[Var], carried: collections.abc.Sequence[Var], stepped: "
                "collections.abc.Sequence[Var], table: numpy.typing.ArrayLike, count: int, limit: "
                "int) -> list[Var]"),
        "Records rounds of a step: carried values at the end, then the results of all rounds.");
    m.def("loop_parts", &loop_parts, nb::arg("var"),
          nb::sig("def loop_parts(var: Var) -> dict[str, typing.Any]"),
          "Operands of a loop, its numbers, and its body as Vars: outputs, wrt, inputs.");
    m.def("record_loop", &record_loop, nb::arg("body"), nb::arg("count"), nb::arg("carried"),
          nb::arg("shared") = nb::make_tuple(),
          nb::sig("def record_loop(body: Program, count: int, carried: "
                  "collections.abc.Sequence[Var], shared: collections.abc.Sequence[Var] = ()) -> "
                  "list[Var]"),
          "Records `count` rounds of a compiled body; returns the carried values at the end.");
}

}  // namespace tapegrad::bindings
