// bindings/module.cpp -- the extension module: errors, the op table as data, the instruction sets.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdlib>

#include "errors.h"
#include "python.h"
#include "scalar/checks.h"
#include "scalar/kernels.h"

namespace tapegrad::bindings {
namespace {

void translate(const std::exception_ptr& pointer, void*) {
    auto set = [](const char* name, const std::exception& e) {
        PyErr_SetObject(error_class(name).ptr(), decoded(e.what()).ptr());
    };
    try {
        std::rethrow_exception(pointer);
    } catch (const GraphError& e) {
        set("GraphError", e);
    } catch (const GradError& e) {
        set("GradError", e);
    } catch (const FileError& e) {
        set("FileError", e);
    } catch (const CompileError& e) {
        set("CompileError", e);
    } catch (const BranchChanged& e) {
        set("BranchChanged", e);
    }
}

nb::dict record(Op op) {
    const OpInfo& i = info(op);
    nb::dict d;
    d["name"] = i.name;
    d["arity"] = i.arity;
    d["vector_pace"] = i.vector_pace;
    d["domain"] = i.domain;
    d["ulp"] = i.ulp;
    d["doc"] = i.doc;
    d["oracle"] = i.oracle;
    nb::list derivatives;
    if (*i.da) derivatives.append(i.da);
    if (*i.db) derivatives.append(i.db);
    d["derivatives"] = derivatives;
    return d;
}

nb::list op_table() {
    nb::list out;
    for (Op op : elementwise_ops()) out.append(record(op));
    return out;
}

nb::list isas() {
    const Isa* list[4];
    int count = available_isas(list);
    nb::list out;
    for (int i = 0; i < count; ++i) out.append(list[i]->name);
    return out;
}

void choose_isa(const std::string& name) {
    if (!set_isa(name.c_str()))
        throw nb::value_error(
            ("set_isa: no instruction set '" + name + "' here; isas() lists those there are")
                .c_str());
}

void check_wanted_isa() {
    const char* wanted = std::getenv("TAPEGRAD_ISA");
    if (wanted && *wanted && !set_isa(wanted))
        throw nb::import_error((std::string("TAPEGRAD_ISA: no instruction set '") + wanted +
                                "' on this CPU; unset it, or name one of tapegrad.isas()")
                                   .c_str());
}

}  // namespace

nb::object decoded(const std::string& text) {
    return nb::steal(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace tapegrad::bindings

NB_MODULE(_core, m) {
    using namespace tapegrad;
    using namespace tapegrad::bindings;
    m.doc() = "The native core of tapegrad: graphs, programs and the op table.";
    nb::set_leak_warnings(false);  // Vars in a script's globals are alive when Python exits
    nb::register_exception_translator(translate);
    check_wanted_isa();
    bind_graph(m);
    bind_functions(m);
    bind_derivatives(m);
    bind_program(m);
    bind_pointwise(m);
    bind_record(m);
    bind_apply(m);
    bind_walk(m);
    bind_arguments(m);
    bind_checked(m);
    bind_rules(m);
    bind_views(m);
    bind_fused(m);
    bind_loops(m);
    bind_custom(m);
    bind_subscripts(m);
    m.def("op_table", &op_table, nb::sig("def op_table() -> list[dict[str, object]]"),
          "The elementwise operations as records: name, arity, domain, ulp, doc, oracle, ...");
    m.def("isas", &isas, nb::sig("def isas() -> list[str]"),
          "Instruction sets this CPU can run, best first.");
    m.def("isa", [] { return isa().name; }, "The instruction set in use.");
    m.def("set_isa", &choose_isa, nb::arg("name"),
          "Uses another instruction set from now on (TAPEGRAD_ISA does so at import).");
}
