// bindings/guards.h -- frozen branches of programs, and what is raised where one changes.
#pragma once

#include "scalar/checks.h"
#include "shared.h"

namespace tapegrad::bindings {

/// Raises tapegrad's BranchChanged with the rows of `points` that would take another branch, and
/// the branches they leave; shared inputs are no columns of these. `what` is what was called.
[[noreturn]] void raise_branch_changed(const Compiled& c, const char* what, nb::handle points,
                                       const Shared& shared);
/// The same for points that are no rows of the caller's: one, or those of a descent, which came
/// from `starts` if that had several.
[[noreturn]] void raise_branch_changed(const Compiled& c, const BranchChanged& changed,
                                       nb::handle points, nb::handle starts = nb::none());

/// Does what evaluates a program at many points.
template <class Body>
auto with_branches(const Compiled& c, const char* what, nb::handle points, const Shared& shared,
                   Body body) {
    try {
        return body();
    } catch (const BranchChanged&) {
        raise_branch_changed(c, what, points, shared);
    }
}

nb::list branches(const Compiled& c);
/// The conditions of the branches as a program of their own.
Compiled* guard_program(const Compiled& c);

}  // namespace tapegrad::bindings
