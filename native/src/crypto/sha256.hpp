// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tmc {

using Digest = std::array<std::byte, 32>;

/// SHA-256 (FIPS 180-4).
Digest sha256(std::span<const std::byte> message) noexcept;

/// HMAC with SHA-256 (RFC 2104): only who has the key can say it, and it tells nothing of the key.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) noexcept;

/// SHA-256 of what is added, piece by piece.
class Sha256 {
public:
    void add(std::span<const std::byte> bytes) noexcept;
    /// Of all that was added; nothing may be added any more.
    Digest digest() noexcept;

private:
    void compress() noexcept;

    std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};

/// HMAC with SHA-256 under one key, which is taken in once. `begin` gives a hash to which the message
/// is added, `end` what it comes to.
class Hmac {
public:
    explicit Hmac(std::span<const std::byte> key) noexcept;
    Sha256 begin() const noexcept { return inner_; }
    Digest end(Sha256& message) const noexcept;

private:
    Sha256 inner_, outer_;
};

/// Whether both have the same bytes, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

}  // namespace tmc
