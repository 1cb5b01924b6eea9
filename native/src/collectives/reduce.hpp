// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.hpp"

/// Reductions whose bits depend on the inputs and their order alone.
///
/// Element i of the result is ((x0 op x1) op x2) op ..., in the accumulator type, rounded once at the
/// end. Elements never mix, so cutting a tensor anywhere gives the same bits. Every instruction set
/// gives the same bits too: no contraction, one NaN (the positive quiet one without payload) for all
/// NaNs, and subnormals and rounding as IEEE 754 has them whatever the calling thread's modes are.
///
/// - f16 and bf16 accumulate in f32 and round to nearest even.
/// - avg is the sum divided by `seats`; integers truncate toward zero.
/// - Integer sums and products wrap.
/// - bool: any byte but 0 is true; sum, max, bor are OR; product, min, band are AND; bxor is XOR.
/// - min and max give NaN where an input is NaN, and the later of two zeros that differ in sign.
/// - A complex product is (ar*br - ai*bi, ar*bi + ai*br).
///
/// Pointers need no alignment. No allocation, no exceptions. Asking for what is not `supported` does
/// nothing.
namespace tmc {

/// Bytes of one element.
std::size_t size_of(DType dtype) noexcept;

/// Bytes of one element while it is being reduced: 4 for f16 and bf16, else `size_of`.
std::size_t accumulator_size(DType dtype) noexcept;

bool supported(DType dtype, Op op) noexcept;

/// Reduce `inputs` (at least one, `count` elements each) into `out`.
///
/// `out` may be any one of the inputs, and overlaps none otherwise.
void reduce(std::span<const void* const> inputs, void* out, std::size_t count, DType dtype, Op op,
            std::uint32_t seats) noexcept;

/// The same in steps, for a chain over hosts. `accumulate_first`, any number of `accumulate_more` and
/// `finish` give the bits of one `reduce` over all the inputs.
///
/// `partial` holds `count` elements in the accumulator type and overlaps no input.
void accumulate_first(std::span<const void* const> inputs, void* partial, std::size_t count,
                      DType dtype, Op op) noexcept;
void accumulate_more(void* partial, std::span<const void* const> inputs, std::size_t count,
                     DType dtype, Op op) noexcept;

/// Round once, divide for avg. `out` may be `partial`.
void finish(const void* partial, void* out, std::size_t count, DType dtype, Op op,
            std::uint32_t seats) noexcept;

/// "avx512", "avx2" or "baseline": the instruction set in use, the best of this CPU at first.
const char* isa() noexcept;

/// Use another instruction set from now on; false, and no change, where this CPU or build lacks it.
/// For tests: it changes speed only.
bool force_isa(const char* name) noexcept;

}  // namespace tmc
