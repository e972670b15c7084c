// core/scalar/tiles.h -- rows of a matrix to lanes of slots and back, a square tile at a time.
//
// A row of a batch has its inputs side by side, a slot has its rows side by side. tiles.cpp is
// compiled once per instruction set and number type, like execute.cpp: a tile is as wide and high
// as a vector, and is turned in registers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapegrad {

/// Columns of a matrix that lie side by side, and the slots of their lanes.
struct Tiled {
    const std::uint32_t* slots;
    std::size_t columns;     ///< a multiple of the lanes of a vector
    std::ptrdiff_t stride;   ///< from one row of the matrix to the next
    std::size_t slot_lanes;  ///< of a slot
};

/// One instruction set's code for one number type.
template <class T>
struct Tiles {
    std::size_t lanes;  ///< of a vector
    /// So many rows as a vector has lanes, from the matrix to the slots.
    void (*to_slots)(const Tiled& tiled, const T* matrix, T* slots);
    /// The same, from the slots to the matrix.
    void (*to_matrix)(const Tiled& tiled, const T* slots, T* matrix);
};

/// Those of the instruction set in use.
template <class T>
const Tiles<T>& tiles();
template <>
const Tiles<double>& tiles<double>();
template <>
const Tiles<float>& tiles<float>();

}  // namespace tapegrad
