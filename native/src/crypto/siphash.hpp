// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tmc {

using SipKey = std::array<std::byte, 16>;

/// SipHash-2-4 (Aumasson and Bernstein, 2012): a short message's code, which only who has the key
/// can make.
std::uint64_t siphash(const SipKey& key, std::span<const std::byte> message) noexcept;

}  // namespace tmc
