// core/tensor/norm_kernels.cpp -- normalisation of rows, and down columns.
//
// Compiled once per instruction set and number type. Variances are those of deviations from the
// mean, in a second pass over a row that is still in the cache.
#include "kernels.h"
#include "vectors.h"

namespace tapegrad {
namespace TG_ISA {
namespace {

/// The sum of term(position, lanes left) over n numbers; missing lanes must give 0.
template <class Term>
TG_INLINE Real sum_of(Size n, Term term) {
    Vec a = 0, b = 0, c = 0, d = 0;
    Size i = 0;
    for (; i + 4 * native <= n; i += 4 * native) {
        a = a + term(i, Size(native));
        b = b + term(i + native, Size(native));
        c = c + term(i + 2 * native, Size(native));
        d = d + term(i + 3 * native, Size(native));
    }
    for (; i + native <= n; i += native) a = a + term(i, Size(native));
    if (i < n) b = b + term(i, n - i);
    return sum_across((a + b) + (c + d));
}

TG_INLINE Real sum(const Real* x, Size n) {
    return sum_of(n, [&](Size i, Size left) TG_LAMBDA { return load_up_to(x + i, left, 0); });
}

/// Rows whose sums are taken in one go; longer ones in pieces, so that errors stay small.
constexpr Size piece = 128 * 4 * native;

Real deviations(const Real* x, Size n, Real mean) {
    double total = 0;
    for (Size first = 0; first < n; first += piece) {
        const Size count = n - first < piece ? n - first : piece;
        total += double(sum_of(count, [&](Size i, Size left) TG_LAMBDA {
            const Vec d = load_up_to(x + first + i, left, mean) - mean;
            return d * d;
        }));
    }
    return Real(total);
}

void affine(const Real* x, Real* y, Size n, Real mean, Real scale, Real shift) {
    each_vector(n, [&](Size i, Size left) TG_LAMBDA {
        store_up_to(fma(load_up_to(x + i, left, 0) - mean, scale, shift), y + i, left);
    });
}

void moments(const Real* g, const Real* x, Size n, Real mean, double* sum, double* product) {
    for (Size first = 0; first < n; first += piece) {
        const Size count = n - first < piece ? n - first : piece;
        Vec s0 = 0, s1 = 0, p0 = 0, p1 = 0;
        Size i = 0;
        for (; i + 2 * native <= count; i += 2 * native) {
            const Vec g0 = Vec::load(g + first + i), g1 = Vec::load(g + first + i + native);
            s0 = s0 + g0;
            s1 = s1 + g1;
            p0 = fma(g0, Vec::load(x + first + i) - mean, p0);
            p1 = fma(g1, Vec::load(x + first + i + native) - mean, p1);
        }
        for (; i < count; i += native) {
            const Vec gi = load_up_to(g + first + i, count - i, 0);
            s0 = s0 + gi;
            p0 = fma(gi, load_up_to(x + first + i, count - i, mean) - mean, p0);
        }
        *sum += double(sum_across(s0 + s1));
        *product += double(sum_across(p0 + p1));
    }
}

void blend(const Real* g, const Real* x, Real* gx, Size n, Real mean, Real a, Real b, Real c) {
    each_vector(n, [&](Size i, Size left) TG_LAMBDA {
        const Vec d = load_up_to(x + i, left, 0) - mean;
        store_up_to(fma(load_up_to(g + i, left, 0), a, fma(d, b, c)), gx + i, left);
    });
}

// ---- down columns ------------------------------------------------------------------------------

/// Rows that are summed before their sum is added to that of the others.
constexpr Size row_block = 64;

void deviations_columns(const Real* x, Size stride, Size rows, Size columns, const Real* mean,
                        Real* out) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec centre = load_up_to(mean + c, left, 0);
        Vec total = 0;
        for (Size first = 0; first < rows; first += row_block) {
            Vec part = 0;
            for (Size r = first; r < rows && r < first + row_block; ++r) {
                const Vec d = load_up_to(x + r * stride + c, left, 0) - centre;
                part = fma(d, d, part);
            }
            total = total + part;
        }
        store_up_to(total, out + c, left);
    });
}

void affine_columns(const Real* x, Real* y, Size stride, Size rows, Size columns, const Real* mean,
                    const Real* scale, const Real* shift) {
    for (Size r = 0; r < rows; ++r, x += stride, y += stride)
        each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
            const Vec d = load_up_to(x + c, left, 0) - load_up_to(mean + c, left, 0);
            store_up_to(fma(d, load_up_to(scale + c, left, 0), load_up_to(shift + c, left, 0)),
                        y + c, left);
        });
}

