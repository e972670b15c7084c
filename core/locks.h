// core/locks.h -- locks that are held for moments, and that a fork finds open.
#pragma once

#include <mutex>

namespace tapegrad {

/// The lock of an object, one of a few that all objects share: whoever holds it asks for no other.
/// A lock of the object's own would stay locked for ever in a child that is forked while a thread
/// holds it; a fork waits for these.
std::mutex& lock_of(const void* object);

}  // namespace tapegrad
