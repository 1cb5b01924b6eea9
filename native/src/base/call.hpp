// SPDX-License-Identifier: Apache-2.0
// What a seat calls, in 16 bytes that travel with every beat and every frame.
#pragma once

#include <cstdint>
#include <string>

#include "base/types.hpp"

namespace tmc {

enum class Kind : std::uint8_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    barrier,
    message,
};

/// The part of a call that all seats must agree on.
///
/// count  elements of one seat's contribution; 0 where seats may differ (all_to_all)
/// root   seat, or tag of a message; 0 where there is none
struct Call {
    Kind kind = Kind::barrier;
    DType dtype = DType::byte1;
    Op op = Op::sum;
    std::uint32_t root = 0;
    std::uint64_t count = 0;

    bool operator==(const Call&) const noexcept = default;
};

/// A call as two words of shared memory or of a frame.
struct Tag {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    bool operator==(const Tag&) const noexcept = default;
};

Tag packed(const Call& call) noexcept;

/// The call in words, from a tag of any origin: numbers that name nothing become "?".
std::string described(Tag tag);

}  // namespace tmc
