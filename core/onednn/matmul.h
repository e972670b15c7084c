// core/onednn/matmul.h -- products of matrices and of batches of them, float32.
#pragma once

#include <array>
#include <cstdint>

#include "plan.h"

namespace tapegrad::onednn {

/// y (batch..., m, n) = a (batch..., m, k) b (batch..., k, n). A batch size of a or b may be 1
/// where the other's is not. Operands are contiguous, or their last two dimensions swapped are.
struct Matmul {
    static constexpr int max_batch_dims = 10;

    std::int64_t m, k, n;
    std::int64_t batch_dims = 0;
    std::int64_t a_transposed = 0, b_transposed = 0;  ///< (k, m) and (n, k) in memory
    std::array<std::int64_t, max_batch_dims> a_batch{}, b_batch{};

    std::int64_t y_batch(std::size_t d) const { return a_batch[d] == 1 ? b_batch[d] : a_batch[d]; }
    double flops() const {
        double product = 2.0 * static_cast<double>(m * k) * static_cast<double>(n);
        for (std::size_t d = 0; d < static_cast<std::size_t>(batch_dims); ++d)
            product *= static_cast<double>(y_batch(d));
        return product;
    }
};

/// bias (n) may be null. With a key, b is packed once and kept where that pays.
void matmul(const Matmul& problem, const float* a, const float* b, const float* bias, float* y,
            WeightKey key);

}  // namespace tapegrad::onednn
