// bindings/tensor/module.cpp -- the extension module of the tensor kernels.
#define TAPEGRAD_IMPORTS_NUMPY
#include "arrays.h"
#include "tensor/kernels.h"

namespace tapegrad::bindings {
namespace {

void choose_isa(const std::string& name) {
    if (!set_tensor_isa(name.c_str()))
        throw nb::value_error(("set_isa: no instruction set '" + name +
                               "' here; tapegrad.isas() lists those there are")
                                  .c_str());
}

}  // namespace
}  // namespace tapegrad::bindings

NB_MODULE(_tensor, m) {
    using namespace tapegrad;
    using namespace tapegrad::bindings;
    m.doc() = "Kernels on NumPy arrays: results are new, C-contiguous and of the same dtype.";
    if (_import_array() < 0) throw nb::python_error();
    m.def("isa", &tensor_isa, "The instruction set in use.");
    m.def("set_isa", &choose_isa, nb::arg("name"), "Uses another instruction set from now on.");
    bind_memory(m);
    bind_reduce(m);
    bind_index(m);
    bind_join(m);
    bind_loss(m);
    bind_sort(m);
    bind_random(m);
    bind_norm(m);
    bind_pooling(m);
    bind_matmul(m);
    bind_convolution(m);
    bind_attention(m);
}
