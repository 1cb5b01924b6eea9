#include "sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace tmc {
namespace {

constexpr std::size_t block_size = 64;
using Block = std::array<std::byte, block_size>;

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* from) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
        word = word << 8 | std::to_integer<std::uint32_t>(from[i]);
    }
    return word;
}

using Schedule = std::array<std::uint32_t, 64>;

Schedule schedule_of(const std::byte* block) {
    Schedule w{};
    for (std::size_t t = 0; t < 16; ++t) {
        w[t] = big_endian(block + 4 * t);
    }
    for (std::size_t t = 16; t < 64; ++t) {
        const std::uint32_t a = w[t - 15];
        const std::uint32_t b = w[t - 2];
        const std::uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
        const std::uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    return w;
}

class Sha256 {
public:
    void add(std::span<const std::byte> bytes) noexcept {
        length_ += bytes.size();
        while (!bytes.empty()) {
            const std::size_t now = std::min(bytes.size(), block_size - filled_);
            std::memcpy(block_.data() + filled_, bytes.data(), now);
            filled_ += now;
            bytes = bytes.subspan(now);
            if (filled_ == block_size) {
                compress();
            }
        }
    }

    Digest digest() noexcept {
        const std::uint64_t bits = length_ * 8;
        pad();
        for (std::size_t i = 0; i < 8; ++i) {
            block_[56 + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
        }
        compress();
        Digest digest;
        for (std::size_t i = 0; i < digest.size(); ++i) {
            digest[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
        }
        return digest;
    }

private:
    /// A one, then zeros up to the place of the length.
    void pad() noexcept {
        block_[filled_++] = std::byte{0x80};
        if (filled_ > 56) {
            std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), std::byte{});
            compress();
        }
        std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), std::byte{});
    }

    void compress() noexcept {
        const Schedule w = schedule_of(block_.data());
        auto [a, b, c, d, e, f, g, h] = state_;
        for (std::size_t t = 0; t < 64; ++t) {
            const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
            const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
            const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
            const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g; g = f; f = e; e = d + t1;
            d = c; c = b; b = a; a = t1 + t2;
        }
        const std::array<std::uint32_t, 8> after = {a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < state_.size(); ++i) {
            state_[i] += after[i];
        }
        filled_ = 0;
    }

    std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    Block block_{};
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};

Block masked(const Block& key, std::byte mask) {
    Block block = key;
    for (std::byte& byte : block) {
        byte ^= mask;
    }
    return block;
}

}  // namespace

Digest sha256(std::span<const std::byte> message) noexcept {
    Sha256 hash;
    hash.add(message);
    return hash.digest();
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) noexcept {
    Block block{};
    if (key.size() > block.size()) {
        const Digest shorter = sha256(key);
        std::copy(shorter.begin(), shorter.end(), block.begin());
    } else {
        std::copy(key.begin(), key.end(), block.begin());
    }
    Sha256 inner;
    inner.add(masked(block, std::byte{0x36}));
    inner.add(message);
    Sha256 outer;
    outer.add(masked(block, std::byte{0x5c}));
    outer.add(inner.digest());
    return outer.digest();
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (a.size() != b.size()) {
        return false;
    }
    // volatile: or the compiler may see that the answer stands at the first difference.
    volatile unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
    }
    return difference == 0;
}

}  // namespace tmc
