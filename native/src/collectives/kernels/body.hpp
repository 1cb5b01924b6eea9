// SPDX-License-Identifier: Apache-2.0
// Compiled once for every instruction set, into the namespace TMC_ISA; see kernels.hpp.
//
// Loops are plain and the compiler makes them vectors. Everything lies in an unnamed namespace and
// nothing here calls a library template, for the reason that kernels.hpp gives.
//
// A tensor goes through in blocks that stay in the first-level cache: a block is folded over all the
// inputs, four in one pass, then finished.
#include <cstddef>
#include <cstdint>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "collectives/kernels/halves.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/operations.hpp"

namespace tmc::TMC_ISA {
namespace {

using Bytes = unsigned char;

// Measured: with longer blocks the buffers that widen halves fall out of the cache.
constexpr std::size_t block_bytes = 2048;

/// Memory of any alignment and type is read and written by value.
template <class T>
inline T load(const Bytes* from, std::size_t index) {
    T value;
    __builtin_memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
inline void store(Bytes* to, std::size_t index, T value) {
    __builtin_memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// `out` may be one of the inputs. That carries nothing from one element to another, which the compiler
// cannot know: hence ivdep.

template <class T, class F>
void fold_two(Bytes* out, const Bytes* a, const Bytes* b, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        store<T>(out, i, F::apply(load<T>(a, i), load<T>(b, i)));
    }
}

template <class T, class F>
void fold_four(Bytes* out, const Bytes* a, const Bytes* b, const Bytes* c, const Bytes* d,
               std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        const T two = F::apply(load<T>(a, i), load<T>(b, i));
        store<T>(out, i, F::apply(F::apply(two, load<T>(c, i)), load<T>(d, i)));
    }
}

/// A loop over two inputs, the same over four, and how many of its elements, of how many bytes, make
/// one element of the accumulator.
struct Fold {
    void (*two)(Bytes*, const Bytes*, const Bytes*, std::size_t);
    void (*four)(Bytes*, const Bytes*, const Bytes*, const Bytes*, const Bytes*, std::size_t);
    std::size_t per_element;
};

template <class T, class F>
constexpr Fold fold(std::size_t per_element = 1) {
    return {fold_two<T, F>, fold_four<T, F>, per_element};
}

/// Fold `seats` inputs of `count` elements, already moved to where this block begins.
void fold_block(const Fold& with, Bytes* out, const Bytes* const* inputs, std::size_t seats,
                std::size_t count, std::size_t bytes, bool start) {
    const std::size_t loops = count * with.per_element;
    std::size_t used = 0;
    if (start && seats >= 4) {
        with.four(out, inputs[0], inputs[1], inputs[2], inputs[3], loops);
        used = 4;
    } else if (start && seats >= 2) {
        with.two(out, inputs[0], inputs[1], loops);
        used = 2;
    } else if (start) {
        __builtin_memmove(out, inputs[0], bytes);
        used = 1;
    }
    for (; used + 3 <= seats; used += 3) {
        with.four(out, out, inputs[used], inputs[used + 1], inputs[used + 2], loops);
    }
    for (; used < seats; ++used) {
        with.two(out, out, inputs[used], loops);
    }
}

template <class T>
constexpr Fold arithmetic(Op op) {
    switch (op) {
        case Op::sum: case Op::avg: return fold<T, Sum<T>>();
        case Op::product: return fold<T, Product<T>>();
        case Op::min: return fold<T, Min<T>>();
        case Op::max: return fold<T, Max<T>>();
        case Op::band: return fold<std::uint8_t, BitAnd>(sizeof(T));
        case Op::bor: return fold<std::uint8_t, BitOr>(sizeof(T));
        case Op::bxor: return fold<std::uint8_t, BitXor>(sizeof(T));
    }
    return {};
}

/// Wrapped sums and products have the same bits with and without sign.
template <class Signed, class Unsigned>
constexpr Fold with_sign(Op op) {
    return op == Op::min || op == Op::max ? arithmetic<Signed>(op) : arithmetic<Unsigned>(op);
}

template <class T>
constexpr Fold complex(Op op) {
    return op == Op::product ? fold<Complex<T>, Product<Complex<T>>>() : fold<T, Sum<T>>(2);
}

constexpr Fold logical(Op op) {
    switch (op) {
        case Op::product: case Op::min: case Op::band: return fold<std::uint8_t, Both>();
        case Op::bxor: return fold<std::uint8_t, Differ>();
        default: return fold<std::uint8_t, Either>();
    }
}

Fold fold_of(DType dtype, Op op) {
    switch (dtype) {
        case DType::f64: return arithmetic<double>(op);
        case DType::f32: case DType::f16: case DType::bf16: return arithmetic<float>(op);
        case DType::i8: return with_sign<std::int8_t, std::uint8_t>(op);
        case DType::i16: return with_sign<std::int16_t, std::uint16_t>(op);
        case DType::i32: return with_sign<std::int32_t, std::uint32_t>(op);
        case DType::i64: return with_sign<std::int64_t, std::uint64_t>(op);
        case DType::u8: return arithmetic<std::uint8_t>(op);
        case DType::u16: return arithmetic<std::uint16_t>(op);
        case DType::u32: return arithmetic<std::uint32_t>(op);
        case DType::u64: return arithmetic<std::uint64_t>(op);
        case DType::c64: return complex<float>(op);
        case DType::c128: return complex<double>(op);
        case DType::boolean: return logical(op);
        case DType::byte1: break;
    }
    return {};
}

void widen(float* out, const Bytes* half, std::size_t count, DType dtype) {
    std::size_t i = 0;
    if (dtype == DType::bf16) {
        for (; i < count; ++i) {
            out[i] = widen_bf16(load<std::uint16_t>(half, i));
        }
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= count; i += 8) {
        const auto eight = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(half + 2 * i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(eight));
    }
#endif
    for (; i < count; ++i) {
        out[i] = widen_f16(load<std::uint16_t>(half, i));
    }
}

void narrow(Bytes* half, const float* from, std::size_t count, DType dtype) {
    std::size_t i = 0;
    if (dtype == DType::bf16) {
        for (; i < count; ++i) {
            store(half, i, narrow_bf16(from[i]));
        }
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= count; i += 8) {
        const auto eight = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i_u*>(half + 2 * i), eight);
    }
#endif
    for (; i < count; ++i) {
        store(half, i, narrow_f16(from[i]));
    }
}

/// Divide, and give every NaN the same bits: which of two NaNs an addition keeps is up to the compiler.
template <class T>
void finish_float(Bytes* out, const Bytes* from, std::size_t count, Op op, std::uint32_t seats) {
    const T one_nan = static_cast<T>(__builtin_nanf(""));
    if (op == Op::avg && seats != 1) {
        const T divisor = static_cast<T>(seats);
#pragma GCC ivdep
        for (std::size_t i = 0; i < count; ++i) {
            const T value = load<T>(from, i) / divisor;
            store<T>(out, i, value == value ? value : one_nan);
        }
        return;
    }
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        const T value = load<T>(from, i);
        store<T>(out, i, value == value ? value : one_nan);
    }
}

