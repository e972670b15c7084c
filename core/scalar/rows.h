// core/scalar/rows.h -- rows of data to lanes of slots, and results from there to rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace tapegrad {

/// Where an input's value for each row lies; stride 0: one value shared by all rows.
template <class T>
struct InputRows {
    const T* data;
    std::ptrdiff_t stride;
};

/// Where an output goes: one element per row, or the sum over all rows to *data.
template <class T>
struct OutputRows {
    T* data;
    std::ptrdiff_t stride;
    bool sum = false;
};

/// The slots of so many lanes each.
template <class T>
struct SlotLanes {
    T* slots;
    std::size_t width;

    T* at(std::uint32_t slot) const { return slots + slot * width; }
};

/// Columns of data with their slots, those together that lie side by side in each row.
template <class T>
class Columns {
   public:
    struct Column {
        std::uint32_t slot;
        T* data;
        std::ptrdiff_t stride;
    };
    /// Neighbouring columns, a multiple of the lanes of a vector.
    struct Panel {
        std::size_t first, count;
    };

    void reserve(std::size_t count) { all_.reserve(count); }
    void add(const Column& column) { all_.push_back(column); }
    /// Finds panels; call it after the last column.
    void arrange(std::size_t lanes);

    bool empty() const { return all_.empty(); }
    const std::vector<Column>& all() const { return all_; }
    const std::vector<Panel>& panels() const { return panels_; }
    /// Slots of all columns.
    const std::uint32_t* slots() const { return slots_.data(); }
    /// Columns outside of panels.
    const std::vector<Column>& others() const { return others_; }

   private:
    std::vector<Column> all_, others_;
    std::vector<Panel> panels_;
    std::vector<std::uint32_t> slots_;
};

/// Brings the inputs of blocks of rows into their slots.
template <class T>
class Gather {
   public:
    Gather(const Code& code, const InputRows<T>* inputs);
    /// Rows from `first` on; lanes beyond `count` get copies of the last one.
    void fill(SlotLanes<T> to, std::size_t first, std::size_t count) const;

   private:
    using Column = typename Columns<const T>::Column;
    void fill_panels(SlotLanes<T> to, std::size_t first, std::size_t count) const;
    static void fill_tiles(const std::vector<Column>& columns, SlotLanes<T> to, std::size_t first,
                           std::size_t low, std::size_t count);

    std::vector<Column> shared_, adjacent_;  ///< stride 0 and 1
    Columns<const T> strided_;               ///< any other
};

/// Writes the outputs of blocks of rows that are not summed.
template <class T>
class Scatter {
   public:
    Scatter(const Code& code, const OutputRows<T>* outputs);
    bool empty() const { return columns_.empty(); }
    /// `count` rows from `first` on.
    void write(SlotLanes<T> from, std::size_t first, std::size_t count) const;

   private:
    using Column = typename Columns<T>::Column;
    static void write_tiles(const std::vector<Column>& columns, SlotLanes<T> from,
                            std::size_t first, std::size_t low, std::size_t count);

    Columns<T> columns_;
};

}  // namespace tapegrad
