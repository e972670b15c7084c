// core/scalar/assembler.cpp -- x86 instructions as bytes.
#include "assembler.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tapegrad {
namespace {

/// Base registers, those that a function need not keep: rsi, rdx, rcx, rax, r8 to r11 stand still,
/// rdi moves. The address of the slots itself is in rbx.
constexpr int bases[] = {6, 2, 1, 0, 8, 9, 10, 11}, moving_base = 7;
constexpr unsigned rbx = 3;
constexpr std::int32_t base_count = sizeof(bases) / sizeof(bases[0]);
/// Units that a displacement of one byte reaches to either side. A move takes as many bytes as two
/// long displacements more than short ones: it is for places near two of those missed before.
constexpr std::int32_t reach = 128, much_of_reach = 112;
constexpr int neighbours = 2;

/// Bytes that a displacement of one counts.
constexpr std::int32_t unit(Shape shape) { return shape == Shape::whole ? 64 : 1; }

/// Inverted, as prefixes have it: bit `bit` of a register's number.
constexpr unsigned without(int number, int bit) { return ~(number >> bit) & 1u; }

}  // namespace

Assembler::Assembler(Shape shape, bool is_double) : shape_(shape), is_double_(is_double) {
    make_room();
    for (unsigned value : {0x53u, 0x48u, 0x89u, 0xfbu}) byte(value);  // push rbx; mov rbx, rdi
    set_bases();
}

/// For any one thing that is appended.
void Assembler::make_room() {
    constexpr std::size_t most = 128;
    if (code_.size() < length_ + most) code_.resize(2 * code_.size() + 16 * most);
}

/// lea base, [rbx + place]
void Assembler::set_base(int base, std::int32_t place) {
    byte(base < 8 ? 0x48 : 0x4c);
    byte(0x8d);
    byte(0x80u | static_cast<unsigned>(base & 7) << 3 | rbx);
    four_bytes(place);
}

void Assembler::set_bases() {
    // Base k stands in the middle of the 256 units that it serves.
    const auto middle = [&](std::int32_t k) { return (2 * k + 1) * reach * unit(shape_); };
    for (std::int32_t k = 0; k < base_count; ++k) set_base(bases[k], middle(k));
    set_base(moving_base, moving_ = middle(base_count));
}

auto Assembler::at(std::uint32_t place) -> Operand {
    const std::int32_t each = 2 * reach * unit(shape_), bytes = static_cast<std::int32_t>(place);
    const std::int32_t k = bytes / each;
    if (k >= base_count) return far_at(bytes);
    return {true, bases[k], bytes % each - each / 2};
}

auto Assembler::far_at(std::int32_t place) -> Operand {
    const auto is_near = [&](std::int32_t other, std::int32_t units) {
        return place - other >= -units * unit(shape_) && place - other < units * unit(shape_);
    };
    if (!is_near(moving_, reach)) {
        const auto near = std::count_if(missed_.begin(), missed_.end(), [&](std::int32_t other) {
            return is_near(other, much_of_reach);
        });
        missed_[misses_++ % missed_.size()] = place;
        if (near >= neighbours) {
            make_room();
            set_base(moving_base, moving_ = place);
        }
    }
    return {true, moving_base, place - moving_};
}

auto Assembler::prefix_of(Arithmetic operation) const -> Prefix {
    if (shape_ == Shape::scalar && operation != Arithmetic::bitwise_xor)
        return is_double_ ? prefix_f2 : prefix_f3;
    return is_double_ ? prefix_66 : prefix_none;
}

void Assembler::load(int to, std::uint32_t place) {
    const bool scalar = shape_ == Shape::scalar;
    instruction(prefix_of(Arithmetic::add), scalar ? 0x10 : 0x28, to, 0, at(place));
}

void Assembler::store(int from, std::uint32_t place) {
    const bool scalar = shape_ == Shape::scalar;
    instruction(prefix_of(Arithmetic::add), scalar ? 0x11 : 0x29, from, 0, at(place));
}

