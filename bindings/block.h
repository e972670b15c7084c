// bindings/block.h -- how arrays on memory of the pool are told from those of other libraries.
#pragma once

namespace tapegrad::bindings {

/// The name of capsules that own a block of the pool.
inline constexpr const char* block_name = "tapegrad.block";

}  // namespace tapegrad::bindings
