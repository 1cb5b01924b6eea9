// SPDX-License-Identifier: Apache-2.0
// The vectors of the paper's reference implementation (vectors.h: key and message count up from 0).
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "crypto/siphash.hpp"

namespace {

constexpr std::uint64_t kVectors[] = {
    0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
    0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
    0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
};

}  // namespace

int main() {
    tmc::SipKey key;
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
    std::vector<std::byte> message;
    for (const auto expected : kVectors) {
        CHECK(tmc::siphash(key, message) == expected);
        message.push_back(static_cast<std::byte>(message.size()));
    }
    message.resize(63);
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i);
    CHECK(tmc::siphash(key, message) == 0x958a324ceb064572);
    return 0;
}
