#include "view.hpp"

#include <cstring>

#include "trouble.hpp"

namespace tmc {
namespace {

constexpr std::uint32_t kMagic = 0x43434d54;  // "TMCC"
constexpr std::size_t kTextMax = 96;

struct Fixed {
    std::uint32_t magic = kMagic;
    std::uint32_t slot_bytes = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t nonce = 0;
    std::uint64_t life = 0;
    std::uint64_t region = 0;
    std::uint32_t host_bytes = 0;
    std::uint32_t address_bytes = 0;
};

}  // namespace

std::vector<std::byte> Card::encoded() const {
    Fixed fixed;
    fixed.slot_bytes = slot_bytes;
    fixed.incarnation = incarnation;
    fixed.nonce = nonce;
    fixed.life = life;
    fixed.region = region;
    fixed.host_bytes = static_cast<std::uint32_t>(host.size());
    fixed.address_bytes = static_cast<std::uint32_t>(address.size());
    std::vector<std::byte> bytes(sizeof fixed + host.size() + address.size());
    std::memcpy(bytes.data(), &fixed, sizeof fixed);
    std::memcpy(bytes.data() + sizeof fixed, host.data(), host.size());
    std::memcpy(bytes.data() + sizeof fixed + host.size(), address.data(), address.size());
    return bytes;
}

Card Card::decoded(std::span<const std::byte> bytes) {
    Fixed fixed;
    const char* wrong = "a seat published something that is no card of the native communicator";
    if (bytes.size() < sizeof fixed) throw Failure(Why::refused, wrong);
    std::memcpy(&fixed, bytes.data(), sizeof fixed);
    const auto texts = std::size_t{fixed.host_bytes} + fixed.address_bytes;
    if (fixed.magic != kMagic || fixed.host_bytes > kTextMax || fixed.address_bytes > kTextMax ||
        bytes.size() != sizeof fixed + texts || fixed.incarnation == 0)
        throw Failure(Why::refused, wrong);
    Card card;
    card.slot_bytes = fixed.slot_bytes;
    card.incarnation = fixed.incarnation;
    card.nonce = fixed.nonce;
    card.life = fixed.life;
    card.region = fixed.region;
    const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof fixed);
    card.host.assign(text, fixed.host_bytes);
    card.address.assign(text + fixed.host_bytes, fixed.address_bytes);
    return card;
}

}  // namespace tmc
