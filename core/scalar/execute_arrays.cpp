// core/scalar/execute_arrays.cpp -- runs compiled code over a caller's arrays; compiled once per
// instruction set and number type.
#include "instructions.h"

namespace tapegrad {
namespace TG_ISA {

void run_arrays(const Code& code, Real* const* slots, int lanes);

void run_arrays(const Code& code, Real* const* slots, int lanes) {
    using W = std::uint16_t;
    static constexpr Table<Scattered, W, run_alone> table;
    const Scattered f{slots, lanes};
    const W *w = static_cast<const W*>(code.begin), *end = static_cast<const W*>(code.end);
    while (w != end) w = table.entry[w[0]](code, f, w);
    leave_vectors();
}

}  // namespace TG_ISA
}  // namespace tapegrad
