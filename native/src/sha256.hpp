#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace tmc {

using Digest = std::array<std::byte, 32>;

/// SHA-256 (FIPS 180-4).
Digest sha256(std::span<const std::byte> message) noexcept;

/// HMAC with SHA-256 (RFC 2104): only who has the key can say it, and it tells nothing of the key.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) noexcept;

/// Whether both have the same bytes, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

}  // namespace tmc