void moments_columns(const Real* g, const Real* x, Size stride, Size rows, Size columns,
                     const Real* mean, Real* sum, Real* product) {
    each_vector(columns, [&](Size c, Size left) TG_LAMBDA {
        const Vec centre = load_up_to(mean + c, left, 0);
        Vec total = 0, total_product = 0;
        for (Size first = 0; first < rows; first += row_block) {
            Vec s = 0, p = 0;
            for (Size r = first; r < rows && r < first + row_block; ++r) {
                const Vec gi = load_up_to(g + r * stride + c, left, 0);
                s = s + gi;
                p = fma(gi, load_up_to(x + r * stride + c, left, 0) - centre, p);
            }
            total = total + s;
            total_product = total_product + p;
        }
        store_up_to(total, sum + c, left);
        store_up_to(total_product, product + c, left);
    });
}

void blend_columns(const Real* g, const Real* x, Real* gx, Size stride, Size rows, Size columns,
                   const Real* mean, const Real* a, const Real* b, const Real* c) {
    for (Size r = 0; r < rows; ++r, g += stride, x += stride, gx += stride)
        each_vector(columns, [&](Size i, Size left) TG_LAMBDA {
            const Vec d = load_up_to(x + i, left, 0) - load_up_to(mean + i, left, 0);
            const Vec rest = fma(d, load_up_to(b + i, left, 0), load_up_to(c + i, left, 0));
            store_up_to(fma(load_up_to(g + i, left, 0), load_up_to(a + i, left, 0), rest), gx + i,
                        left);
        });
}

// ---- layer norm --------------------------------------------------------------------------------

/// The element i of an optional array.
TG_INLINE Vec element(const Real* values, Size i, Size left, Real missing) {
    return values ? load_up_to(values + i, left, 0) : Vec(missing);
}

void layer_rows(const Real* x, const Real* weight, const Real* bias, Real eps, Real* y, Real* means,
                Real* rstds, Size rows, Size n) {
    for (Size r = 0; r < rows; ++r, x += n, y += n) {
        const Real mean = sum(x, n) / Real(n);
        const Real variance = deviations(x, n, mean) / Real(n);
        const Real rstd = (Real(1) / sqrt(Lanes<Real, 1>(variance + eps)))[0];
        means[r] = mean;
        rstds[r] = rstd;
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            const Vec normal = (load_up_to(x + i, left, 0) - mean) * rstd;
            store_up_to(fma(normal, element(weight, i, left, 1), element(bias, i, left, 0)), y + i,
                        left);
        });
    }
}

void layer_rows_backward(const Real* g, const Real* x, const Real* means, const Real* rstds,
                         const Real* weight, Real* gx, Real* gweight, Real* gbias, Size rows,
                         Size n) {
    for (Size r = 0; r < rows; ++r, g += n, x += n, gx += gx ? n : 0) {
        const Real mean = means[r], rstd = rstds[r];
        Vec sum = 0, product = 0;
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            const Vec gi = load_up_to(g + i, left, 0);
            const Vec normal = (load_up_to(x + i, left, mean) - mean) * rstd;
            const Vec weighted = gi * element(weight, i, left, 1);
            sum = sum + weighted;
            product = fma(weighted, normal, product);
            if (gweight)
                store_up_to(fma(gi, normal, load_up_to(gweight + i, left, 0)), gweight + i, left);
            if (gbias) store_up_to(gi + load_up_to(gbias + i, left, 0), gbias + i, left);
        });
        if (!gx) continue;
        const Real mean_sum = sum_across(sum) / Real(n);
        const Real mean_product = sum_across(product) / Real(n);
        each_vector(n, [&](Size i, Size left) TG_LAMBDA {
            const Vec weighted = load_up_to(g + i, left, 0) * element(weight, i, left, 1);
            const Vec normal = (load_up_to(x + i, left, 0) - mean) * rstd;
            store_up_to((weighted - mean_sum - normal * mean_product) * rstd, gx + i, left);
        });
    }
}

}  // namespace

extern const NormKernels<Real> TG_TABLE(norm_);
const NormKernels<Real> TG_TABLE(norm_) = {
    deviations,     affine,          moments,       blend,      deviations_columns,
    affine_columns, moments_columns, blend_columns, layer_rows, layer_rows_backward};

}  // namespace TG_ISA
}  // namespace tapegrad
