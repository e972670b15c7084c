// bindings/derivatives.cpp -- derivatives as nodes, by rows and by columns, dense and sparse.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "numpy.h"
#include "python.h"
#include "scalar/compressed.h"
#include "scalar/derive.h"
#include "scalar/push.h"

namespace tapegrad::bindings {
namespace {

/// The nodes of Vars, all of one graph; `graph` is that one once it is known. What depends on an
/// argument of a scan's step has no derivative outside of it.
std::vector<NodeId> nodes_of(const char* op, const Vars& vars, std::shared_ptr<Graph>& graph) {
    std::vector<NodeId> ids;
    for (const Var* var : vars.all) {
        if (!graph) graph = var->graph;
        if (graph != var->graph) raise_two_graphs(op, graph, var->graph);
        ids.push_back(var->id);
    }
    if (graph) graph->check_left(ids);
    return ids;
}

nb::list as_vars(const std::shared_ptr<Graph>& graph, const std::vector<NodeId>& ids) {
    nb::list out;
    for (NodeId id : ids) out.append(make_var(graph, id));
    return out;
}

nb::list gradient(const Var& output, nb::handle wrt) {
    std::shared_ptr<Graph> graph = output.graph;
    const Vars vars = vars_of(wrt, "grad: wrt");
    const std::vector<NodeId> ids = nodes_of("grad", vars, graph);
    const NodeId of[1] = {output.id};
    graph->check_left(of);
    const Graph::Hiding hiding(*graph);
    return as_vars(graph, derive(*graph, of, ids)[0]);
}

nb::list apart(nb::handle vars) {
    std::shared_ptr<Graph> graph;
    const Vars all = vars_of(vars, "derivative of a function");
    std::vector<NodeId> ids = nodes_of("derivative of a function", all, graph);
    for (NodeId& id : ids) id = graph->apart(id);
    return as_vars(graph, ids);
}

nb::list tangents(nb::handle outputs, nb::handle wrt, nb::handle seeds) {
    std::shared_ptr<Graph> graph;
    const Vars of = vars_of(outputs, "jvp: outputs"), by = vars_of(wrt, "jvp: wrt");
    const std::vector<NodeId> ends = nodes_of("jvp", of, graph),
                              starts = nodes_of("jvp", by, graph);
    const nb::object items = items_of(seeds, "jvp: expected a sequence of Vars and numbers");
    if (PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(starts.size()))
        raise("ShapeError", "jvp: expected a tangent for each of " + std::to_string(starts.size()) +
                                " variables, got " + std::to_string(PyTuple_GET_SIZE(items.ptr())));
    std::vector<NodeId> directions;
    for (nb::handle item : items) {
        Operand operand;
        if (!to_operand(item.ptr(), operand))
            raise("DTypeError",
                  "jvp: tangents are Vars and numbers, got a " + type_name(item.ptr()));
        if (operand.var && operand.var->graph != graph)
            raise_two_graphs("jvp", graph, operand.var->graph);
        directions.push_back(operand.in(*graph));
    }
    if (ends.empty()) return nb::list();
    const Graph::Hiding hiding(*graph);
    return as_vars(graph, push(*graph, ends, starts, directions));
}

// ---- sparse derivatives -----------------------------------------------------------------------

nb::object array_of_indices(const std::vector<std::uint32_t>& values) {
    npy_intp size = static_cast<npy_intp>(values.size());
    nb::object array = nb::steal(PyArray_SimpleNew(1, &size, NPY_INT32));
    if (!array.is_valid()) throw nb::python_error();
    if (size)
        std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), values.data(),
                    values.size() * sizeof(std::uint32_t));
    return array;
}

/// Rows and columns of the entries, the entries themselves, and the sweeps that gave them.
nb::tuple as_python(const std::shared_ptr<Graph>& graph, const SparseNodes& matrix) {
    const Pattern& pattern = matrix.pattern;
    std::vector<std::uint32_t> rows;
    rows.reserve(pattern.columns.size());
    for (std::uint32_t row = 0; row < pattern.rows(); ++row)
        rows.insert(rows.end(), pattern.row(row).size(), row);
    return nb::make_tuple(array_of_indices(rows), array_of_indices(pattern.columns),
                          array_of_vars(graph, matrix.values), matrix.sweeps);
}

nb::tuple jacobian(nb::handle outputs, nb::handle wrt, std::optional<bool> forward) {
    std::shared_ptr<Graph> graph;
    const Vars of = vars_of(outputs, "jacobian: outputs"), by = vars_of(wrt, "jacobian: wrt");
    const std::vector<NodeId> ends = nodes_of("jacobian", of, graph);
    const std::vector<NodeId> starts = nodes_of("jacobian", by, graph);
    if (!graph) return as_python(graph, {});
    const Graph::Hiding hiding(*graph);
    return as_python(graph, sparse_jacobian(*graph, ends, starts, forward));
}

nb::tuple hessian(const Var& output, nb::handle wrt) {
    std::shared_ptr<Graph> graph = output.graph;
    const Vars by = vars_of(wrt, "hessian: wrt");
    const std::vector<NodeId> starts = nodes_of("hessian", by, graph);
    graph->check_left(std::span(&output.id, 1));
    const Graph::Hiding hiding(*graph);
    return as_python(graph, sparse_hessian(*graph, output.id, starts));
}

}  // namespace

void bind_derivatives(nb::module_& m) {
    m.def("gradient", &gradient, nb::arg("output"), nb::arg("wrt"),
          nb::sig("def gradient(output: Var, wrt: collections.abc.Sequence[Var]) -> list[Var]"),
          "Appends the adjoints of `wrt` to the graph and returns them.");
    m.def("apart", &apart, nb::arg("vars"),
          nb::sig("def apart(vars: collections.abc.Sequence[Var]) -> list[Var]"),
          "The same numbers as Vars that nothing depends on so far, not even what is equal.");
    m.def("tangents", &tangents, nb::arg("outputs"), nb::arg("wrt"), nb::arg("seeds"),
          nb::sig("def tangents(outputs: collections.abc.Sequence[Var], wrt: "
                  "collections.abc.Sequence[Var], seeds: collections.abc.Sequence[Var | float]) -> "
                  "list[Var]"),
          "Appends the tangents of `outputs` to the graph, where wrt[i] moves by seeds[i].");
#define SPARSE                                                                     \
    "tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32], " \
    "numpy.typing.NDArray[typing.Any], int]"
    m.def("sparse_jacobian", &jacobian, nb::arg("outputs"), nb::arg("wrt"), nb::arg("forward"),
          nb::sig("def sparse_jacobian(outputs: numpy.typing.NDArray[typing.Any], wrt: "
                  "numpy.typing.NDArray[typing.Any], forward: bool | None) -> " SPARSE),
          "Rows, columns and Vars of the derivatives that may be other than 0, and sweeps taken.");
    m.def("sparse_hessian", &hessian, nb::arg("output"), nb::arg("wrt"),
          nb::sig("def sparse_hessian(output: Var, wrt: numpy.typing.NDArray[typing.Any]) "
                  "-> " SPARSE),
          "The same of the second derivatives of one Var.");
}

}  // namespace tapegrad::bindings
