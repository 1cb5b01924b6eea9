// SPDX-License-Identifier: Apache-2.0
// How two processes become peers: both prove that they know the job's token, neither sends it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sockets.hpp"
#include "crypto/keys.hpp"
#include "links/arena.hpp"

namespace tmc {

using Token = std::vector<std::byte>;
using Nonce = std::array<std::byte, 32>;  // where links are encrypted: a public key, as fresh
using Proof = std::array<std::byte, 32>;

inline constexpr std::uint32_t kHelloMagic = 0x48434d54;  // "TMCH"
inline constexpr std::uint16_t kVersion = 5;

//   dialler -> listener   Greeting
//   listener -> dialler   Answer      proves the listener's knowledge
//   dialler -> listener   Proof       proves the dialler's
//   listener -> dialler   Verdict     accepted, or why not, or that another connection is used
//   dialler -> listener   a byte, with the descriptor of its arena     } on the same host
//   listener -> dialler   the same                                     }
//
// A proof is made over all that was said, who says it, and the address that was dialled, as the
// listener's card has it. So whoever hands on a conversation between two others, who was dialled at
// an address of his own, gets no proof that the other one believes. No descriptor is taken from a
// peer before its proof.
//
// Two processes may dial each other at once, and are to have one link. The one with the lower number
// decides: it takes what the other has dialled unless it has, or is making, a connection of its own.
// The other takes what comes.

struct Greeting {
    std::uint32_t magic = kHelloMagic;
    std::uint16_t version = kVersion;
    std::uint16_t sealed = 0;  // 1: what follows the hello is encrypted
    std::uint64_t from = 0;  // the dialler's incarnation
    std::uint64_t to = 0;    // the one it wants to talk to
    Nonce nonce{};
};

struct Answer {
    std::uint32_t magic = kHelloMagic;
    std::uint16_t version = kVersion;
    std::uint16_t sealed = 0;
    Nonce nonce{};
    Proof proof{};
};

struct Verdict {
    enum : std::uint32_t { refused, accepted, crossed };
    std::uint32_t answer = refused;
    char reason[60]{};
};

std::uint64_t fresh_number();  // never 0

/// Who knows which connections there are already.
class Doorkeeper {
public:
    virtual ~Doorkeeper() = default;
    /// Whether another connection with that process is used, and not the one that it has dialled.
    virtual bool prefers_another(std::uint64_t from) = 0;
};

/// The process at this end.
struct Self {
    const Token& token;
    std::uint64_t incarnation;
    int arena_fd;
    const std::shared_ptr<const Libcrypto>& libcrypto;  // null: links are not encrypted
    Doorkeeper& doorkeeper;
};

/// What a process has for one hello alone.
class Fresh {
public:
    /// libcrypto  null: the connection will not be encrypted
    explicit Fresh(const std::shared_ptr<const Libcrypto>& libcrypto);

    const Nonce& nonce() const noexcept { return nonce_; }
    bool sealed() const noexcept { return libcrypto_ != nullptr; }
    const std::shared_ptr<const Libcrypto>& libcrypto() const noexcept { return libcrypto_; }
    /// What only the two can know; nothing where the connection is not encrypted.
    Shared with(const Nonce& other) const;

private:
    std::shared_ptr<const Libcrypto> libcrypto_;
    std::unique_ptr<KeyPair> pair_;
    Nonce nonce_{};
};

/// What came of a hello.
struct Peer {
    int fd = -1;
    std::unique_ptr<Mapping> mapping;  // its arena, if it is on this host
    Keys keys;
};

/// Where a process listens, as its card says.
struct Reach {
    bool local = false;
    std::string address;
};

/// Words that come piece by piece.
class Ear {
public:
    /// True when all of it is there. Throws Failure when the other end hangs up, or passes descriptors.
    bool hear(int fd, void* to, std::size_t bytes);

private:
    std::size_t got_ = 0;
};

/// The dialler's side of one connection, fed by readiness.
class Dial {
public:
    /// Throws Failure.
    Dial(const Self& self, std::uint64_t peer, const Reach& reach);
    ~Dial();
    Dial(const Dial&) = delete;
    Dial& operator=(const Dial&) = delete;

    enum class State { waiting, accepted, crossed };
    /// Go on. Whoever gets `accepted` takes the peer. Throws Failure: refused (token, version, wrong
    /// process), peer_lost.
    State advance(const Self& self);

    /// -1: there was no room for one more at the peer's door.
    int fd() const noexcept { return fd_; }
    bool connecting() const noexcept { return connecting_; }
    Peer take() noexcept;

private:
    void greet(const Self& self);
    void prove(const Self& self);
    bool hear_memory();
    void say(const void* at, std::size_t bytes, int pass_fd = -1) const;

    const Birthplace birthplace_;
    const std::uint64_t peer_;
    const Reach& reach_;
    int fd_ = -1;
    bool connecting_ = true;
    bool answered_ = false;
    bool judged_ = false;
    Ear ear_;
    Greeting greeting_;
    Answer answer_;
    Verdict verdict_;
    std::unique_ptr<Fresh> fresh_;
    std::unique_ptr<Mapping> mapping_;
    Keys keys_;
};

/// The listener's side of one connection, fed by readiness.
class Hello {
public:
    /// address  of this listener, as its card says
    Hello(int fd, bool local, const std::string& address, std::int64_t deadline_ns) noexcept;
    ~Hello();
    Hello(const Hello&) = delete;
    Hello& operator=(const Hello&) = delete;

    enum class State { waiting, accepted, crossed, refused };
    /// Read on. Whoever gets `accepted` takes the peer.
    State advance(const Self& self);

    int fd() const noexcept { return fd_; }
    bool greeted() const noexcept { return greeted_; }
    bool proved() const noexcept { return proved_; }
    std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
    std::uint64_t from() const noexcept { return greeting_.from; }
    const std::string& reason() const noexcept { return reason_; }
    /// Its connection is to be a link: only then is it worth the system calls.
    void tune() const noexcept {
        if (!local_) tune_tcp(fd_);
    }
    Peer take() noexcept;

private:
    State go_on(const Self& self);
    bool hear_greeting(const Self& self);
    bool hear_proof(const Self& self);
    bool take_memory(const Self& self);

    const Birthplace birthplace_;
    int fd_;
    const bool local_;
    const std::string& address_;
    const std::int64_t deadline_ns_;
    Ear ear_;
    bool greeted_ = false;
    bool proved_ = false;
    bool crossed_ = false;
    Greeting greeting_;
    std::unique_ptr<Fresh> fresh_;
    Proof proof_{};
    std::unique_ptr<Mapping> mapping_;
    Keys keys_;
    std::string reason_;
};

}  // namespace tmc
