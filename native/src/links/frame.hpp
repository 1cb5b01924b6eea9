// SPDX-License-Identifier: Apache-2.0
// The unit of a link: a header of 64 bytes and at most 256 KiB behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/call.hpp"
#include "crypto/siphash.hpp"

namespace tmc {

inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kPayloadMax = 256 * 1024;
inline constexpr std::size_t kReasonMax = 512;

enum class Frame : std::uint8_t {
    data = 1,   // a piece of a collective's stream
    credit,     // a = bytes of that stream consumed so far: the sender may send as many more
    letter,     // a = number of a message, b = its bytes; a small one comes along as payload
    clear,      // a = number of a message whose body may come
    body,       // a = number of a message, b = offset of this piece in it
    read,       // a = bytes of small messages read so far
    waiting,    // a = number of the call that the sender has long been waiting in, tag = the call;
                // 0: it waits for nothing so far, but will
    broken,     // the sender has ended this group's epoch; a = 1: in good order; payload: why
    replaced,   // the receiver's seat in this group belongs to another process; payload: since when
    farewell,   // the sender reads nothing of this group any more up to that epoch: it has closed it, or
                // given up one that was prepared
    leaving,    // the sender closes this link in an orderly way
};

/// group  number of the group's life, the same on all its seats
struct Header {
    Frame kind = Frame::data;
    std::uint32_t length = 0;
    std::uint64_t group = 0;
    std::uint64_t epoch = 0;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    Tag tag;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encoded(const Header& header) noexcept;
/// Make it the frame of that number in its direction of a link. The number itself is not sent: both
/// ends count.
void sign(HeaderBytes& bytes, const SipKey& key, std::uint64_t number) noexcept;

/// Read a header from bytes of any origin. Returns the reason if it is none, or is impossible.
std::string decode(std::span<const std::byte, kHeaderBytes> bytes, const SipKey& key,
                   std::uint64_t number, Header& out);

}  // namespace tmc
