// core/crew.h -- threads that lend a hand, and are waited for only while they do.
//
// A parallel region of libgomp ends when all its threads have come and gone: one that others keep
// from running, or whose core is asleep, holds up the caller for milliseconds. Here the caller does
// the work itself. Helpers take parts of it if they come in time, and who comes late is told that
// there is nothing left.
#pragma once

namespace tapegrad {

/// Runs body() in this thread and, as long as it runs here, in up to `helpers` others. A body hands
/// out the parts of the work itself, so that any number of threads may run it; it must not throw.
void with_help(int helpers, void (*body)(void*), void* data);

template <class Body>
void with_help(int helpers, Body body) {
    with_help(helpers, [](void* data) { (*static_cast<Body*>(data))(); }, &body);
}

}  // namespace tapegrad
