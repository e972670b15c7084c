// core/tensor/integers.h -- the words of the op table over whole numbers.
//
// Arithmetic wraps around, as the hardware's does; C++ leaves the overflow of signed numbers open.
#pragma once

#include <type_traits>

namespace tapegrad::integers {

template <class T>
struct Integer {
    T value;

    using Bits = std::make_unsigned_t<T>;
    Integer(T v) : value(v) {}
    Integer(double v) : value(static_cast<T>(v)) {}  // numbers in the table's text, as 0.0
    static Integer of(Bits bits) { return Integer(static_cast<T>(bits)); }
    Bits bits() const { return static_cast<Bits>(value); }

    friend Integer operator+(Integer a, Integer b) { return of(a.bits() + b.bits()); }
    friend Integer operator-(Integer a, Integer b) { return of(a.bits() - b.bits()); }
    friend Integer operator*(Integer a, Integer b) { return of(a.bits() * b.bits()); }
    friend Integer operator-(Integer a) { return of(Bits(0) - a.bits()); }
    friend bool operator<(Integer a, Integer b) { return a.value < b.value; }
    friend bool operator<=(Integer a, Integer b) { return a.value <= b.value; }
    friend bool operator>(Integer a, Integer b) { return a.value > b.value; }
    friend bool operator>=(Integer a, Integer b) { return a.value >= b.value; }
    friend bool operator==(Integer a, Integer b) { return a.value == b.value; }
    friend bool operator!=(Integer a, Integer b) { return a.value != b.value; }

    friend Integer select(bool c, Integer a, Integer b) { return c ? a : b; }
    friend Integer minimum(Integer a, Integer b) { return b < a ? b : a; }
    friend Integer maximum(Integer a, Integer b) { return a < b ? b : a; }
    friend Integer relu(Integer a) { return a.value > 0 ? a : Integer(T(0)); }
    friend Integer abs(Integer a) { return a.value < 0 ? -a : a; }
    friend Integer sign(Integer a) { return Integer(T((a.value > 0) - (a.value < 0))); }
    friend Integer floor(Integer a) { return a; }
    friend Integer ceil(Integer a) { return a; }
    friend Integer round_even(Integer a) { return a; }
    /// 0 for a divisor of 0, which callers refuse; by -1 the least number wraps around.
    friend Integer floor_divide(Integer a, Integer b) {
        if (b.value == 0) return Integer(T(0));
        if (b.value == -1) return -a;
        const T whole = T(a.value / b.value), rest = T(a.value % b.value);
        return Integer(T(whole - (rest != 0 && (rest < 0) != (b.value < 0))));
    }
    friend Integer remainder(Integer a, Integer b) { return a - b * floor_divide(a, b); }
};

inline bool one_if(bool condition) { return condition; }

template <class T>
T number(Integer<T> a) {
    return a.value;
}
template <class T>
T number(bool a) {
    return a;
}

}  // namespace tapegrad::integers