void Assembler::copy(int to, int from) {
    instruction(prefix_of(Arithmetic::bitwise_xor), 0x28, to, 0, {false, from, 0});
}

void Assembler::arithmetic(Arithmetic operation, int to, int a, int b) {
    const bool unary = operation == Arithmetic::sqrt && shape_ != Shape::scalar;
    const bool swaps = operation == Arithmetic::add || operation == Arithmetic::multiply;
    if (swaps && b >= 8 && a < 8) std::swap(a, b);  // a low register last takes one byte less
    instruction(prefix_of(operation), static_cast<std::uint8_t>(operation), to, unary ? 0 : a,
                {false, b, 0});
}

void Assembler::arithmetic_at(Arithmetic operation, int to, int a, std::uint32_t place) {
    instruction(prefix_of(operation), static_cast<std::uint8_t>(operation), to, a, at(place));
}

void Assembler::leave() {
    make_room();
    for (unsigned value : {0xc5u, 0xf8u, 0x77u, 0x5bu, 0xc3u}) byte(value);  // vzeroupper, pop, ret
}

void Assembler::call(const void* function, const void* argument) {
    make_room();
    for (unsigned value : {0x48u, 0x89u, 0xdfu, 0x48u, 0xbeu})
        byte(value);  // mov rdi, rbx; mov rsi
    eight_bytes(argument);
    for (unsigned value : {0x48u, 0xb8u}) byte(value);  // mov rax
    eight_bytes(function);
    for (unsigned value : {0xffu, 0xd0u}) byte(value);  // call rax
    set_bases();
}

void Assembler::eight_bytes(const void* pointer) {
    std::memcpy(code_.data() + length_, &pointer, sizeof(pointer));
    length_ += sizeof(pointer);
}

void Assembler::instruction(Prefix prefix, std::uint8_t opcode, int reg, int second,
                            Operand operand) {
    make_room();
    if (shape_ == Shape::whole)
        begin_evex(prefix, reg, second, operand);
    else
        begin_vex(prefix, reg, second, operand);
    byte(opcode);
    address(reg, operand);
}

void Assembler::begin_vex(Prefix prefix, int reg, int second, const Operand& operand) {
    const unsigned last =
        (~static_cast<unsigned>(second) & 15u) << 3 | (shape_ == Shape::half ? 4u : 0u) | prefix;
    if (without(operand.number, 3)) {
        byte(0xc5);
        byte(without(reg, 3) << 7 | last);
    } else {
        byte(0xc4);
        byte(without(reg, 3) << 7 | 1u << 6 | 0u << 5 | 1u);
        byte(last);
    }
}

void Assembler::begin_evex(Prefix prefix, int reg, int second, const Operand& operand) {
    const unsigned x = operand.is_memory ? 1u : without(operand.number, 4);
    byte(0x62);
    byte(without(reg, 3) << 7 | x << 6 | without(operand.number, 3) << 5 | without(reg, 4) << 4 |
         1u);
    byte((is_double_ ? 0x80u : 0u) | (~static_cast<unsigned>(second) & 15u) << 3 | 4u | prefix);
    byte(0x40u | without(second, 4) << 3);
}

void Assembler::address(int reg, const Operand& operand) {
    const unsigned fields =
        static_cast<unsigned>(reg & 7) << 3 | static_cast<unsigned>(operand.number & 7);
    if (!operand.is_memory) return byte(0xc0u | fields);
    const std::int32_t size = unit(shape_), units = operand.displacement / size;
    if (units >= -128 && units < 128) {
        byte(0x40u | fields);
        byte(static_cast<std::uint8_t>(units));
    } else {
        byte(0x80u | fields);
        four_bytes(operand.displacement);
    }
}

void Assembler::four_bytes(std::int32_t value) {
    std::memcpy(code_.data() + length_, &value, sizeof(value));  // x86 has the low byte first
    length_ += sizeof(value);
}

}  // namespace tapegrad
