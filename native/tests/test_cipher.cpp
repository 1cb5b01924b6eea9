// SPDX-License-Identifier: Apache-2.0
// AES-256-GCM and X25519 of the system's libcrypto, and links that use them. Without one: nothing.
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "check.hpp"
#include "crypto/cipher.hpp"
#include "team.hpp"

namespace {

constexpr const char* kLibrary = "libcrypto.so.3";
using Library = std::shared_ptr<const tmc::Libcrypto>;

std::vector<std::byte> bytes(const std::string& hex) {
    std::vector<std::byte> result;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        result.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return result;
}

/// Case 14 of the GCM specification's test vectors: all zeros, which is also our number 0.
void test_the_published_vector(const Library& library) {
    tmc::Cipher seal(library, tmc::CipherKey{}, tmc::Cipher::Use::seal);
    const std::vector<std::byte> payload(16);
    std::vector<std::byte> sealed(payload.size() + tmc::kSealBytes);
    CHECK(seal.seal(0, {}, payload, sealed.data()));
    CHECK(sealed == bytes("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"));
}

void test_what_was_changed_does_not_open(const Library& library) {
    tmc::CipherKey key{};
    key[5] = std::byte{9};
    tmc::Cipher seal(library, key, tmc::Cipher::Use::seal);
    tmc::Cipher open(library, key, tmc::Cipher::Use::open);
    const std::vector<std::byte> head(64, std::byte{3});
    const std::vector<std::byte> payload(100'000, std::byte{7});
    std::vector<std::byte> sealed(payload.size() + tmc::kSealBytes);
    const auto opens = [&](std::uint64_t number, std::vector<std::byte> first, std::size_t flipped) {
        CHECK(seal.seal(41, head, payload, sealed.data()));
        if (flipped < sealed.size()) sealed[flipped] ^= std::byte{1};
        const std::span all(sealed);
        const bool good = open.open(number, first, all.first(payload.size()),
                                    all.last(tmc::kSealBytes).first<tmc::kSealBytes>());
        return good && std::equal(payload.begin(), payload.end(), sealed.begin());
    };
    CHECK(opens(41, head, sealed.size()));
    CHECK(!opens(40, head, sealed.size()));
    CHECK(!opens(41, std::vector<std::byte>(64), sealed.size()));
    for (const std::size_t at : {std::size_t{0}, payload.size() - 1, payload.size(), sealed.size() - 1})
        CHECK(!opens(41, head, at));
    CHECK(opens(41, head, sealed.size()));
}

void test_two_draw_the_same(const Library& library) {
    const tmc::KeyPair a(library);
    const tmc::KeyPair b(library);
    CHECK(a.shown() != b.shown());
    CHECK(a.with(b.shown()) == b.with(a.shown()));
    CHECK(a.with(b.shown()) != tmc::Shared{});
    try {
        a.with(tmc::PublicKey{});
        CHECK(false, "a key that makes every secret the same was taken");
    } catch (const tmc::Failure& failure) {
        CHECK(failure.trouble().why == tmc::Why::refused);
    }
}

void test_links(const std::string& path) {
    Team team("aab", path);
    for (std::uint32_t epoch = 1; epoch < 4; ++epoch) {
        team.enter(epoch);
        team.each([](Rank& rank, std::uint32_t seat) {
            for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
                std::vector<float> data(count, static_cast<float>(seat + 1));
                all_reduce(rank, data, count == 1000);
                CHECK(data.front() == 6 && data.back() == 6);
            }
        });
        team.replace(epoch % 3);
    }
}

}  // namespace

int main() {
    Library library;
    try {
        library = tmc::Libcrypto::load(kLibrary);
    } catch (const tmc::Failure& failure) {
        std::printf("not run: %s\n", failure.what());
        return 0;
    }
    test_the_published_vector(library);
    test_what_was_changed_does_not_open(library);
    test_two_draw_the_same(library);
    test_links(kLibrary);
}
