// core/scalar/assembler.h -- the few x86 instructions that arithmetic takes, as bytes.
//
// Scalars and vectors of 32 bytes have the VEX encoding, vectors of 64 bytes EVEX, with registers
// 16 to 31 and displacements of one byte that count whole vectors. Memory is addressed from several
// base registers, 256 such units apart, so that most displacements take one byte and not four; one
// more moves to places beyond them that are wanted several times in a row. Code is read once per
// evaluation, and its length is what large programs wait for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tapegrad {

/// What one instruction computes: a number, or a vector of 32 or 64 bytes.
enum class Shape { scalar, half, whole };

/// Of two operands; by opcode. bitwise_xor is of whole vectors, whatever the shape.
enum class Arithmetic : std::uint8_t {
    sqrt = 0x51,  ///< of the second operand
    bitwise_xor = 0x57,
    add = 0x58,
    multiply = 0x59,
    subtract = 0x5c,
    divide = 0x5e
};

/// Appends instructions to a function of one argument, the address of the slots. Registers are
/// those of vectors; places are bytes from the first slot on.
class Assembler {
   public:
    Assembler(Shape shape, bool is_double);

    int registers() const { return shape_ == Shape::whole ? 32 : 16; }
    std::span<const std::uint8_t> code() const { return {code_.data(), length_}; }

    void load(int to, std::uint32_t place);
    void store(int from, std::uint32_t place);
    void copy(int to, int from);
    void arithmetic(Arithmetic operation, int to, int a, int b);
    void arithmetic_at(Arithmetic operation, int to, int a, std::uint32_t place);
    /// Calls function(slots, argument), which keeps no vector register.
    void call(const void* function, const void* argument);
    /// Ends the function.
    void leave();

   private:
    enum Prefix : std::uint8_t { prefix_none, prefix_66, prefix_f3, prefix_f2 };
    /// What modrm's second operand is: a register, or memory at base + displacement.
    struct Operand {
        bool is_memory;
        int number;  ///< of the register, or of the base register
        std::int32_t displacement;
    };

    Prefix prefix_of(Arithmetic operation) const;
    Operand at(std::uint32_t place);
    Operand far_at(std::int32_t place);
    void instruction(Prefix prefix, std::uint8_t opcode, int reg, int second, Operand operand);
    void begin_vex(Prefix prefix, int reg, int second, const Operand& operand);
    void begin_evex(Prefix prefix, int reg, int second, const Operand& operand);
    void address(int reg, const Operand& operand);
    void set_bases();
    void set_base(int base, std::int32_t place);
    void eight_bytes(const void* pointer);
    void byte(unsigned value) { code_[length_++] = static_cast<std::uint8_t>(value); }
    void make_room();
    void four_bytes(std::int32_t value);

    Shape shape_;
    bool is_double_;
    std::vector<std::uint8_t> code_;  ///< with room behind its end
    std::size_t length_ = 0;
    std::int32_t moving_ = 0;               ///< where the base stands that moves
    std::array<std::int32_t, 4> missed_{};  ///< the last places that no base was near, in any order
    std::size_t misses_ = 0;
};

}  // namespace tapegrad
