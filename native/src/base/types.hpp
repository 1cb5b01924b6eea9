// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tmc {

/// How the bits of one element are read. `c64` is a complex of two f32, `c128` of two f64; `byte1` is
/// any opaque type of one byte, which can travel but not be reduced.
enum class DType : std::uint8_t {
    f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean, c64, c128, byte1
};

enum class Op : std::uint8_t { sum, avg, min, max, product, band, bor, bxor };

}  // namespace tmc
