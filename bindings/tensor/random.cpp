// bindings/tensor/random.cpp -- counter-based random numbers as arrays.
#include "tensor/random.h"

#include "arrays.h"

namespace tapegrad::bindings {
namespace {

DType real_argument(const char* what, nb::handle dtype) {
    PyArray_Descr* descr = nullptr;
    if (!PyArray_DescrConverter(dtype.ptr(), &descr)) throw nb::python_error();
    const int type = descr->type_num;
    Py_DECREF(descr);
    if (type == NPY_FLOAT) return DType::f32;
    if (type == NPY_DOUBLE) return DType::f64;
    raise("DTypeError", std::string(what) + ": expected dtype float32 or float64, got " +
                            nb::cast<std::string>(nb::str(dtype)));
}

nb::object uniform(nb::handle shape, nb::handle dtype, std::uint64_t seed, std::uint64_t offset) {
    const Array out = fresh(shape_argument("philox_uniform: shape", shape),
                            real_argument("philox_uniform", dtype));
    unlocked(out.view.size(), [&] { random_uniform(out.view, seed, offset); });
    return out.object;
}

nb::object normal(nb::handle shape, nb::handle dtype, std::uint64_t seed, std::uint64_t offset) {
    const Array out =
        fresh(shape_argument("philox_normal: shape", shape), real_argument("philox_normal", dtype));
    unlocked(out.view.size(), [&] { random_normal(out.view, seed, offset); });
    return out.object;
}

nb::object random_whole(std::int64_t low, std::int64_t high, nb::handle shape, std::uint64_t seed,
                        std::uint64_t offset) {
    if (low >= high)
        raise("OptionError", "philox_integers: expected low < high, got " + std::to_string(low) +
                                 " and " + std::to_string(high));
    const Array out = fresh(shape_argument("philox_integers: shape", shape), DType::i64);
    const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    const Size count = out.view.size();
    unlocked(count,
             [&] { random_integers(out.as<std::int64_t>(), count, low, span, seed, offset); });
    return out.object;
}

nb::object mask(nb::handle shape, double p_keep, std::uint64_t seed, std::uint64_t offset) {
    if (!(p_keep >= 0 && p_keep <= 1))
        raise("OptionError",
              "philox_mask: expected a probability from 0 to 1, got " + std::to_string(p_keep));
    const Array out = fresh(shape_argument("philox_mask: shape", shape), DType::b8);
    const Size count = out.view.size();
    unlocked(count, [&] { random_mask(out.as<bool>(), count, p_keep, seed, offset); });
    return out.object;
}

}  // namespace

void bind_random(nb::module_& m) {
    m.def("philox_uniform", &uniform, nb::arg("shape"), nb::arg("dtype"), nb::arg("seed"),
          nb::arg("offset"),
          nb::sig("def philox_uniform(shape: collections.abc.Sequence[int], dtype: "
                  "numpy.typing.DTypeLike, seed: int, offset: int) -> " ARRAY),
          "Uniform numbers in [0, 1); element i depends on seed and offset + i alone.");
    m.def("philox_normal", &normal, nb::arg("shape"), nb::arg("dtype"), nb::arg("seed"),
          nb::arg("offset"),
          nb::sig("def philox_normal(shape: collections.abc.Sequence[int], dtype: "
                  "numpy.typing.DTypeLike, seed: int, offset: int) -> " ARRAY),
          "Standard normal numbers; element i depends on seed and offset + i alone.");
    m.def("philox_integers", &random_whole, nb::arg("low"), nb::arg("high"), nb::arg("shape"),
          nb::arg("seed"), nb::arg("offset"),
          nb::sig("def philox_integers(low: int, high: int, shape: collections.abc.Sequence[int], "
                  "seed: int, offset: int) -> numpy.typing.NDArray[numpy.int64]"),
          "Integers from low to below high; element i depends on seed and offset + i alone.");
    m.def("philox_mask", &mask, nb::arg("shape"), nb::arg("p_keep"), nb::arg("seed"),
          nb::arg("offset"),
          nb::sig("def philox_mask(shape: collections.abc.Sequence[int], p_keep: float, seed: int, "
                  "offset: int) -> numpy.typing.NDArray[numpy.bool]"),
          "True with probability p_keep; element i depends on seed and offset + i alone.");
}

}  // namespace tapegrad::bindings
