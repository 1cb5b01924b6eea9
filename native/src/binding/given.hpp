// SPDX-License-Identifier: Apache-2.0
// What Python gives to the library, checked. Pointers are ints: whoever passes them keeps the memory alive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "collectives/collectives.hpp"
#include "crypto/siphash.hpp"

namespace tmc {

namespace nb = nanobind;

using Pointer = std::uint64_t;
using Pointers = std::vector<Pointer>;
using Counts = std::vector<std::uint64_t>;

/// Calls that have given up the GIL and must get it back. The interpreter must not end before they
/// have: it would end their threads in the middle of C++.
class Inside {
public:
    Inside() noexcept { ++calls; }
    ~Inside() { --calls; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    static inline std::atomic<int> calls{0};
};

using Released = nb::call_guard<Inside, nb::gil_scoped_release>;

constexpr int kTypes = static_cast<int>(DType::byte1) + 1;
constexpr int kOps = static_cast<int>(Op::bxor) + 1;

/// ValueError in Python.
struct Bad : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

Bytes bytes_at(Pointer at);
std::vector<Bytes> all_at(const Pointers& at);
std::vector<ConstBytes> all_const(const Pointers& at);
std::int64_t nanoseconds(double seconds);
DType type_of(int code);
Op op_of(int code, DType dtype);
SipKey sip_key(const nb::bytes& bytes);
std::vector<std::byte> from_bytes(const nb::bytes& bytes);

}  // namespace tmc
