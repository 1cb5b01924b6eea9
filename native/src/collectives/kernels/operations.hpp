// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an operation does to two elements. Included by body.hpp alone, within no namespace; everything
// is in an unnamed one.
#include <cstdint>

namespace tmc {
namespace {

template <bool condition, class A, class B> struct Choose { using Type = A; };
template <class A, class B> struct Choose<false, A, B> { using Type = B; };

/// Unsigned and no narrower than int, so that nothing is promoted to a signed type and wrapping is
/// defined.
template <class T> using Wrapping = typename Choose<sizeof(T) == 8, std::uint64_t, std::uint32_t>::Type;

template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;

template <class T> struct Complex { T re; T im; };

template <class T> struct Sum {
    static T apply(T a, T b) {
        if constexpr (is_float<T>) {
            return a + b;
        } else {
            return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
        }
    }
};

template <class T> struct Product {
    static T apply(T a, T b) {
        if constexpr (is_float<T>) {
            return a * b;
        } else {
            return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
        }
    }
};

/// A product rounded by itself. GCC 12 recognises a complex product and makes vfmaddsub of it where the
/// CPU has that, which rounds once instead of twice, and -ffp-contract=off does not stop it.
template <class T> T apart(T product) {
    volatile T rounded = product;
    return rounded;
}

template <class T> struct Product<Complex<T>> {
    static Complex<T> apply(Complex<T> a, Complex<T> b) {
        return {apart(a.re * b.re) - apart(a.im * b.im), apart(a.re * b.im) + apart(a.im * b.re)};
    }
};

// Two selections and no jump, so that the loop becomes vectors. `a != a` is NaN; where b is NaN, `a < b`
// is false and b is taken.
template <class T> struct Min {
    static T apply(T a, T b) {
        const T less = a < b ? a : b;
        return a != a ? a : less;
    }
};
template <class T> struct Max {
    static T apply(T a, T b) {
        const T more = a > b ? a : b;
        return a != a ? a : more;
    }
};

struct BitAnd { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return a & b; } };
struct BitOr { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return a | b; } };
struct BitXor { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return a ^ b; } };

struct Both { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return a != 0 && b != 0; } };
struct Either { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return (a | b) != 0; } };
struct Differ { static std::uint8_t apply(std::uint8_t a, std::uint8_t b) { return (a != 0) != (b != 0); } };

}  // namespace
}  // namespace tmc
