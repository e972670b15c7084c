// bindings/pointwise.cpp -- operations and scalar programs over NumPy arrays of any layout.
//
// This is the way of every elementwise operation on tensors, so a call on small arrays is what it
// has to be quick at: types, shapes and results through NumPy's C interface.
#include "tensor/pointwise.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <vector>

#include "compiled.h"
#include "scalar/partials.h"
#include "text.h"

namespace tapegrad::bindings {
namespace {

int wanted_threads = 0;  ///< 0: all cores

constexpr int typenums[] = {NPY_FLOAT32, NPY_FLOAT64, NPY_INT32, NPY_INT64, NPY_BOOL};
constexpr const char* type_names[] = {"float32", "float64", "int32", "int64", "bool"};

int typenum(DType type) { return typenums[static_cast<int>(type)]; }
const char* name_of(DType type) { return type_names[static_cast<int>(type)]; }

bool dtype_of(PyArrayObject* array, DType& type) {
    if (!PyArray_ISNOTSWAPPED(array)) return false;
    switch (PyArray_TYPE(array)) {
        case NPY_BOOL:
            return type = DType::b8, true;
        case NPY_FLOAT32:
            return type = DType::f32, true;
        case NPY_FLOAT64:
            return type = DType::f64, true;
        default:
            break;
    }
    if (!PyArray_ISSIGNED(array)) return false;
    if (PyArray_ITEMSIZE(array) == 4) return type = DType::i32, true;
    if (PyArray_ITEMSIZE(array) == 8) return type = DType::i64, true;
    return false;
}

// ---- operands ---------------------------------------------------------------------------------

/// An array, or a number that takes part in promotion by its kind alone.
struct Item {
    PyArrayObject* array = nullptr;
    DType type;
    union {
        double real;
        std::int64_t whole;
        bool truth;
    };
};

Item item_of(const char* op, PyObject* object) {
    Item item;
    if (PyArray_Check(object)) {
        item.array = array_of(object);
        if (!dtype_of(item.array, item.type))
            raise("DTypeError", std::string(op) +
                                    ": expected an array of bool, int32, int64, float32 or "
                                    "float64, got dtype " +
                                    dtype_text(item.array));
        return item;
    }
    if (PyBool_Check(object) || PyArray_IsScalar(object, Bool)) {
        item.type = DType::b8;
        item.truth = PyObject_IsTrue(object) == 1;
    } else if (PyLong_Check(object) || PyArray_IsScalar(object, Integer)) {
        item.type = DType::i64;
        const nb::object whole = nb::steal(PyNumber_Index(object));
        item.whole = whole.is_valid() ? PyLong_AsLongLong(whole.ptr()) : -1;
        if (item.whole == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            raise("DTypeError",
                  std::string(op) + ": expected a whole number of 64 bits, got a larger one");
        }
    } else {
        item.type = DType::f64;
        item.real = PyFloat_AsDouble(object);
        if (item.real == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            raise("DTypeError", std::string(op) + ": expected an array or a real number, got " +
                                    type_name(object));
        }
    }
    return item;
}

/// PyTorch's rule: numbers and arrays without dimensions count only where they are of a higher
/// kind (bool, whole, floating) than the rest; numbers then become float32.
DType promoted(std::span<const Item> items) {
    int ranks[3] = {-1, -1, -1};  // arrays with dimensions, without, numbers
    for (const Item& item : items) {
        const int place = !item.array ? 2 : PyArray_NDIM(item.array) == 0 ? 1 : 0;
        const DType type = place == 2 && item.type == DType::f64 ? DType::f32 : item.type;
        ranks[place] = std::max(ranks[place], rank_of(type));
    }
    const auto kind = [](int rank) { return rank < 0 ? -1 : kind_of(of_rank(rank)); };
    int out = ranks[0];
    for (int place : {1, 2})
        if (kind(ranks[place]) > kind(out)) out = std::max(out, ranks[place]);
    return of_rank(out);
}

// ---- shapes -----------------------------------------------------------------------------------

[[noreturn]] void raise_shapes(const char* op, std::span<const Item> items) {
    std::string text;
    for (const Item& item : items)
        if (item.array) text += (text.empty() ? "" : " and ") + shape_text(item.array);
    raise("ShapeError", std::string(op) + ": shapes " + text +
                            " do not broadcast: counted from the last, dimensions must be equal, "
                            "or 1, or missing");
}

Extent broadcast(const char* op, std::span<const Item> items) {
    Extent out{0, {}};
    for (const Item& item : items)
        if (item.array) out.ndim = std::max(out.ndim, PyArray_NDIM(item.array));
    if (out.ndim > max_dims)
        raise("ShapeError", std::string(op) + ": at most " + std::to_string(max_dims) +
                                " dimensions, got " + std::to_string(out.ndim));
    std::fill_n(out.sizes, out.ndim, 1);
    for (const Item& item : items) {
        if (!item.array) continue;
        const int ndim = PyArray_NDIM(item.array), shift = out.ndim - ndim;
        for (int d = 0; d < ndim; ++d) {
            const std::int64_t size = PyArray_DIM(item.array, d);
            std::int64_t& common = out.sizes[d + shift];
            if (size == common || size == 1) continue;
            if (common != 1) raise_shapes(op, items);
            common = size;
        }
    }
    return out;
}

Strided strided(const Extent& extent, Item& item) {
    Strided out{nullptr, item.type, {}};
    if (!item.array) {
        out.data = reinterpret_cast<char*>(&item.real);
        std::fill_n(out.strides, extent.ndim, 0);
        return out;
    }
    out.data = PyArray_BYTES(item.array);
    const int shift = extent.ndim - PyArray_NDIM(item.array);
    for (int d = 0; d < extent.ndim; ++d)
        out.strides[d] = d < shift || PyArray_DIM(item.array, d - shift) == 1
                             ? 0
                             : PyArray_STRIDE(item.array, d - shift);
    return out;
}

// ---- results ----------------------------------------------------------------------------------

/// What makes large arrays of memory that was used before (`set_empty`): fresh pages cost more than
/// the arithmetic.
PyObject* make_empty = nullptr;
constexpr npy_intp pooled_bytes = 64 * 1024;

nb::object fresh(int ndim, const npy_intp* sizes, DType type) {
    const auto count = static_cast<double>(PyArray_MultiplyList(sizes, ndim));
    nb::object out;
    if (make_empty && count * static_cast<double>(size_of(type)) >= pooled_bytes) {
        nb::object shape = nb::steal(PyTuple_New(ndim));
        if (!shape.is_valid()) throw nb::python_error();
        for (int d = 0; d < ndim; ++d)
            PyTuple_SET_ITEM(shape.ptr(), d, PyLong_FromSsize_t(sizes[d]));
        nb::object dtype =
            nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(typenum(type))));
        PyObject* arguments[] = {shape.ptr(), dtype.ptr()};
        out = nb::steal(PyObject_Vectorcall(make_empty, arguments, 2, nullptr));
    } else {
        out = nb::steal(PyArray_SimpleNew(ndim, const_cast<npy_intp*>(sizes), typenum(type)));
    }
    if (!out.is_valid()) throw nb::python_error();
    return out;
}

