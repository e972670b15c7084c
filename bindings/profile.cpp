// bindings/profile.cpp -- time per kernel of one evaluation, as Program.profile shows it.
#include "scalar/profile.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <map>

#include "guards.h"

namespace tapegrad::bindings {
namespace {

template <class T>
nb::tuple profile_of(const Compiled& c, const Runner<T>& runner, nb::handle x,
                     std::size_t repeats) {
    nb::object points = input_array(c, "profile", x.ptr(), 2);
    points = nb::steal(PyArray_NewCopy(array_of(points), NPY_CORDER));
    if (!points.is_valid()) throw nb::python_error();
    PyArrayObject* array = array_of(points);
    check_inputs(c, "profile", PyArray_DIM(array, 1));
    if (PyArray_DIM(array, 0) == 0) raise("ShapeError", "profile: expected rows, got none");
    std::vector<InputRows<T>> inputs;
    for (std::size_t i = 0; i < c.inputs(); ++i)
        inputs.push_back({static_cast<const T*>(PyArray_DATA(array)) + i,
                          static_cast<std::ptrdiff_t>(c.inputs())});
    const auto rows = static_cast<std::size_t>(PyArray_DIM(array, 0));
    const Profile found = with_branches(c, "profile", points, {}, [&] {
        Unlocked unlocked(true);
        return profile(runner, inputs.data(), rows, repeats);
    });
    struct Row {
        std::size_t instructions = 0, runs = 0;
        double seconds = 0;
    };
    std::map<std::string, Row> kinds;
    for (const RunTime& each : found.runs) {
        Row& row = kinds[kernel_name(each.run)];
        row.instructions += each.run.count;
        ++row.runs;
        row.seconds += each.seconds;
    }
    nb::list out;
    for (const auto& [name, row] : kinds)
        out.append(nb::make_tuple(name, row.instructions, row.runs, row.seconds));
    return nb::make_tuple(out, found.seconds, found.lanes);
}

}  // namespace

nb::tuple profile_program(const Compiled& c, nb::handle x, std::size_t repeats) {
    return std::visit([&](const auto& runner) { return profile_of(c, *runner, x, repeats); },
                      c.runner);
}

}  // namespace tapegrad::bindings
