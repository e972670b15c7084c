// core/tensor/index.h -- elements and rows by index: gather, scatter, select and their adjoints.
//
// Every index is checked where it is read, so that no other thread can change it in between.
#pragma once

#include "view.h"

namespace tapegrad {

/// Where an index was out of range: its position among the indices, or no_position.
constexpr Size no_position = -1;

/// out[..., i, ...] = x[..., index[..., i, ...], ...] for elements of 1, 2, 4, 8 or 16 bytes. x has
/// any strides; index and out are contiguous and no larger than x outside of dim.
Size gather(const View& x, int dim, const View& index, const View& out);
/// out[..., index[..., i, ...], ...] += src[..., i, ...]. Contiguous arrays; src is at least as
/// large as index, out outside of dim. Numbers; sums are taken in the order of the indices.
Size scatter_add(const View& out, int dim, const View& index, const View& src);

/// out[o, i, :] = x[o, index[i], :]; inner counts bytes.
Size select_rows(const char* x, const Slab& slab, const std::int64_t* index, Size count, char* out);
/// out[o, index[i], :] += src[o, i, :]; entries equal to `skipped` are left out.
Size add_rows(const View& out, const Slab& slab, const std::int64_t* index, Size count,
              const View& src, Size skipped);

}  // namespace tapegrad
