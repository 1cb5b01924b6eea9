// SPDX-License-Identifier: Apache-2.0
#include "crypto/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#ifdef TRAINMOVER_X86_KERNELS
#include <cpuid.h>
#include <immintrin.h>
#endif

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

using Words = std::array<std::uint32_t, 8>;

void compress_plainly(Words& state, const Block& block) noexcept {
    const Schedule w = schedule_of(block.data());
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
        const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
        const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g; g = f; f = e; e = d + t1;
        d = c; c = b; b = a; a = t1 + t2;
    }
    const Words after = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) {
        state[i] += after[i];
    }
}

#ifdef TRAINMOVER_X86_KERNELS
#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

/// Two words of the state stand in the order in which the instructions have them: ABEF and CDGH.
WITH_SHA void compress_with_instructions(Words& state, const Block& block) noexcept {
    const auto* from = reinterpret_cast<const __m128i*>(block.data());
    auto* words = reinterpret_cast<__m128i*>(state.data());
    const __m128i big_endian_words = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
    __m128i cdgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
    const __m128i abcd = abef;
    abef = _mm_alignr_epi8(abcd, cdgh, 8);
    cdgh = _mm_blend_epi16(cdgh, abcd, 0xf0);
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (std::size_t i = 0; i < 4; ++i) {
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128(from + i), big_endian_words);
    }
    for (std::size_t i = 0; i < 16; ++i) {
        const auto* constants = reinterpret_cast<const __m128i*>(round_constants.data() + 4 * i);
        __m128i sum = _mm_add_epi32(w[i % 4], _mm_loadu_si128(constants));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        sum = _mm_shuffle_epi32(sum, 0x0e);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
        const __m128i last = w[(i + 3) % 4];
        const __m128i seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        const __m128i so_far = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
        w[i % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(so_far, seven_back), last);
    }
    abef = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_before), 0x1b);
    cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_before), 0xb1);
    _mm_storeu_si128(words, _mm_blend_epi16(abef, cdgh, 0xf0));
    _mm_storeu_si128(words + 1, _mm_alignr_epi8(cdgh, abef, 8));
}

bool has_instructions() noexcept {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (b >> 29 & 1) != 0;
}

const auto compress_block = has_instructions() ? &compress_with_instructions : &compress_plainly;
#else
constexpr auto compress_block = &compress_plainly;
#endif

Block masked(const Block& key, std::byte mask) {
    Block block = key;
    for (std::byte& byte : block) {
        byte ^= mask;
    }
    return block;
}

}  // namespace

void Sha256::add(std::span<const std::byte> bytes) noexcept {
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

Digest Sha256::digest() noexcept {
    const std::uint64_t bits = length_ * 8;
    block_[filled_++] = std::byte{0x80};  // A one, then zeros up to the place of the length.
    if (filled_ > 56) {
        std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), std::byte{});
        compress();
    }
    std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), std::byte{});
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

void Sha256::compress() noexcept {
    compress_block(state_, block_);
    filled_ = 0;
}

Hmac::Hmac(std::span<const std::byte> key) noexcept {
    Block block{};
    if (key.size() > block.size()) {
        const Digest shorter = sha256(key);
        std::copy(shorter.begin(), shorter.end(), block.begin());
    } else {
        std::copy(key.begin(), key.end(), block.begin());
    }
    inner_.add(masked(block, std::byte{0x36}));
    outer_.add(masked(block, std::byte{0x5c}));
}

Digest Hmac::end(Sha256& message) const noexcept {
    Sha256 outer = outer_;
    outer.add(message.digest());
    return outer.digest();
}

Digest sha256(std::span<const std::byte> message) noexcept {
    Sha256 hash;
    hash.add(message);
    return hash.digest();
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) noexcept {
    const Hmac hmac(key);
    Sha256 inner = hmac.begin();
    inner.add(message);
    return hmac.end(inner);
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
