// core/tensor/items.h -- elements that are moved and not looked at, by their size.
#pragma once

#include <cstdint>

#include "view.h"

namespace tapegrad {

struct Item16 {
    std::uint64_t a, b;
};

/// Calls body(T{}) with a type of 1, 2, 4, 8 or 16 bytes.
template <class Body>
decltype(auto) with_item(Size itemsize, Body body) {
    switch (itemsize) {
        case 1:
            return body(std::uint8_t{});
        case 2:
            return body(std::uint16_t{});
        case 4:
            return body(std::uint32_t{});
        case 8:
            return body(std::uint64_t{});
        default:
            return body(Item16{});
    }
}

}  // namespace tapegrad
