// SPDX-License-Identifier: Apache-2.0
#include "base/call.hpp"

#include <array>
#include <string_view>

namespace tmc {
namespace {

constexpr std::array<std::string_view, 10> kKinds{
    "all_reduce", "reduce",     "broadcast", "all_gather", "reduce_scatter",
    "all_to_all", "gather",     "scatter",   "barrier",    "message"};
constexpr std::array<std::string_view, 16> kTypes{"f64", "f32", "f16", "bf16", "i8",   "i16",
                                                  "i32", "i64", "u8",  "u16",  "u32",  "u64",
                                                  "bool", "c64", "c128", "byte1"};
constexpr std::array<std::string_view, 8> kOps{"sum",     "avg",  "min", "max",
                                               "product", "band", "bor", "bxor"};

template <std::size_t N>
std::string name_in(const std::array<std::string_view, N>& names, std::uint64_t index) {
    return index < N ? std::string(names[index]) : "?";
}

}  // namespace

Tag packed(const Call& call) noexcept {
    const auto word = static_cast<std::uint64_t>(call.kind) |
                      static_cast<std::uint64_t>(call.dtype) << 8 |
                      static_cast<std::uint64_t>(call.op) << 16 |
                      static_cast<std::uint64_t>(call.root) << 32;
    return {word, call.count};
}

std::string described(Tag tag) {
    const auto kind = static_cast<Kind>(tag.low & 0xff);
    const auto elements = name_in(kTypes, tag.low >> 8 & 0xff) + "[" + std::to_string(tag.high) + "]";
    const auto op = name_in(kOps, tag.low >> 16 & 0xff);
    const auto root = std::to_string(tag.low >> 32);
    const auto name = name_in(kKinds, tag.low & 0xff);
    switch (kind) {
        case Kind::all_reduce:
        case Kind::reduce_scatter: return name + "(" + op + ", " + elements + ")";
        case Kind::reduce: return name + "(" + op + ", " + elements + ", root " + root + ")";
        case Kind::broadcast:
        case Kind::gather:
        case Kind::scatter: return name + "(" + elements + ", root " + root + ")";
        case Kind::message: return name + "(" + elements + ", tag " + root + ")";
        case Kind::all_to_all: return name + "(" + name_in(kTypes, tag.low >> 8 & 0xff) + ")";
        case Kind::barrier: return name + "()";
        default: return name + "(" + elements + ")";
    }
}

}  // namespace tmc
