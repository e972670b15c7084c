// bindings/places.cpp -- where in a user's Python files a node or a branch is recorded.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string_view>
#include <unordered_map>

#include "python.h"

namespace tapegrad::bindings {
namespace {

/// Places that were asked for, by number. Guarded by the interpreter lock, as all recording is.
std::vector<std::string>& places() {
    static std::vector<std::string> all;
    return all;
}

std::string folder_of(const char* module) {
    nb::object path = nb::module_::import_("os.path");
    return nb::cast<std::string>(
               path.attr("dirname")(nb::module_::import_(module).attr("__file__"))) +
           "/";
}

/// Whether a file is tapegrad's or NumPy's own: users want the line of theirs that called it.
bool is_ours(std::string_view file) {
    static const std::string own[] = {folder_of("tapegrad"), folder_of("numpy")};
    for (const std::string& folder : own)
        if (file.starts_with(folder)) return true;
    return false;
}

std::string text_of(PyFrameObject* frame) {
    nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    return nb::cast<std::string>(code.attr("co_filename"));
}

}  // namespace

std::string current_place() {
    nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (frame.is_valid()) {
        auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
        const std::string file = text_of(raw);
        if (!is_ours(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
        frame = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
    }
    return "";
}

std::uint32_t record_place() {
    static std::unordered_map<std::string, std::uint32_t> numbers;
    std::string place = current_place();
    const auto next = static_cast<std::uint32_t>(places().size());
    const auto [found, is_new] = numbers.try_emplace(place, next);
    if (is_new) places().push_back(std::move(place));
    return found->second;
}

const std::string* recorded_place(std::uint32_t number) {
    return number < places().size() ? &places()[number] : nullptr;
}

}  // namespace tapegrad::bindings