/// `Wide` holds every sum and every number of seats.
template <class T, class Wide>
void finish_integer(Bytes* out, const Bytes* from, std::size_t count, Op op, std::uint32_t seats) {
    if (op != Op::avg || seats == 1) {
        if (out != from) {
            __builtin_memmove(out, from, count * sizeof(T));
        }
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        store<T>(out, i, static_cast<T>(static_cast<Wide>(load<T>(from, i)) / static_cast<Wide>(seats)));
    }
}

void finish_bool(Bytes* out, const Bytes* from, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = from[i] != 0;
    }
}

/// Finish in accumulator type. `out` may be `from`.
void finish_block(Bytes* out, const Bytes* from, std::size_t count, DType dtype, Op op,
                  std::uint32_t seats) {
    switch (dtype) {
        case DType::f64: return finish_float<double>(out, from, count, op, seats);
        case DType::f32: case DType::f16: case DType::bf16:
            return finish_float<float>(out, from, count, op, seats);
        case DType::c64: return finish_float<float>(out, from, 2 * count, op, seats);
        case DType::c128: return finish_float<double>(out, from, 2 * count, op, seats);
        case DType::i8: return finish_integer<std::int8_t, std::int64_t>(out, from, count, op, seats);
        case DType::i16: return finish_integer<std::int16_t, std::int64_t>(out, from, count, op, seats);
        case DType::i32: return finish_integer<std::int32_t, std::int64_t>(out, from, count, op, seats);
        case DType::i64: return finish_integer<std::int64_t, std::int64_t>(out, from, count, op, seats);
        case DType::u8: return finish_integer<std::uint8_t, std::uint64_t>(out, from, count, op, seats);
        case DType::u16: return finish_integer<std::uint16_t, std::uint64_t>(out, from, count, op, seats);
        case DType::u32: return finish_integer<std::uint32_t, std::uint64_t>(out, from, count, op, seats);
        case DType::u64: return finish_integer<std::uint64_t, std::uint64_t>(out, from, count, op, seats);
        case DType::boolean: return finish_bool(out, from, count);
        case DType::byte1: break;
    }
}