nb::object new_array(const Extent& extent, DType type) {
    std::array<npy_intp, max_dims> shape;
    std::copy_n(extent.sizes, extent.ndim, shape.begin());
    return fresh(extent.ndim, shape.data(), type);
}

/// A given array for the result, checked.
PyArrayObject* result_array(const char* op, PyObject* given, const Extent& extent, DType type) {
    if (!PyArray_Check(given))
        raise("DTypeError",
              std::string(op) + ": expected an array for the result, got " + type_name(given));
    PyArrayObject* array = array_of(given);
    DType own;
    if (!dtype_of(array, own) || kind_of(own) < kind_of(type))
        raise("DTypeError", std::string(op) + ": a result of type " + name_of(type) +
                                " cannot be stored in this array; convert it first");
    if (PyArray_NDIM(array) != extent.ndim ||
        !std::equal(extent.sizes, extent.sizes + extent.ndim, PyArray_DIMS(array)))
        raise("ShapeError", std::string(op) + ": the result does not fit into shape " +
                                shape_text(array) + "; in place, operands cannot make it larger");
    if (!PyArray_ISWRITEABLE(array))
        raise("ShapeError",
              std::string(op) +
                  ": the memory of the result cannot be written: it is that of an expanded view, "
                  "or of an array that is read-only; use x.clone()");
    return array;
}

