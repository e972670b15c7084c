// bindings/interpreter.h -- what the binding files of all extension modules share: errors, and the
// interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tapegrad::bindings {

namespace nb = nanobind;

/// tapegrad.errors.`name`.
nb::object error_class(const char* name);
/// Raises tapegrad.errors.`name` with a message.
[[noreturn]] void raise(const char* name, const std::string& message);
/// The type's name, for messages.
std::string type_name(PyObject* object);

/// Releases the interpreter while it lives, if asked to.
class Unlocked {
   public:
    explicit Unlocked(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
    ~Unlocked() {
        if (state_) PyEval_RestoreThread(state_);
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

   private:
    PyThreadState* state_;
};

}  // namespace tapegrad::bindings
