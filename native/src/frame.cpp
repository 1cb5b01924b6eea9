#include "frame.hpp"

#include <bit>
#include <cstring>

namespace tmc {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little endian");

constexpr std::uint32_t kMagic = 0x32434d54;  // "TMC2"
constexpr std::size_t kSumAt = 60;

template <class T>
void put(HeaderBytes& bytes, std::size_t at, T value) noexcept {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte, kHeaderBytes> bytes, std::size_t at) noexcept {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

/// Mixes all words but the last half one. Finds accidents; the hello keeps strangers out.
std::uint32_t checksum(std::span<const std::byte, kHeaderBytes> bytes) noexcept {
    std::uint64_t sum = 0x9e3779b97f4a7c15;
    for (std::size_t at = 0; at < 56; at += 8) {
        sum = (sum ^ get<std::uint64_t>(bytes, at)) * 0xff51afd7ed558ccd;
        sum ^= sum >> 32;
    }
    sum = (sum ^ get<std::uint32_t>(bytes, 56)) * 0xc4ceb9fe1a85ec53;
    return static_cast<std::uint32_t>(sum >> 32);
}

std::uint32_t length_max(Frame kind) noexcept {
    switch (kind) {
        case Frame::data:
        case Frame::body:
        case Frame::letter: return kPayloadMax;
        case Frame::broken:
        case Frame::replaced: return kReasonMax;
        default: return 0;
    }
}

}  // namespace

HeaderBytes encoded(const Header& header) noexcept {
    HeaderBytes bytes{};
    put(bytes, 0, kMagic);
    put(bytes, 4, static_cast<std::uint32_t>(header.kind));
    put(bytes, 8, header.group);
    put(bytes, 16, header.epoch);
        put(bytes, 24, header.a);
    put(bytes, 32, header.b);
    put(bytes, 40, header.tag.low);
    put(bytes, 48, header.tag.high);
    put(bytes, 56, header.length);
    put(bytes, kSumAt, checksum(bytes));
    return bytes;
}

std::string decode(std::span<const std::byte, kHeaderBytes> bytes, Header& out) {
    if (get<std::uint32_t>(bytes, 0) != kMagic) return "a frame does not begin with TMC2";
    if (get<std::uint32_t>(bytes, kSumAt) != checksum(bytes)) return "a frame's checksum is wrong";
    const auto kind = get<std::uint32_t>(bytes, 4);
    if (kind < static_cast<std::uint32_t>(Frame::data) ||
        kind > static_cast<std::uint32_t>(Frame::leaving))
        return "a frame is of unknown kind " + std::to_string(kind);
    out.kind = static_cast<Frame>(kind);
    out.group = get<std::uint64_t>(bytes, 8);
    out.epoch = get<std::uint64_t>(bytes, 16);
    out.length = get<std::uint32_t>(bytes, 56);
    out.a = get<std::uint64_t>(bytes, 24);
    out.b = get<std::uint64_t>(bytes, 32);
    out.tag = {get<std::uint64_t>(bytes, 40), get<std::uint64_t>(bytes, 48)};
    if (out.length > length_max(out.kind))
        return "a frame claims " + std::to_string(out.length) + " bytes, " +
               std::to_string(length_max(out.kind)) + " are allowed";
    return "";
}

}  // namespace tmc
