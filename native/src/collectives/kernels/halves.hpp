// SPDX-License-Identifier: Apache-2.0
#pragma once

// f16 and bf16 as IEEE 754 has them, by integer arithmetic that becomes vectors on every CPU, and by the
// CPU's own conversion where body.hpp is compiled for it. Included by body.hpp alone.
#include <cstddef>
#include <cstdint>

namespace tmc {
namespace {

inline float as_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t as_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

constexpr std::uint32_t f32_infinity = 0x7f800000;

inline float widen_bf16(std::uint16_t half) { return as_float(static_cast<std::uint32_t>(half) << 16); }

inline std::uint16_t narrow_bf16(float value) {
    const std::uint32_t bits = as_bits(value);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > f32_infinity;  // rounding could carry it to infinity
    return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
}

inline float widen_f16(std::uint16_t half) {
    const std::uint32_t magnitude = (static_cast<std::uint32_t>(half) & 0x7fff) << 13;
    const std::uint32_t exponent = magnitude & (0x7c00U << 13);
    const std::uint32_t normal = magnitude + ((127 - 15) << 23);
    const std::uint32_t special = normal + ((128 - 16) << 23);
    // A subnormal is read as if it had the leading one, which is then taken away: exact.
    constexpr std::uint32_t least = 113U << 23;
    const std::uint32_t small = as_bits(as_float(normal + (1U << 23)) - as_float(least));
    const std::uint32_t finite = exponent == 0 ? small : normal;
    const std::uint32_t bits = exponent == (0x7c00U << 13) ? special : finite;
    return as_float(bits | (static_cast<std::uint32_t>(half) & 0x8000) << 16);
}

inline std::uint16_t narrow_f16(float value) {
    const std::uint32_t sign = as_bits(value) & 0x80000000;
    const std::uint32_t bits = as_bits(value) ^ sign;
    const std::uint32_t special = bits > f32_infinity ? 0x7e00U : 0x7c00U;
    // Adding a float whose last place is the last place of a subnormal f16 makes the adder round.
    constexpr std::uint32_t last_place = ((127 - 15) + (23 - 10) + 1) << 23;
    const std::uint32_t small = as_bits(as_float(bits) + as_float(last_place)) - last_place;
    const std::uint32_t normal = (bits - ((127U - 15U) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    const std::uint32_t finite = bits < (113U << 23) ? small : normal;
    const std::uint32_t rounded = bits >= ((127U + 16U) << 23) ? special : finite;
    return static_cast<std::uint16_t>(rounded | sign >> 16);
}

}  // namespace
}  // namespace tmc
