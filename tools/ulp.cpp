// Measures the error of every function of core/scalar/maths.h for the instruction set it is
// compiled for, in units in the last place (ulp) of the exact result.
//
// The oracle is the quadruple precision library for double, and the double one for float. Besides
// the error it checks that all vector widths and the scalar agree bit by bit, and that the paired
// forms agree with the single ones. tools/ulp.py builds and runs it for every instruction set.
//
//     ulp SAMPLES [FUNCTION ...]
//
// prints lines `function dtype max_ulp argument [argument] checksum`.
#include <stdio.h>
#include <stdlib.h>

#include "../core/scalar/maths.h"

#if defined(__x86_64__)
#include <quadmath.h>
#define WIDE(NAME) NAME##q
using Quad = __float128;
#else
#define WIDE(NAME) NAME##l
using Quad = long double;
#endif

namespace tapegrad {
namespace TG_ISA {
namespace {

// ---- Oracles -----------------------------------------------------------------------------------

#define TG_ORACLE(NAME)                                        \
    static double exact_##NAME(double a) { return ::NAME(a); } \
    static Quad exact_##NAME(Quad a) { return WIDE(NAME)(a); }
#define TG_ORACLE2(NAME)                                                    \
    static double exact_##NAME(double a, double b) { return ::NAME(a, b); } \
    static Quad exact_##NAME(Quad a, Quad b) { return WIDE(NAME)(a, b); }

TG_ORACLE(exp)
TG_ORACLE(expm1)
TG_ORACLE(log)
TG_ORACLE(log1p)
TG_ORACLE(log2)
TG_ORACLE(log10)
TG_ORACLE(sqrt)
TG_ORACLE(sin)
TG_ORACLE(cos)
TG_ORACLE(tan)
TG_ORACLE(asin)
TG_ORACLE(acos)
TG_ORACLE(atan)
TG_ORACLE(sinh)
TG_ORACLE(cosh)
TG_ORACLE(tanh)
TG_ORACLE(erf)
TG_ORACLE(erfc)
TG_ORACLE(floor)
TG_ORACLE(ceil)
TG_ORACLE(rint)
TG_ORACLE2(atan2)
TG_ORACLE2(hypot)

static double exact_pow(double a, double b) { return ::pow(a, b); }
static Quad exact_pow(Quad a, Quad b) {
    return a == 1 ? Quad(1) : WIDE(pow)(a, b);  // powq(1, NaN) is NaN
}

// Of two zeros the second, as it is documented.
template <class W>
static W exact_maximum(W a, W b) {
    return a != a || a > b ? a : b;
}
template <class W>
static W exact_minimum(W a, W b) {
    return a != a || a < b ? a : b;
}

template <class W>
static W exact_sigmoid(W a) {
    return a < 0 ? exact_exp(a) / (1 + exact_exp(a)) : 1 / (1 + exact_exp(-a));
}
template <class W>
static W exact_softplus(W a) {
    return a < 0 ? exact_log1p(exact_exp(a)) : a + exact_log1p(exact_exp(-a));
}
template <class W>
static W exact_gelu(W a) {
    if (a == -W(__builtin_inf())) return -W(0);
    return a / 2 * exact_erfc(-a / exact_sqrt(W(2)));
}

// ---- Arguments ---------------------------------------------------------------------------------

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t random_bits() {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static double uniform(double low, double high) {
    return low + (high - low) * double(random_bits() >> 11) * 0x1p-53;
}

static double sign_of_chance() { return random_bits() & 1 ? 1 : -1; }

static const double edges[] = {0.0,
                               1.0,
                               0.5,
                               2.0,
                               4.0,
                               0.41421356237309503,
                               0.70710678118654752,
                               1.4142135623730951,
                               0.34657359027997264,
                               0.69314718055994531,
                               0.78539816339744828,
                               1.5707963267948966,
                               3.1415926535897931,
                               37.0,
                               36.7368005696771,
                               40.0,
                               87.33,
                               87.336544,
                               88.72283,
                               103.97,
                               104.0,
                               110.0,
                               708.39,
                               708.3964185322641,
                               709.0895657128241,
                               709.782712893384,
                               709.7827128933841,
                               745.13321910194122,
                               745.1332191019412,
                               746.0,
                               800.0,
                               1e5,
                               1e6,
                               1e9,
                               1e22,
                               1e300,
                               1.7976931348623157e308,
                               3.4028234663852886e38,
                               1.1754943508222875e-38,
                               1.401298464324817e-45,
                               2.2250738585072014e-308,
                               4.9406564584124654e-324,
                               0x1.fffffffffffffp-1023,
                               __builtin_inf(),
                               __builtin_nan("")};
constexpr int edge_count = sizeof edges / sizeof edges[0];

template <class T>
static T argument(long i) {
    if (i < 2 * edge_count) {
        return T(i % 2 ? -edges[i / 2] : edges[i / 2]);
    }
    switch (random_bits() % 11) {
        case 0: {  // any bits
            typename Format<T>::UInt b = typename Format<T>::UInt(random_bits());
            T value;
            memcpy(&value, &b, sizeof value);
            return value != value ? Format<T>::nan : value;  // no signaling one
        }
        case 1:
            return T(uniform(-1, 1));
        case 2:
            return T(uniform(-10, 10));
        case 3:
            return T(uniform(-50, 50));
        case 4:
            return T(uniform(-800, 800));
        case 5:  // close to a multiple of pi / 4
            return T(double(int64_t(random_bits() % (1 << (1 + random_bits() % 22)))) *
                     0.78539816339744831 * sign_of_chance());
        case 6:  // close to 1
            return T(sign_of_chance() * (1 + sign_of_chance() * ::exp(uniform(-40, 0))));
        case 7:
            return T(sign_of_chance() * ::exp(uniform(-20, 15)));
        case 8:
            return T(uniform(-2, 2));
        case 9:  // where e^a is close to a multiple of 1 / 16, as softplus looks it up
            return T(sign_of_chance() * ::log(double(1 + random_bits() % 16) / 16) *
                     (1 + uniform(-0.02, 0.02)));
        default:  // an edge and its surroundings
            return T(sign_of_chance() * edges[random_bits() % edge_count] *
                     (1 + double(random_bits() % 64) * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53)));
    }
}

// ---- Measuring ---------------------------------------------------------------------------------

template <class T>
static bool same_bits(T a, T b) {
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

// The spacing of the numbers of type T at the exact value.
template <class T, class W>
static W spacing(W exact) {
    T rounded = T(exact < 0 ? -exact : exact);
    rounded = rounded > Format<T>::largest ? Format<T>::largest : rounded;
    rounded = rounded < Format<T>::smallest_normal ? Format<T>::smallest_normal : rounded;
    int exponent;
    ::frexp(double(rounded), &exponent);
    return W(
        ::ldexp(1.0, sizeof(T) == 8 ? (exponent < -1021 ? -1074 : exponent - 53) : exponent - 24));
}

template <class T, class W>
static double ulp_error(T got, W exact) {
    if (exact != exact || got != got) {
        return exact != exact && got != got ? 0 : HUGE_VAL;
    }
    if (same_bits(got, T(exact))) {
        return 0;
    }
    if (exact == 0 || T(exact) - T(exact) != 0) {
        // A wrong zero sign, or not the infinity; the largest number is as near as its ulp.
        W largest = W(Format<T>::largest), unit = spacing<T>(largest);
        W magnitude = exact < 0 ? -exact : exact;
        W mine = W(got < 0 ? -got : got);
        if (exact == 0 || magnitude > 2 * largest || (got < 0) != (exact < 0)) return HUGE_VAL;
        return double((magnitude - mine) / unit);
    }
    if (got - got != 0) {
        W limit = W(Format<T>::largest) + spacing<T>(W(Format<T>::largest));
        W magnitude = exact < 0 ? -exact : exact;
        return (got < 0) != (exact < 0) ? HUGE_VAL
                                        : double((limit - magnitude) / spacing<T>(limit));
    }
    W difference = W(got) - exact;
    return double((difference < 0 ? -difference : difference) / spacing<T>(exact));
}

static bool failed = false;

template <class T, class Single, class Wide>
struct Compare {
    const char* name;
    const T *a, *b;
    T* result;
    long count;
    Single single;

    // Runs N lanes at a time, and compares with the scalar results.
    template <int N>
    void width() {
        if constexpr (N <= native_lanes<T>) {
            for (long i = 0; i + N <= count; i += N) {
                using L = Lanes<T, N>;
                T got[N];
                single(L::load(a + i), L::load(b + i)).store(got);
                for (int lane = 0; lane < N; ++lane) {
                    if (!same_bits(got[lane], result[i + lane])) {
                        if (!failed) {
                            fprintf(stderr, "%s: %d lanes give %a at %a, 1 lane %a\n", name, N,
                                    double(got[lane]), double(a[i + lane]),
                                    double(result[i + lane]));
                        }
                        failed = true;
                    }
                }
            }
        }
    }
};

template <class T, class W, class Single, class Exact>
static void measure(const char* name, long count, Single single, Exact exact) {
    random_state = 12345;
    T* a = (T*)malloc(sizeof(T) * count);
    T* b = (T*)malloc(sizeof(T) * count);
    T* result = (T*)malloc(sizeof(T) * count);
    for (long i = 0; i < count; ++i) {
        a[i] = argument<T>(i);
        b[i] = i < 4 * edge_count * edge_count ? argument<T>(i / (2 * edge_count))
                                               : argument<T>(4 * edge_count);
        if (i < 4 * edge_count * edge_count) {
            a[i] = argument<T>(i % (2 * edge_count));
        }
        using L = Lanes<T, 1>;
        single(L(a[i]), L(b[i])).store(result + i);
    }
    Compare<T, Single, W> compare{name, a, b, result, count, single};
    failed = false;
    compare.template width<16 / sizeof(T)>();
    compare.template width<32 / sizeof(T)>();
    compare.template width<64 / sizeof(T)>();

    double worst = 0;
    long at = 0;
    uint64_t checksum = 0;
    for (long i = 0; i < count; ++i) {
        double error = ulp_error<T, W>(result[i], exact(W(a[i]), W(b[i])));
        if (error > worst) {
            worst = error;
            at = i;
        }
        T canonical = result[i] != result[i] ? T(0) : result[i];
        uint64_t word = 0;
        memcpy(&word, &canonical, sizeof canonical);
        checksum = checksum * 0x100000001b3 + word;
    }
    printf("%s %s %.3f %.17g %.17g %016llx %s\n", name, sizeof(T) == 8 ? "float64" : "float32",
           worst, double(a[at]), double(b[at]), (unsigned long long)checksum,
           failed ? "widths-differ" : "same");
    fflush(stdout);
    free(a);
    free(b);
    free(result);
}

static bool wanted(const char* name, int count, char** names) {
    for (int i = 0; i < count; ++i) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return count == 0;
}

static int main(long samples, int names, char** name) {
#define TG_MEASURE(LABEL, CALL, EXACT)                                                             \
    if (wanted(LABEL, names, name)) {                                                              \
        measure<double, Quad>(                                                                     \
            LABEL, samples, []([[maybe_unused]] auto a, [[maybe_unused]] auto b) { return CALL; }, \
            []([[maybe_unused]] Quad a, [[maybe_unused]] Quad b) { return EXACT; });               \
        measure<float, double>(                                                                    \
            LABEL, samples * 4,                                                                    \
            []([[maybe_unused]] auto a, [[maybe_unused]] auto b) { return CALL; },                 \
            []([[maybe_unused]] double a, [[maybe_unused]] double b) { return EXACT; });           \
    }
#define TG_ONE(NAME) TG_MEASURE(#NAME, NAME(a), exact_##NAME(a))
#define TG_TWO(NAME) TG_MEASURE(#NAME, NAME(a, b), exact_##NAME(a, b))
#define TG_PAIR(LABEL, NAME, WHICH, EXACT) \
    TG_MEASURE(LABEL, ([&] {               \
                   decltype(a) x, y;       \
                   NAME(a, x, y);          \
                   return WHICH;           \
               }()),                       \
               EXACT(a))

    TG_ONE(exp)
    TG_ONE(expm1)
    TG_ONE(log)
    TG_ONE(log1p)
    TG_ONE(log2)
    TG_ONE(log10)
    TG_ONE(sqrt)
    TG_ONE(sin)
    TG_ONE(cos)
    TG_ONE(tan)
    TG_ONE(asin)
    TG_ONE(acos)
    TG_ONE(atan)
    TG_ONE(sinh)
    TG_ONE(cosh)
    TG_ONE(tanh)
    TG_ONE(sigmoid)
    TG_ONE(softplus)
    TG_ONE(gelu)
    TG_ONE(erf)
    TG_ONE(erfc)
    TG_TWO(atan2)
    TG_TWO(pow)
    TG_TWO(hypot)
    TG_ONE(floor)
    TG_ONE(ceil)
    TG_MEASURE("round_even", round_even(a), exact_rint(a))
    TG_TWO(maximum)
    TG_TWO(minimum)
    TG_PAIR("softplus_sigmoid.0", softplus_sigmoid, x, exact_softplus)
    TG_PAIR("softplus_sigmoid.1", softplus_sigmoid, y, exact_sigmoid)
    TG_PAIR("sincos.0", sincos, x, exact_sin)
    TG_PAIR("sincos.1", sincos, y, exact_cos)
    return 0;
}

}  // namespace
}  // namespace TG_ISA
}  // namespace tapegrad

int main(int count, char** arguments) {
    long samples = count > 1 ? atol(arguments[1]) : 100000;
    return tapegrad::TG_ISA::main(samples, count - 2, arguments + 2);
}