/// Whether writing one array would change elements of the other that are yet to be read.
bool clashes(PyArrayObject* from, PyArrayObject* to) {
    if (!overlap(reach_of(from), reach_of(to))) return false;
    return PyArray_BYTES(from) != PyArray_BYTES(to) || PyArray_TYPE(from) != PyArray_TYPE(to) ||
           PyArray_NDIM(from) != PyArray_NDIM(to) ||
           !std::equal(PyArray_DIMS(from), PyArray_DIMS(from) + PyArray_NDIM(from),
                       PyArray_DIMS(to)) ||
           !std::equal(PyArray_STRIDES(from), PyArray_STRIDES(from) + PyArray_NDIM(from),
                       PyArray_STRIDES(to));
}

/// Copies operands that the results would overwrite too early.
void separate(std::span<Item> items, std::span<PyArrayObject* const> results,
              std::vector<nb::object>& keep) {
    for (Item& item : items)
        for (PyArrayObject* result : results)
            if (item.array && clashes(item.array, result)) {
                keep.push_back(nb::steal(PyArray_NewCopy(item.array, NPY_CORDER)));
                if (!keep.back().is_valid()) throw nb::python_error();
                item.array = array_of(keep.back());
            }
}

bool long_running(const Extent& extent) { return extent.count() > 16 * 1024; }

// ---- one operation ----------------------------------------------------------------------------

bool is_comparison(Op op) { return op >= Op::lt && op <= Op::ne; }

/// Bools have neither differences nor negatives: who writes 1 - mask means its opposite.
void check_signed(Op op, std::span<const Item> items) {
    if (op != Op::sub && op != Op::neg) return;
    for (const Item& item : items)
        if (item.type == DType::b8)
            raise("DTypeError", std::string(info(op).name) +
                                    ": expected numbers, got bool; use ~ or ^ for what is true, or "
                                    "convert it first, as by x.int()");
}

/// Whether all operands are arrays of one shape and of this type without gaps.
bool alike(std::span<const Item> items, DType type) {
    const auto first = items[0].array;
    return std::all_of(items.begin(), items.end(), [&](const Item& item) {
        return item.array && item.type == type && PyArray_IS_C_CONTIGUOUS(item.array) &&
               PyArray_NDIM(item.array) == PyArray_NDIM(first) &&
               std::equal(PyArray_DIMS(first), PyArray_DIMS(first) + PyArray_NDIM(first),
                          PyArray_DIMS(item.array));
    });
}

/// The same for such operands, by the shortest way.
nb::object apply_dense(Op op, std::span<Item> items, DType type) {
    PyArrayObject* first = items[0].array;
    nb::object result = fresh(PyArray_NDIM(first), PyArray_DIMS(first), type);
    const std::int64_t count = PyArray_SIZE(first);
    const Unlocked unlocked(count > 16 * 1024);
    pointwise(op, type, count, PyArray_BYTES(first), PyArray_BYTES(items.back().array),
              PyArray_BYTES(array_of(result)), wanted_threads);
    return result;
}

/// Broadcasts operands, makes or checks the result, and runs body(extent, operands, result).
template <class Body>
nb::object into_result(const char* name, std::span<Item> items, DType type, PyObject* out,
                       Body body) {
    const Extent extent = broadcast(name, items);
    std::vector<nb::object> keep;
    nb::object result;
    if (out == Py_None) {
        result = new_array(extent, type);
    } else {
        PyArrayObject* given = result_array(name, out, extent, type);
        separate(items, {&given, 1}, keep);
        result = nb::borrow(out);
    }
    Strided operands[3];
    for (std::size_t i = 0; i < items.size(); ++i) operands[i] = strided(extent, items[i]);
    Item target{array_of(result), type, {}};
    dtype_of(target.array, target.type);
    const Strided to = strided(extent, target);
    const Unlocked unlocked(long_running(extent));
    body(extent, std::span<const Strided>{operands, items.size()}, to);
    return result;
}

nb::object apply(Op op, std::span<Item> items, PyObject* out) {
    const char* name = info(op).name;
    check_signed(op, items);
    DType type = promoted(op == Op::where ? items.subspan(1) : items);
    if (!is_floating(type) && !works_on_integers(op)) type = DType::f32;
    const DType compute = type == DType::b8 ? DType::i32 : type;
    const DType result_type = is_comparison(op) ? DType::b8 : type;
    if (out == Py_None && op != Op::where && result_type == compute && alike(items, type))
        return apply_dense(op, items, type);
    return into_result(name, items, result_type, out,
                       [&](const Extent& extent, auto operands, const Strided& to) {
                           pointwise(op, compute, extent, operands, to, wanted_threads);
                       });
}

