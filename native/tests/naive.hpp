// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reduction written out element by element, as slow and plain as can be: what reduce.hpp promises.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "base/types.hpp"

namespace naive {

inline double from_f16(std::uint16_t half) {
    const int exponent = half >> 10 & 31;
    const int mantissa = half & 1023;
    const double sign = half & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31) {
        return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
    }
    return exponent ? sign * std::ldexp(1024 + mantissa, exponent - 25) : sign * std::ldexp(mantissa, -24);
}

/// Round to nearest even by trying: quotient and remainder of the step between neighbours.
inline std::uint16_t to_f16(float value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isnan(value)) {
        return 0x7e00 | sign;
    }
    if (magnitude >= 65520.0) {  // halfway from the greatest f16 to what would come next
        return 0x7c00 | sign;
    }
    const int exponent = magnitude < std::ldexp(1, -14) ? -14 : std::ilogb(magnitude);
    const double steps = magnitude / std::ldexp(1, exponent - 10);  // exact: a power of two
    const double whole = std::floor(steps);
    const double rest = steps - whole;
    const bool odd = std::fmod(whole, 2) == 1;
    const int rounded = static_cast<int>(whole) + (rest > 0.5 || (rest == 0.5 && odd));
    // A carry out of the mantissa moves into the exponent by itself.
    const int bits = (exponent + 14) * 1024 + rounded;
    return static_cast<std::uint16_t>(bits | sign);
}

inline float from_bf16(std::uint16_t half) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value)) {
        return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x7fc0);
    }
    const std::uint32_t rest = bits & 0xffff;
    const std::uint32_t kept = bits >> 16;
    return static_cast<std::uint16_t>(kept + (rest > 0x8000 || (rest == 0x8000 && kept % 2 == 1)));
}

template <class T> T combine(T a, T b, tmc::Op op) {
    using Op = tmc::Op;
    if constexpr (std::is_floating_point_v<T>) {
        if (op == Op::min || op == Op::max) {
            if (std::isnan(a) || std::isnan(b)) {
                return std::numeric_limits<T>::quiet_NaN();
            }
            return (op == Op::min ? a < b : a > b) ? a : b;
        }
        return op == Op::product ? a * b : a + b;
    } else {
        // 128 bits hold every sum and product of 64; the cast wraps.
        const auto x = static_cast<__uint128_t>(a);
        const auto y = static_cast<__uint128_t>(b);
        switch (op) {
            case Op::min: return a < b ? a : b;
            case Op::max: return a > b ? a : b;
            case Op::product: return static_cast<T>(x * y);
            case Op::band: return static_cast<T>(a & b);
            case Op::bor: return static_cast<T>(a | b);
            case Op::bxor: return static_cast<T>(a ^ b);
            default: return static_cast<T>(x + y);
        }
    }
}

template <class T> T final_of(T value, tmc::Op op, std::uint32_t seats) {
    if constexpr (std::is_floating_point_v<T>) {
        const T result = op == tmc::Op::avg ? value / static_cast<T>(seats) : value;
        return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
    } else {
        return op == tmc::Op::avg ? static_cast<T>(static_cast<__int128_t>(value) / seats) : value;
    }
}

template <class T> T read(const void* memory, std::size_t index) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(memory) + index * sizeof(T), sizeof(T));
    return value;
}

template <class T> void write(void* memory, std::size_t index, T value) {
    std::memcpy(static_cast<std::byte*>(memory) + index * sizeof(T), &value, sizeof(T));
}

using Inputs = std::span<const void* const>;

template <class T> void plain(Inputs inputs, void* out, std::size_t i, tmc::Op op, std::uint32_t seats) {
    T total = read<T>(inputs[0], i);
    for (const void* input : inputs.subspan(1)) {
        total = combine(total, read<T>(input, i), op);
    }
    write(out, i, final_of(total, op, seats));
}

template <class T> void complex(Inputs inputs, void* out, std::size_t i, tmc::Op op, std::uint32_t seats) {
    T re = read<T>(inputs[0], 2 * i);
    T im = read<T>(inputs[0], 2 * i + 1);
    for (const void* input : inputs.subspan(1)) {
        const T re2 = read<T>(input, 2 * i);
        const T im2 = read<T>(input, 2 * i + 1);
        const T re1 = re;
        re = op == tmc::Op::product ? re1 * re2 - im * im2 : re1 + re2;
        im = op == tmc::Op::product ? re1 * im2 + im * re2 : im + im2;
    }
    write(out, 2 * i, final_of(re, op, seats));
    write(out, 2 * i + 1, final_of(im, op, seats));
}

inline void half(Inputs inputs, void* out, std::size_t i, tmc::Op op, std::uint32_t seats, bool brain) {
    const auto at = [&](const void* input) {
        const auto bits = read<std::uint16_t>(input, i);
        return brain ? from_bf16(bits) : static_cast<float>(from_f16(bits));
    };
    float total = at(inputs[0]);
    for (const void* input : inputs.subspan(1)) {
        total = combine(total, at(input), op);
    }
    total = final_of(total, op, seats);
    write(out, i, brain ? to_bf16(total) : to_f16(total));
}

inline void boolean(Inputs inputs, void* out, std::size_t i, tmc::Op op) {
    using Op = tmc::Op;
    bool total = read<std::uint8_t>(inputs[0], i) != 0;
    for (const void* input : inputs.subspan(1)) {
        const bool next = read<std::uint8_t>(input, i) != 0;
        const bool all = op == Op::product || op == Op::min || op == Op::band;
        total = all ? total && next : op == Op::bxor ? total != next : total || next;
    }
    write(out, i, static_cast<std::uint8_t>(total));
}

inline void reduce(Inputs inputs, void* out, std::size_t count, tmc::DType dtype, tmc::Op op,
                   std::uint32_t seats) {
    using D = tmc::DType;
    for (std::size_t i = 0; i < count; ++i) {
        switch (dtype) {
            case D::f64: plain<double>(inputs, out, i, op, seats); break;
            case D::f32: plain<float>(inputs, out, i, op, seats); break;
            case D::f16: half(inputs, out, i, op, seats, false); break;
            case D::bf16: half(inputs, out, i, op, seats, true); break;
            case D::i8: plain<std::int8_t>(inputs, out, i, op, seats); break;
            case D::i16: plain<std::int16_t>(inputs, out, i, op, seats); break;
            case D::i32: plain<std::int32_t>(inputs, out, i, op, seats); break;
            case D::i64: plain<std::int64_t>(inputs, out, i, op, seats); break;
            case D::u8: plain<std::uint8_t>(inputs, out, i, op, seats); break;
            case D::u16: plain<std::uint16_t>(inputs, out, i, op, seats); break;
            case D::u32: plain<std::uint32_t>(inputs, out, i, op, seats); break;
            case D::u64: plain<std::uint64_t>(inputs, out, i, op, seats); break;
            case D::c64: complex<float>(inputs, out, i, op, seats); break;
            case D::c128: complex<double>(inputs, out, i, op, seats); break;
            case D::boolean: boolean(inputs, out, i, op); break;
            case D::byte1: break;
        }
    }
}

}  // namespace naive
