// SPDX-License-Identifier: Apache-2.0
#include "links/frame.hpp"

#include <bit>
#include <cstring>

#include "base/points.hpp"

namespace tmc {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little endian");

constexpr std::size_t kCodeAt = 56;

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

/// Over all of the header and its number, so none can be changed, left out, repeated or moved.
std::uint64_t code(std::span<const std::byte, kHeaderBytes> bytes, const SipKey& key,
                   std::uint64_t number) noexcept {
    HeaderBytes message;
    std::memcpy(message.data(), bytes.data(), kCodeAt);
    put(message, kCodeAt, number);
    for (auto more = codes_repeated(); more > 0; --more) siphash(key, message);
    return siphash(key, message);
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
    put(bytes, 0, static_cast<std::uint32_t>(header.kind));
    put(bytes, 4, header.length);
    put(bytes, 8, header.group);
    put(bytes, 16, header.epoch);
    put(bytes, 24, header.a);
    put(bytes, 32, header.b);
    put(bytes, 40, header.tag.low);
    put(bytes, 48, header.tag.high);
    return bytes;
}

void sign(HeaderBytes& bytes, const SipKey& key, std::uint64_t number) noexcept {
    put(bytes, kCodeAt, code(bytes, key, number));
}

std::string decode(std::span<const std::byte, kHeaderBytes> bytes, const SipKey& key,
                   std::uint64_t number, Header& out) {
    if (get<std::uint64_t>(bytes, kCodeAt) != code(bytes, key, number))
        return "a frame's code is wrong: it was damaged on its way, or is not from there";
    const auto kind = get<std::uint32_t>(bytes, 0);
    if (kind < static_cast<std::uint32_t>(Frame::data) ||
        kind > static_cast<std::uint32_t>(Frame::leaving))
        return "a frame is of unknown kind " + std::to_string(kind);
    out.kind = static_cast<Frame>(kind);
    out.length = get<std::uint32_t>(bytes, 4);
    out.group = get<std::uint64_t>(bytes, 8);
    out.epoch = get<std::uint64_t>(bytes, 16);
    out.a = get<std::uint64_t>(bytes, 24);
    out.b = get<std::uint64_t>(bytes, 32);
    out.tag = {get<std::uint64_t>(bytes, 40), get<std::uint64_t>(bytes, 48)};
    if (out.length > length_max(out.kind))
        return "a frame claims " + std::to_string(out.length) + " bytes, " +
               std::to_string(length_max(out.kind)) + " are allowed";
    return "";
}

}  // namespace tmc
