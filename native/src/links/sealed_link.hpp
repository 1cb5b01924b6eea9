// SPDX-License-Identifier: Apache-2.0
// A proved connection on which both ends say sealed frames, as `trainmover.protocol.sealed` has them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/sockets.hpp"
#include "crypto/sha256.hpp"

namespace tmc {

/// The connection is over. error: of the system; 0: the other end has closed it.
struct LinkOver : std::runtime_error {
    explicit LinkOver(int why) : std::runtime_error("the connection is over"), error(why) {}
    int error;
};

/// What came is not what the other end has said; or, where `length` is not 0, it is a longer frame
/// than is allowed.
struct NotSaid : std::runtime_error {
    explicit NotSaid(std::size_t too_long = 0) : std::runtime_error("not said"), length(too_long) {}
    std::size_t length;
};

/// The marks of one direction, one after the other.
class SealMarks {
public:
    static constexpr std::size_t kBytes = 16;
    using Mark = std::array<std::byte, kBytes>;

    /// next: the number of the mark that comes next
    SealMarks(std::span<const std::byte> key, std::uint64_t next) noexcept : hmac_(key), number_(next) {}
    Mark next(std::span<const std::byte> said) noexcept;

private:
    Hmac hmac_;
    std::uint64_t number_;
};

/// What is said is marked and sent by a thread of its own, in order: to send over TCP is to carry
/// the bytes up to the socket of who is on the same host, and whoever says something here has a step
/// to make. What has come is read by who asks for it.
///
/// One thread at a time may `hear`; `say` and `close` are for any.
class SealedLink {
public:
    /// fd: a blocking stream socket. It stays the caller's; a copy is kept.
    SealedLink(int fd, std::span<const std::byte> says, std::uint64_t said, std::span<const std::byte> hears,
               std::uint64_t heard, std::size_t bytes_max);
    ~SealedLink();
    SealedLink(const SealedLink&) = delete;
    SealedLink& operator=(const SealedLink&) = delete;

    /// Returns at once. Throws LinkOver once anything could not be sent.
    void say(std::span<const std::byte> payload);
    /// Frames that have come, in order; none if none comes within some ten milliseconds. Throws
    /// LinkOver, also for what could not be sent, and NotSaid.
    std::vector<std::string> hear();
    /// End it: who hears is woken, what was not sent is dropped.
    void close() noexcept;

private:
    struct Line;

    static void carry(const std::shared_ptr<Line>& line) noexcept;
    std::vector<std::string> whole_frames();

    std::shared_ptr<Line> line_;
    SealMarks hears_;
    std::size_t bytes_max_;
    std::string come_;           // Not yet a whole frame.
    std::size_t rest_ = 0;       // Of the frame whose head has come, with its mark; 0: none has.
    Birthplace birthplace_;
};

}  // namespace tmc