/// Elementwise operations lie between `projection` and `where`.
Op elementwise_op(int number) {
    if (number <= static_cast<int>(Op::projection) || number >= static_cast<int>(Op::where))
        raise("OptionError",
              "expected the number of an elementwise operation, got " + std::to_string(number));
    return static_cast<Op>(number);
}

Op op_of(int number, int arity) {
    const Op op = elementwise_op(number);
    if (info(op).arity != arity)
        raise("ShapeError", std::string(info(op).name) + ": expected " +
                                std::to_string(info(op).arity) + " operands, got " +
                                std::to_string(arity));
    return op;
}

nb::object map1(int op, nb::handle a, nb::handle out) {
    const Op known = op_of(op, 1);
    Item items[] = {item_of(info(known).name, a.ptr())};
    return apply(known, items, out.ptr());
}

nb::object map2(int op, nb::handle a, nb::handle b, nb::handle out) {
    const Op known = op_of(op, 2);
    const char* name = info(known).name;
    Item items[] = {item_of(name, a.ptr()), item_of(name, b.ptr())};
    return apply(known, items, out.ptr());
}

nb::object select(nb::handle c, nb::handle a, nb::handle b, nb::handle out) {
    Item items[] = {item_of("where", c.ptr()), item_of("where", a.ptr()),
                    item_of("where", b.ptr())};
    if (items[0].type != DType::b8)
        raise("DTypeError", std::string("where: expected a condition of bool, got ") +
                                name_of(items[0].type) + "; compare first, as x > 0");
    return apply(Op::where, items, out.ptr());
}

template <BitOp op>
nb::object map_bits(nb::handle a, nb::handle b) {
    constexpr const char* names[] = {"bitwise_and", "bitwise_or", "bitwise_xor"};
    const char* name = names[static_cast<int>(op)];
    Item items[] = {item_of(name, a.ptr()), item_of(name, b.ptr())};
    const DType type = promoted(items);
    if (is_floating(type))
        raise("DTypeError", std::string(name) + ": expected whole numbers or bools, got " +
                                name_of(type) + "; use x.long() or x.bool()");
    const DType compute = type == DType::b8 ? DType::i32 : type;
    return into_result(name, items, type, Py_None,
                       [&](const Extent& extent, auto operands, const Strided& to) {
                           pointwise(op, compute, extent, operands, to, wanted_threads);
                       });
}

// ---- programs ---------------------------------------------------------------------------------

nb::tuple map_program(const Compiled& c, nb::tuple operands, nb::handle out) {
    check_inputs(c, "elementwise", static_cast<npy_intp>(operands.size()));
    const std::size_t outputs = c.program->code().output_count;
    std::vector<Item> items;
    items.reserve(operands.size());
    for (nb::handle each : operands) items.push_back(item_of("elementwise", each.ptr()));
    const Extent extent = broadcast("elementwise", items);
    const DType type = c.is_double() ? DType::f64 : DType::f32;
    std::vector<nb::object> results, keep;
    std::vector<PyArrayObject*> given;
    results.reserve(outputs);
    if (out.is_none()) {
        for (std::size_t i = 0; i < outputs; ++i) results.push_back(new_array(extent, type));
    } else {
        for (nb::handle each : nb::cast<nb::tuple>(out)) {
            given.push_back(result_array("elementwise", each.ptr(), extent, type));
            results.push_back(nb::borrow(each));
        }
        if (results.size() != outputs)
            raise("ShapeError", "elementwise: expected " + std::to_string(outputs) +
                                    " arrays for results, got " + std::to_string(results.size()));
        separate(items, given, keep);
    }
    std::vector<Strided> from, to;
    from.reserve(items.size());
    to.reserve(outputs);
    for (Item& item : items) from.push_back(strided(extent, item));
    for (const nb::object& result : results) {
        Item target{array_of(result), type, {}};
        dtype_of(target.array, target.type);
        to.push_back(strided(extent, target));
    }
    {
        const Unlocked unlocked(long_running(extent));
        std::visit(
            [&](const auto& runner) { pointwise(*runner, extent, from, to, wanted_threads); },
            c.runner);
    }
    nb::object listed = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
    if (!listed.is_valid()) throw nb::python_error();
    for (std::size_t i = 0; i < results.size(); ++i)
        PyTuple_SET_ITEM(listed.ptr(), static_cast<Py_ssize_t>(i), results[i].release().ptr());
    return nb::borrow<nb::tuple>(listed);
}

