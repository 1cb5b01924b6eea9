// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

/// One compilation of kernels/body.hpp: the same functions for one instruction set.
namespace tmc {

struct Kernels {
    /// Fold `inputs` into `accumulator`; `start` says that it holds nothing yet.
    void (*accumulate)(unsigned char* accumulator, const void* const* inputs, std::size_t seats,
                       std::size_t count, DType dtype, Op op, bool start) noexcept;
    void (*finish)(unsigned char* out, const unsigned char* accumulator, std::size_t count,
                   DType dtype, Op op, std::uint32_t seats) noexcept;
    void (*reduce)(unsigned char* out, const void* const* inputs, std::size_t inputs_count,
                   std::size_t count, DType dtype, Op op, std::uint32_t seats) noexcept;
};

namespace baseline { extern const Kernels kernels; }
#ifdef TRAINMOVER_X86_KERNELS
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }
#endif

// `static`, as everything that the kernels call: of an inline function the linker keeps one copy for
// all, and that one may be the copy that was compiled for AVX-512.
static constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

[[maybe_unused]] static constexpr std::size_t bytes_of(DType dtype) {
    switch (dtype) {
        case DType::i8: case DType::u8: case DType::boolean: case DType::byte1: return 1;
        case DType::f16: case DType::bf16: case DType::i16: case DType::u16: return 2;
        case DType::f32: case DType::i32: case DType::u32: return 4;
        case DType::f64: case DType::i64: case DType::u64: case DType::c64: return 8;
        case DType::c128: return 16;
    }
    return 0;
}

[[maybe_unused]] static constexpr std::size_t accumulator_bytes_of(DType dtype) { return is_half(dtype) ? 4 : bytes_of(dtype); }

}  // namespace tmc
