// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sums of every type that libnccl knows, element by element, seat after seat.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace fake {

enum Type { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16 };
enum Op { SUM, PROD, MAX, MIN, AVG, FIRST_OWN };

inline size_t size_of(int type) {
    switch (type) {
        case F16: case BF16: return 2;
        case I32: case U32: case F32: return 4;
        case I64: case U64: case F64: return 8;
        default: return 1;  // Also the types of eight bits that only newer versions have.
    }
}

struct BFloat16 {
    uint16_t bits;
    BFloat16() = default;
    explicit BFloat16(float value) {
        auto raw = std::bit_cast<uint32_t>(value);
        bool nan = value != value;
        bits = nan ? 0x7fc0 : static_cast<uint16_t>((raw + 0x7fff + ((raw >> 16) & 1)) >> 16);
    }
    explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct Half {
    _Float16 value;
    Half() = default;
    explicit Half(float from) : value(static_cast<_Float16>(from)) {}
    explicit operator float() const { return static_cast<float>(value); }
};

template <class T> struct Wide { using type = T; };
template <> struct Wide<Half> { using type = float; };
template <> struct Wide<BFloat16> { using type = float; };

template <class T>
void scale(void* at, size_t count, double factor) {
    using W = typename Wide<T>::type;
    auto* values = static_cast<T*>(at);
    for (size_t i = 0; i < count; ++i) values[i] = T(W(values[i]) * static_cast<W>(factor));
}

template <class T>
void add(void* into, const void* from, size_t count, int op) {
    using W = typename Wide<T>::type;
    auto* total = static_cast<T*>(into);
    auto* next = static_cast<const T*>(from);
    for (size_t i = 0; i < count; ++i) {
        W a = W(total[i]), b = W(next[i]);
        switch (op) {
            case PROD: total[i] = T(static_cast<W>(a * b)); break;
            case MAX: total[i] = T(std::max(a, b)); break;
            case MIN: total[i] = T(std::min(a, b)); break;
            default: total[i] = T(static_cast<W>(a + b)); break;
        }
    }
}

template <class T>
void divide(void* at, size_t count, int seats) {
    auto* values = static_cast<T*>(at);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] / static_cast<T>(seats));
}

/// Call `f.template operator()<T>()` with the type of that number.
template <class F>
void with_type(int type, F f) {
    switch (type) {
        case I8: f.template operator()<int8_t>(); break;
        case I32: f.template operator()<int32_t>(); break;
        case U32: f.template operator()<uint32_t>(); break;
        case I64: f.template operator()<int64_t>(); break;
        case U64: f.template operator()<uint64_t>(); break;
        case F16: f.template operator()<Half>(); break;
        case F32: f.template operator()<float>(); break;
        case F64: f.template operator()<double>(); break;
        case BF16: f.template operator()<BFloat16>(); break;
        default: f.template operator()<uint8_t>(); break;
    }
}

inline bool is_floating(int type) { return type >= F16; }

}  // namespace fake
