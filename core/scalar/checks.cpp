// core/scalar/checks.cpp -- what must hold after an evaluation.
//
// Programs without guards and without functions from outside pay two comparisons.
#include "checks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph.h"
#include "kernels.h"

namespace tapegrad {
namespace {

thread_local std::exception_ptr failed;

std::string message(const Guard& guard) {
    const char* was = guard.taken ? "true" : "false";
    return "a point takes another branch than the one that was recorded: " + guard.text + " was " +
           was + " (" + guard.place +
           ") and is not here; record the graph again with example "
           "values of this branch, or write tg.where";
}

template <class T>
void check_guards(const Code& code, const T* slots, int width) {
    for (std::uint32_t i = 0; i < code.guard_count; ++i) {
        const T* lanes =
            slots + static_cast<std::size_t>(code.guards[i].slot) * static_cast<std::size_t>(width);
        const bool taken = code.guards[i].taken;
        if (std::any_of(lanes, lanes + width, [=](T value) { return (value != T(0)) != taken; }))
            throw BranchChanged(message(*code.guards[i].guard));
    }
}

template <class T>
void check(const Code& code, const T* slots, int width) {
    if (code.calls && failed) std::rethrow_exception(std::exchange(failed, nullptr));
    if (code.guard_count) check_guards(code, slots, width);
}

/// All lanes of a slot of so many bytes.
void run_machine(const Code& code, void* slots, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += code.machine_bytes)
        code.machine(static_cast<char*>(slots) + at);
}

}  // namespace

void report_failure(std::exception_ptr failure) { failed = std::move(failure); }
bool has_failed() { return failed != nullptr; }

template <class T>
void Kernels<T>::lanes(const Code& code, T* slots, int width) const {
    if (code.machine)
        run_machine(code, slots, sizeof(T) * static_cast<std::size_t>(width));
    else
        run_lanes(code, slots, width);
    check(code, slots, width);
}

template <class T>
void Kernels<T>::single(const Code& code, T* slots) const {
    if (code.machine)
        code.machine(slots);
    else
        run_single(code, slots);
    check(code, slots, 1);
}

template struct Kernels<double>;
template struct Kernels<float>;

}  // namespace tapegrad
