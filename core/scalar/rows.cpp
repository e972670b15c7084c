// core/scalar/rows.cpp -- rows of data to lanes of slots, and results from there to rows.
//
// What lies side by side in each row goes through registers, a square tile at a time (tiles.h): an
// element costs a quarter of a cycle instead of one and more. Other columns go one by one, in tiles
// of eight rows and eight columns, which share cache lines: rows far apart fall on few cache sets,
// and a line read for one column would be gone before the next one wants it.
#include "rows.h"

#include <algorithm>

#include "tiles.h"

namespace tapegrad {
namespace {

constexpr std::size_t tile = 8;

/// Calls body(column, row) for tiles of columns and of the rows [low, high).
template <class Column, class Body>
void over_tiles(const std::vector<Column>& columns, std::size_t low, std::size_t high, Body body) {
    for (std::size_t at = 0; at < columns.size(); at += tile)
        for (std::size_t row = low; row < high; row += tile)
            for (std::size_t i = at; i < std::min(columns.size(), at + tile); ++i)
                body(columns[i], row);
}

template <class T>
T* place(T* data, std::size_t row, std::ptrdiff_t stride) {
    return data + static_cast<std::ptrdiff_t>(row) * stride;
}

}  // namespace

template <class T>
void Columns<T>::arrange(std::size_t lanes) {
    slots_.reserve(all_.size());
    for (const Column& column : all_) slots_.push_back(column.slot);
    for (std::size_t low = 0, high; low < all_.size(); low = high) {
        const auto is_next = [&](const Column& column) {
            return column.stride == all_[low].stride &&
                   column.data == all_[low].data + (high - low);
        };
        for (high = low + 1; high < all_.size() && is_next(all_[high]);) ++high;
        const std::size_t count = (high - low) / lanes * lanes;
        if (count) panels_.push_back({low, count});
        others_.insert(others_.end(), all_.begin() + static_cast<std::ptrdiff_t>(low + count),
                       all_.begin() + static_cast<std::ptrdiff_t>(high));
    }
}

template <class T>
Gather<T>::Gather(const Code& code, const InputRows<T>* inputs) {
    strided_.reserve(code.input_count && inputs[0].stride > 1 ? code.input_count : 0);
    for (std::uint32_t i = 0; i < code.input_count; ++i) {
        if (code.inputs[i] == no_slot) continue;
        const Column column{code.inputs[i], inputs[i].data, inputs[i].stride};
        if (column.stride > 1 || column.stride < 0)
            strided_.add(column);
        else
            (column.stride ? adjacent_ : shared_).push_back(column);
    }
    strided_.arrange(tiles<T>().lanes);
}

template <class T>
void Gather<T>::fill(SlotLanes<T> to, std::size_t first, std::size_t count) const {
    for (const Column& column : shared_) std::fill_n(to.at(column.slot), to.width, *column.data);
    for (const Column& column : adjacent_) {
        T* lanes = to.at(column.slot);
        std::copy_n(column.data + first, count, lanes);
        std::fill_n(lanes + count, to.width - count, lanes[count - 1]);
    }
    const std::size_t lanes = tiles<T>().lanes, whole = count / lanes * lanes;
    fill_panels(to, first, whole);
    fill_tiles(strided_.others(), to, first, 0, count);
    if (whole < to.width && !strided_.panels().empty())
        fill_tiles(strided_.all(), to, first, whole, count);
}

/// `count` is a multiple of the lanes of a vector.
template <class T>
void Gather<T>::fill_panels(SlotLanes<T> to, std::size_t first, std::size_t count) const {
    const Tiles<T>& kernels = tiles<T>();
    for (const auto& panel : strided_.panels()) {
        const Column& column = strided_.all()[panel.first];
        const Tiled tiled{strided_.slots() + panel.first, panel.count, column.stride, to.width};
        for (std::size_t low = 0; low < count; low += kernels.lanes)
            kernels.to_slots(tiled, place(column.data, first + low, column.stride), to.slots + low);
    }
}

/// Lanes from `low` on; beyond the last row, copies of it.
template <class T>
void Gather<T>::fill_tiles(const std::vector<Column>& columns, SlotLanes<T> to, std::size_t first,
                           std::size_t low, std::size_t count) {
    over_tiles(columns, low, to.width, [&](const Column& column, std::size_t row) {
        const T* from = place(column.data, first, column.stride);
        T* lanes = to.at(column.slot);
        for (std::size_t k = row; k < std::min(row + tile, to.width); ++k)
            lanes[k] = *place(from, std::min(k, count - 1), column.stride);
    });
}

template <class T>
Scatter<T>::Scatter(const Code& code, const OutputRows<T>* outputs) {
    columns_.reserve(code.output_count && !outputs[0].sum ? code.output_count : 0);
    for (std::uint32_t i = 0; i < code.output_count; ++i)
        if (!outputs[i].sum) columns_.add({code.outputs[i], outputs[i].data, outputs[i].stride});
    columns_.arrange(tiles<T>().lanes);
}

template <class T>
void Scatter<T>::write(SlotLanes<T> from, std::size_t first, std::size_t count) const {
    const Tiles<T>& kernels = tiles<T>();
    const std::size_t whole = count / kernels.lanes * kernels.lanes;
    for (const auto& panel : columns_.panels()) {
        const Column& column = columns_.all()[panel.first];
        const Tiled tiled{columns_.slots() + panel.first, panel.count, column.stride, from.width};
        for (std::size_t low = 0; low < whole; low += kernels.lanes)
            kernels.to_matrix(tiled, from.slots + low,
                              place(column.data, first + low, column.stride));
    }
    write_tiles(columns_.others(), from, first, 0, count);
    if (whole < count && !columns_.panels().empty())
        write_tiles(columns_.all(), from, first, whole, count);
}

template <class T>
void Scatter<T>::write_tiles(const std::vector<Column>& columns, SlotLanes<T> from,
                             std::size_t first, std::size_t low, std::size_t count) {
    over_tiles(columns, low, count, [&](const Column& column, std::size_t row) {
        const T* lanes = from.at(column.slot);
        T* to = place(column.data, first + row, column.stride);
        for (std::size_t k = row; k < std::min(row + tile, count); ++k, to += column.stride)
            *to = lanes[k];
    });
}

template class Gather<double>;
template class Gather<float>;
template class Scatter<double>;
template class Scatter<float>;

}  // namespace tapegrad
