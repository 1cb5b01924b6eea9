// SPDX-License-Identifier: Apache-2.0
#include "crypto/siphash.hpp"

#include <bit>
#include <cstring>

namespace tmc {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

std::uint64_t word_at(const std::byte* at, std::size_t bytes = 8) noexcept {
    std::uint64_t word = 0;
    if (bytes > 0) std::memcpy(&word, at, bytes);
    return word;
}

struct State {
    std::uint64_t v0, v1, v2, v3;

    void round() noexcept {
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    void take(std::uint64_t word) noexcept {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }
};

}  // namespace

std::uint64_t siphash(const SipKey& key, std::span<const std::byte> message) noexcept {
    const auto k0 = word_at(key.data());
    const auto k1 = word_at(key.data() + 8);
    State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                k1 ^ 0x7465646279746573};
    const auto whole = message.size() / 8 * 8;
    for (std::size_t at = 0; at < whole; at += 8) state.take(word_at(message.data() + at));
    state.take(word_at(message.data() + whole, message.size() - whole) |
               static_cast<std::uint64_t>(message.size()) << 56);
    state.v2 ^= 0xff;
    for (int i = 0; i < 4; ++i) state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace tmc
