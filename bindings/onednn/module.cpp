// bindings/onednn/module.cpp -- the extension module around oneDNN: settings and errors.
#define TAPEGRAD_IMPORTS_NUMPY
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "functions.h"
#include "interpreter.h"
#include "numpy.h"
#include "threads.h"

namespace tapegrad::bindings {
namespace {

/// Sizes that the checks let through and oneDNN does not take.
void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const dnnl::error& e) {
        if (e.status == dnnl_out_of_memory)
            PyErr_NoMemory();
        else
            PyErr_SetString(error_class("ShapeError").ptr(),
                            (std::string("oneDNN has no kernel for these sizes: ") + e.what() +
                             "; the device 'reference' takes any")
                                .c_str());
    }
}

void set_num_threads(int wanted) {
    if (wanted < 0)
        raise("OptionError",
              "set_num_threads: expected a number of threads, or 0 for all cores, "
              "got " +
                  std::to_string(wanted));
    set_threads(wanted);
}

std::string version() {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
           std::to_string(v->patch);
}

bool import_numpy() {
    import_array1(false);
    return true;
}

}  // namespace

onednn::WeightKey weight_key(nb::handle key, const nb::object& taken, nb::handle given) {
    if (key.is_none()) return {};
    onednn::WeightKey out;
    if (!PyTuple_Check(key.ptr()) || PyTuple_GET_SIZE(key.ptr()) != 2 ||
        !nb::try_cast(nb::handle(PyTuple_GET_ITEM(key.ptr(), 0)), out.weight) || !out.weight ||
        !nb::try_cast(nb::handle(PyTuple_GET_ITEM(key.ptr(), 1)), out.version))
        raise("DTypeError",
              "key: expected a tuple (Weight, version) with a whole number, or None, got " +
                  type_name(key.ptr()));
    return taken.is(given) ? out : onednn::WeightKey{};
}

}  // namespace tapegrad::bindings

NB_MODULE(_onednn, m) {
    using namespace tapegrad;
    using namespace tapegrad::bindings;
    m.doc() = "Convolution and matrix products of float32 arrays by oneDNN.";
    if (!import_numpy()) throw nb::python_error();
    find_tensor_functions();
    nb::register_exception_translator(translate);
    bind_convolution(m);
    bind_matmul(m);
    m.def("version", &version, "The version of oneDNN.");
    m.def("threads", &threads, "Threads in use: one in a forked child.");
    m.def("set_num_threads", &set_num_threads, nb::arg("count"),
          "Threads from now on, for calls from any Python thread; 0: all cores.");
    m.def("cache_size", &onednn::plan_count, "Prepared primitives that this thread keeps.");
    nb::class_<onednn::Weight>(m, "Weight", "Packed copies of one weight; they go with it.")
        .def(nb::init<>());
    m.def("packed_bytes", &onednn::packed_bytes, "Bytes of all packed weights.");
    m.def("packed_limit", &onednn::packed_limit, "Bytes that packed weights may take.");
    m.def("set_packed_limit", &onednn::set_packed_limit, nb::arg("bytes"),
          "Bytes that packed weights may take from now on; 0: none are kept.");
    m.def("release", &onednn::release,
          "Frees this thread's prepared primitives and scratch memory.");
}