constexpr std::size_t most_inputs = 16;  // folded in one go; more inputs take more rounds over the block

/// Fold one block: `at` is its first element.
void accumulate_block(const Fold& with, Bytes* accumulator, const void* const* inputs,
                      std::size_t seats, std::size_t at, std::size_t count, DType dtype, bool start) {
    const std::size_t bytes = count * accumulator_bytes_of(dtype);
    const Bytes* sources[most_inputs];
    // 64 bytes more, or all four start at the same place of a page, and loads wait for stores.
    alignas(64) float wide[4][block_bytes / sizeof(float) + 16];
    const std::size_t most = is_half(dtype) ? 4 : most_inputs;
    for (std::size_t used = 0; used < seats;) {
        const std::size_t now = seats - used < most ? seats - used : most;
        for (std::size_t k = 0; k < now; ++k) {
            sources[k] = static_cast<const Bytes*>(inputs[used + k]) + at * bytes_of(dtype);
            if (is_half(dtype)) {
                widen(wide[k], sources[k], count, dtype);
                sources[k] = reinterpret_cast<const Bytes*>(wide[k]);
            }
        }
        fold_block(with, accumulator, sources, now, count, bytes, start && used == 0);
        used += now;
    }
}

void accumulate(Bytes* accumulator, const void* const* inputs, std::size_t seats, std::size_t count,
                DType dtype, Op op, bool start) noexcept {
    const Fold with = fold_of(dtype, op);
    const std::size_t element = accumulator_bytes_of(dtype);
    const std::size_t block = block_bytes / element;
    for (std::size_t at = 0; at < count; at += block) {
        const std::size_t now = count - at < block ? count - at : block;
        accumulate_block(with, accumulator + at * element, inputs, seats, at, now, dtype, start);
    }
}

void finish_half(Bytes* out, const Bytes* from, std::size_t count, DType dtype, Op op,
                 std::uint32_t seats) {
    alignas(64) float wide[block_bytes / sizeof(float)];
    finish_block(reinterpret_cast<Bytes*>(wide), from, count, dtype, op, seats);
    narrow(out, wide, count, dtype);
}

void finish(Bytes* out, const Bytes* from, std::size_t count, DType dtype, Op op,
            std::uint32_t seats) noexcept {
    if (!is_half(dtype)) {
        return finish_block(out, from, count, dtype, op, seats);
    }
    const std::size_t block = block_bytes / sizeof(float);
    for (std::size_t at = 0; at < count; at += block) {
        const std::size_t now = count - at < block ? count - at : block;
        finish_half(out + at * sizeof(std::uint16_t), from + at * sizeof(float), now, dtype, op, seats);
    }
}

/// Whether a pass writes to `out` what a later pass must still read.
bool clobbers(const Bytes* out, const void* const* inputs, std::size_t seats) {
    const std::size_t first_pass = seats >= 4 ? 4 : 2;
    for (std::size_t k = first_pass; k < seats; ++k) {
        if (inputs[k] == out) {
            return true;
        }
    }
    return false;
}

void reduce(Bytes* out, const void* const* inputs, std::size_t inputs_count, std::size_t count,
            DType dtype, Op op, std::uint32_t seats) noexcept {
    const Fold with = fold_of(dtype, op);
    const bool aside = is_half(dtype) || clobbers(out, inputs, inputs_count);
    const std::size_t block = block_bytes / accumulator_bytes_of(dtype);
    alignas(64) Bytes buffer[block_bytes];
    for (std::size_t at = 0; at < count; at += block) {
        const std::size_t now = count - at < block ? count - at : block;
        Bytes* const place = out + at * bytes_of(dtype);
        Bytes* const accumulator = aside ? buffer : place;
        accumulate_block(with, accumulator, inputs, inputs_count, at, now, dtype, true);
        finish(place, accumulator, now, dtype, op, seats);
    }
}

}  // namespace

const Kernels kernels = {.accumulate = accumulate, .finish = finish, .reduce = reduce};

}  // namespace tmc::TMC_ISA
