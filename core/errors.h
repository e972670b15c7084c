// core/errors.h -- the exceptions of the core; bindings/ turns them into tapegrad.errors.
#pragma once

#include <stdexcept>

namespace tapegrad {

/// A graph was used in a way that cannot be recorded: Vars of two graphs, too many nodes.
struct GraphError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// A derivative that does not exist here was asked for.
struct GradError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// A saved program is damaged, or of a format this version does not know.
struct FileError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// A program cannot be made from these outputs and inputs.
struct CompileError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace tapegrad
