// SPDX-License-Identifier: Apache-2.0
#include "session/view.hpp"

#include <array>
#include <cstring>

#include "base/trouble.hpp"

namespace tmc {
namespace {

constexpr std::uint32_t kMagic = 0x33434d54;  // "TMC3"
constexpr std::size_t kTextMax = kSocketPathMax;

struct Fixed {
    std::uint32_t magic = kMagic;
    std::uint32_t slot_bytes = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t nonce = 0;
    std::uint64_t life = 0;
    std::uint64_t region = 0;
    std::array<std::uint32_t, 4> text_bytes{};  // of host, address and path; 0
};

}  // namespace

std::vector<std::byte> Card::encoded() const {
    Fixed fixed;
    fixed.slot_bytes = slot_bytes;
    fixed.incarnation = incarnation;
    fixed.nonce = nonce;
    fixed.life = life;
    fixed.region = region;
    std::string texts;
    std::size_t at = 0;
    for (const auto* text : {&host, &address, &path}) {
        fixed.text_bytes[at++] = static_cast<std::uint32_t>(text->size());
        texts += *text;
    }
    std::vector<std::byte> bytes(sizeof fixed + texts.size());
    std::memcpy(bytes.data(), &fixed, sizeof fixed);
    std::memcpy(bytes.data() + sizeof fixed, texts.data(), texts.size());
    return bytes;
}

Card Card::decoded(std::span<const std::byte> bytes) {
    Fixed fixed;
    const Failure wrong(Why::refused,
                        "a seat published something that is no card of the native communicator");
    if (bytes.size() < sizeof fixed) throw wrong;
    std::memcpy(&fixed, bytes.data(), sizeof fixed);
    if (fixed.magic != kMagic || fixed.incarnation == 0) throw wrong;
    Card card;
    card.slot_bytes = fixed.slot_bytes;
    card.incarnation = fixed.incarnation;
    card.nonce = fixed.nonce;
    card.life = fixed.life;
    card.region = fixed.region;
    auto rest = bytes.subspan(sizeof fixed);
    std::size_t at = 0;
    for (auto* text : {&card.host, &card.address, &card.path}) {
        const auto size = fixed.text_bytes[at++];
        if (size > kTextMax || size > rest.size()) throw wrong;
        text->assign(reinterpret_cast<const char*>(rest.data()), size);
        rest = rest.subspan(size);
    }
    if (!rest.empty()) throw wrong;
    return card;
}

}  // namespace tmc
