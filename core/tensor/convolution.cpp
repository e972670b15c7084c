// core/tensor/convolution.cpp -- convolution as products of matrices.
//
// A block of output rows sees a matrix of inputs, [taps, outputs]: one row per channel and place of
// the window. Blocks are chosen so that this matrix stays in the second-level cache.
#include "convolution.h"

#include <algorithm>

#include "gemm.h"
#include "pool.h"
#include "threads.h"
#include "work.h"

namespace tapegrad {
namespace {

constexpr Size matrix_bytes = 512 * 1024;

/// The outputs [low, high) in a row that see an input at place k of the window.
struct Reach {
    Size low, high;
};

Reach reach(const WindowAxis& a, Size k) {
    const Size shift = k * a.dilation - a.padding;
    const Size low = shift >= 0 ? 0 : (-shift + a.stride - 1) / a.stride;
    const Size last = a.in - 1 - shift;
    const Size high = last < 0 ? 0 : std::min(last / a.stride + 1, a.out);
    return {std::min(low, a.out), std::max(std::min(low, a.out), high)};
}

/// Output rows [low, high) of one group of one image.
struct Rows {
    Size low, high;
    Size outputs(const ConvolutionSizes& s) const { return (high - low) * s.w.out; }
};

/// Calls body(offset in the matrix, offset of output 0 in the inputs, reach) for each row of
/// outputs at each place of the window.
template <class Body>
void over_taps(const ConvolutionSizes& s, Rows rows, Body body) {
    Size tap = 0;
    for (Size c = 0; c < s.channels; ++c)
        for (Size kh = 0; kh < s.h.kernel; ++kh)
            for (Size kw = 0; kw < s.w.kernel; ++kw, ++tap) {
                const Reach r = reach(s.w, kw);
                const Size shift = kw * s.w.dilation - s.w.padding;
                for (Size oh = rows.low; oh < rows.high; ++oh) {
                    const Size row = oh * s.h.stride - s.h.padding + kh * s.h.dilation;
                    const bool inside = row >= 0 && row < s.h.in;
                    body((tap * (rows.high - rows.low) + oh - rows.low) * s.w.out,
                         c * s.in_plane() + row * s.w.in + shift, inside ? r : Reach{0, 0});
                }
            }
}

/// The inputs that a block of outputs sees.
template <class T>
void gather_inputs(const ConvolutionSizes& s, const T* x, Rows rows, T* matrix) {
    over_taps(s, rows, [&](Size at, Size from, Reach r) {
        T* to = matrix + at;
        std::fill(to, to + r.low, T(0));
        if (s.w.stride == 1)
            std::copy(x + from + r.low, x + from + r.high, to + r.low);
        else
            for (Size o = r.low; o < r.high; ++o) to[o] = x[from + o * s.w.stride];
        std::fill(to + r.high, to + s.w.out, T(0));
    });
}

/// Its adjoint: adds a matrix to the inputs it was made of.
template <class T>
void scatter_inputs(const ConvolutionSizes& s, const T* matrix, Rows rows, T* gx) {
    over_taps(s, rows, [&](Size at, Size to, Reach r) {
        if (s.w.stride == 1)
            for (Size o = r.low; o < r.high; ++o) gx[to + o] += matrix[at + o];
        else
            for (Size o = r.low; o < r.high; ++o) gx[to + o * s.w.stride] += matrix[at + o];
    });
}

/// Output rows of a block.
template <class T>
Size block_rows(const ConvolutionSizes& s) {
    const Size per_row = s.taps() * s.w.out * static_cast<Size>(sizeof(T));
    return std::clamp<Size>(matrix_bytes / std::max<Size>(per_row, 1), 1, s.h.out);
}

/// Elements of memory of a thread: the matrix of a block, and what a product needs.
struct Room {
    Size matrix, product;
    Size elements() const { return matrix + product; }
};

template <class T>
Room room_of(const ConvolutionSizes& s, Size m, Size n, Size k) {
    return {s.taps() * block_rows<T>(s) * s.w.out, tensor_kernels<T>().gemm->scratch(m, n, k)};
}

/// Calls body(part, task, scratch) for all tasks.
template <class T, class Body>
bool over_tasks(Size tasks, int parts, const Room& room, Body body) {
    Scratch<T> scratch(static_cast<std::size_t>(parts * room.elements()));
    if (!scratch.data()) return false;
    in_parts(tasks, parts, [&](int part, Size low, Size high) {
        for (Size task = low; task < high; ++task)
            body(part, task, scratch.data() + part * room.elements());
    });
    return true;
}

int parts_for(const ConvolutionSizes& s, Size tasks) {
    return parts_of(tasks, s.products() / products_per_element);
}

/// Adds matrices after the first to the first, in order.
template <class T>
void add_partial(T* to, const T* partial, Size count) {
    for (Size i = 0; i < count; ++i) to[i] += partial[i];
}

}  // namespace

template <class T>
bool convolution(const ConvolutionSizes& s, const T* x, const T* weight, const T* bias, T* y) {
    const Size step = block_rows<T>(s), blocks = (s.h.out + step - 1) / step;
    const Size tasks = s.batch * s.groups * blocks, taps = s.taps();
    const auto room = room_of<T>(s, s.filters, step * s.w.out, taps);
    return over_tasks<T>(tasks, parts_for(s, tasks), room, [&](int, Size task, T* matrix) {
        const Size image = task / blocks, group = image % s.groups;  // image: of image and group
        const Rows rows{task % blocks * step, std::min(task % blocks * step + step, s.h.out)};
        gather_inputs(s, x + image * s.channels * s.in_plane(), rows, matrix);
        T* to = y + image * s.filters * s.out_plane() + rows.low * s.w.out;
        const Size outputs = rows.outputs(s);
        if (bias)
            for (Size f = 0; f < s.filters; ++f)
                std::fill_n(to + f * s.out_plane(), outputs, bias[group * s.filters + f]);
        tensor_kernels<T>().gemm->multiply({s.filters,
                                            outputs,
                                            taps,
                                            {weight + group * s.filters * taps, taps, 1},
                                            {matrix, outputs, 1},
                                            to,
                                            s.out_plane(),
                                            bias != nullptr},
                                           matrix + room.matrix);
    });
}

template <class T>
bool convolution_input_grad(const ConvolutionSizes& s, const T* g, const T* weight, T* gx) {
    const Size step = block_rows<T>(s), tasks = s.batch * s.groups, taps = s.taps();
    const auto room = room_of<T>(s, taps, step * s.w.out, s.filters);
    return over_tasks<T>(tasks, parts_for(s, tasks), room, [&](int, Size image, T* matrix) {
        const Size group = image % s.groups;
        T* to = gx + image * s.channels * s.in_plane();
        std::fill_n(to, s.channels * s.in_plane(), T(0));
        for (Size low = 0; low < s.h.out; low += step) {
            const Rows rows{low, std::min(low + step, s.h.out)};
            const Size outputs = rows.outputs(s);
            const T* from = g + image * s.filters * s.out_plane() + low * s.w.out;
            tensor_kernels<T>().gemm->multiply({taps,
                                                outputs,
                                                s.filters,
                                                {weight + group * s.filters * taps, 1, taps},
                                                {from, s.out_plane(), 1},
                                                matrix,
                                                outputs,
                                                false},
                                               matrix + room.matrix);
            scatter_inputs(s, matrix, rows, to);
        }
    });
}

template <class T>
bool convolution_weight_grad(const ConvolutionSizes& s, const T* g, const T* x, T* gweight) {
    const Size step = block_rows<T>(s), blocks = (s.h.out + step - 1) / step, taps = s.taps();
    const Size tasks = s.batch * s.groups * blocks;
    const Size weights = s.groups * s.filters * taps;
    const int parts = parts_for(s, tasks);
    const auto room = room_of<T>(s, s.filters, taps, step * s.w.out);
    std::fill_n(gweight, weights, T(0));
    // Each thread has sums of its own; they are added in order.
    Scratch<T> partial(static_cast<std::size_t>((parts - 1) * weights));
    if (!partial.data()) return false;
    std::fill_n(partial.data(), (parts - 1) * weights, T(0));
    const bool done = over_tasks<T>(tasks, parts, room, [&](int part, Size task, T* matrix) {
        const Size image = task / blocks, group = image % s.groups;
        const Rows rows{task % blocks * step, std::min(task % blocks * step + step, s.h.out)};
        const Size outputs = rows.outputs(s);
        gather_inputs(s, x + image * s.channels * s.in_plane(), rows, matrix);
        const T* from = g + image * s.filters * s.out_plane() + rows.low * s.w.out;
        T* to = part ? partial.data() + (part - 1) * weights : gweight;
        tensor_kernels<T>().gemm->multiply({s.filters,
                                            taps,
                                            outputs,
                                            {from, s.out_plane(), 1},
                                            {matrix, 1, outputs},
                                            to + group * s.filters * taps,
                                            taps,
                                            true},
                                           matrix + room.matrix);
    });
    for (int part = 1; part < parts; ++part)
        add_partial(gweight, partial.data() + (part - 1) * weights, weights);
    return done;
}

#define TG_INSTANTIATE(T)                                                                  \
    template bool convolution(const ConvolutionSizes&, const T*, const T*, const T*, T*);  \
    template bool convolution_input_grad(const ConvolutionSizes&, const T*, const T*, T*); \
    template bool convolution_weight_grad(const ConvolutionSizes&, const T*, const T*, T*);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE

}  // namespace tapegrad
