// bindings/python.h -- what the binding files share: handles, conversions, errors.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interpreter.h"
#include "scalar/graph.h"

namespace tapegrad::bindings {

/// A handle on a scalar node: a counted reference to its graph, and an index.
struct Var {
    std::shared_ptr<Graph> graph;
    NodeId id;
};

/// A Var or a number, as operators and functions take them.
struct Operand {
    const Var* var = nullptr;
    double number = 0.0;

    NodeId in(Graph& graph) const {
        if (var) return var->id;
        if (seen_ != &graph) {
            node_ = graph.constant(number);
            seen_ = &graph;
        }
        return node_;
    }

   private:
    // Of a number: its node in the graph that it met last.
    mutable const Graph* seen_ = nullptr;
    mutable NodeId node_ = no_node;
};

/// False, with no Python error set, if the object is neither a Var nor a real number.
bool to_operand(PyObject* object, Operand& operand);
/// The Var behind an object, or nullptr.
const Var* as_var(PyObject* object);
nb::object make_var(const std::shared_ptr<Graph>& graph, NodeId id);
/// The class VarArray, and one of one dimension.
nb::object var_array_type();
nb::object array_of_vars(const std::shared_ptr<Graph>& graph, const std::vector<NodeId>& ids);

/// A name, or none where it is None; and a number. `what` is the call that got them.
std::optional<std::string> name_of(nb::handle name, const char* what);
/// A string of Python's; UnicodeEncodeError if it holds halves of characters.
std::string utf8(PyObject* text);
double real_of(nb::handle value, const char* what);
/// Raises if the object is an array with a mask, which would be lost; `what` is the call.
void check_unmasked(const char* what, PyObject* object);

/// Text of unknown origin as a string of Python's.
nb::object decoded(const std::string& text);

/// Raises GraphError: operands of two graphs, which the error knows.
[[noreturn]] void raise_two_graphs(const char* op, const std::shared_ptr<Graph>& a,
                                   const std::shared_ptr<Graph>& b);
/// The items of any iterable as a tuple of our own, which nobody else can change.
nb::object items_of(nb::handle object, const std::string& expected);
/// A node of two operands, or a number if both are.
nb::object record_binary(Op op, const Operand& a, const Operand& b);
/// a ** b; small whole powers are products.
nb::object record_power(const Operand& a, const Operand& b);

/// File and line of the user's code that is running, "" if there is none.
std::string current_place();
/// The same as a number for Graph::here, and back.
std::uint32_t record_place();
const std::string* recorded_place(std::uint32_t number);

/// The Vars of a sequence, which it keeps alive.
struct Vars {
    nb::object keep;
    std::vector<const Var*> all;
};
/// `what` names the argument in messages.
Vars vars_of(nb::handle sequence, const char* what);
/// The graph of all operands; raises if they belong to two.
const std::shared_ptr<Graph>& common_graph(const char* op, const Var& a, const Var& b);

void bind_graph(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_derivatives(nb::module_& m);
void bind_program(nb::module_& m);
void bind_pointwise(nb::module_& m);
void bind_record(nb::module_& m);
void bind_apply(nb::module_& m);
void bind_walk(nb::module_& m);
void bind_arguments(nb::module_& m);
void bind_checked(nb::module_& m);
void bind_rules(nb::module_& m);
void bind_views(nb::module_& m);
void bind_fused(nb::module_& m);
void bind_loops(nb::module_& m);
void bind_custom(nb::module_& m);
void bind_subscripts(nb::module_& m);

}  // namespace tapegrad::bindings