// ---- the table's derivatives ------------------------------------------------------------------

int number_of(const std::string& name) {
    for (Op op : elementwise_ops())
        if (name == info(op).name) return static_cast<int>(op);
    raise("OptionError", "op_number: no operation '" + name + "' in the table");
}

/// The derivatives of y = op(a, b) as Vars, y an independent Var; numbers where they are constant.
nb::list partial_vars(int op, const Var& a, const Var& b, const Var& y) {
    const Op known = elementwise_op(op);
    common_graph("partials", a, b);
    Graph& graph = *common_graph("partials", a, y);
    const auto symbol = [&](const Var& var) { return Symbol(graph, var.id); };
    const auto found = partials_over_arrays(known, symbol(a), symbol(b), symbol(y));
    nb::list out;
    for (int i = 0; i < info(known).arity; ++i)
        out.append(make_var(y.graph, found[static_cast<std::size_t>(i)].in(graph)));
    return out;
}

}  // namespace

void bind_pointwise(nb::module_& m) {
    nb::module_ p = m.def_submodule("pointwise", "Elementwise operations over NumPy arrays.");
#define ANY_ARRAY "numpy.typing.NDArray[typing.Any]"
#define OUT ", out: " ANY_ARRAY " | None = None) -> " ANY_ARRAY
    p.def("map1", &map1, nb::arg("op"), nb::arg("a").none(), nb::arg("out") = nb::none(),
          nb::sig("def map1(op: int, a: typing.Any" OUT), "An operation of one operand.");
    p.def("map2", &map2, nb::arg("op"), nb::arg("a").none(), nb::arg("b").none(),
          nb::arg("out") = nb::none(),
          nb::sig("def map2(op: int, a: typing.Any, b: typing.Any" OUT),
          "An operation of two operands, broadcast.");
    p.def("select", &select, nb::arg("c"), nb::arg("a"), nb::arg("b"), nb::arg("out") = nb::none(),
          nb::sig("def select(c: typing.Any, a: typing.Any, b: typing.Any" OUT),
          "a where c is not 0, else b.");
#define BITS(name, op, doc)                                \
    p.def(name, &map_bits<op>, nb::arg("a"), nb::arg("b"), \
          nb::sig("def " name "(a: typing.Any, b: typing.Any) -> " ANY_ARRAY), doc)
    BITS("bitwise_and", BitOp::both, "The bits that both operands have.");
    BITS("bitwise_or", BitOp::either, "The bits that one of both operands has.");
    BITS("bitwise_xor", BitOp::one, "The bits that just one of both operands has.");
#undef BITS
    p.def(
        "map_program", &map_program, nb::arg("program"), nb::arg("operands"),
        nb::arg("out") = nb::none(),
        nb::sig("def map_program(program: tapegrad._core.Program, operands: tuple[typing.Any, "
                "...], out: tuple[" ANY_ARRAY ", ...] | None = None) -> tuple[" ANY_ARRAY ", ...]"),
        "A scalar program over broadcast arrays and numbers, element by element.");
    p.def("partials", &partial_vars, nb::arg("op"), nb::arg("a"), nb::arg("b"), nb::arg("y"),
          nb::sig("def partials(op: int, a: tapegrad._core.Var, b: tapegrad._core.Var, y: "
                  "tapegrad._core.Var) -> list[tapegrad._core.Var]"),
          "The derivatives of y = op(a, b) by its operands, with y a Var of its own.");
    p.def(
        "set_empty",
        [](nb::handle empty) { Py_XSETREF(make_empty, nb::borrow(empty).release().ptr()); },
        nb::arg("empty"),
        nb::sig("def set_empty(empty: collections.abc.Callable[[tuple[int, ...], typing.Any], "
                "typing.Any]) -> None"),
        "Makes large results by empty(shape, dtype) from now on.");
    p.def("op_number", &number_of, nb::arg("name"), "The number of an operation, for map1, map2.");
    p.def(
        "set_num_threads",
        [](int threads) {
            if (threads < 1)
                raise("OptionError", "set_num_threads: expected a positive number, got " +
                                         std::to_string(threads));
            wanted_threads = threads;
        },
        nb::arg("threads"), "How many threads elementwise operations use.");
    p.def(
        "get_num_threads", [] { return thread_count(wanted_threads); },
        "How many threads elementwise operations use.");
#undef ANY_ARRAY
#undef OUT
}

}  // namespace tapegrad::bindings
