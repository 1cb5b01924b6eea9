// How two processes become peers: both prove that they know the job's token, neither sends it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arena.hpp"
#include "keys.hpp"
#include "sockets.hpp"

namespace tmc {

using Token = std::vector<std::byte>;
using Nonce = std::array<std::byte, 32>;  // where links are encrypted: a public key, as fresh
using Proof = std::array<std::byte, 32>;

inline constexpr std::uint32_t kHelloMagic = 0x48434d54;  // "TMCH"
inline constexpr std::uint16_t kVersion = 3;

//   dialler -> listener   Greeting
//   listener -> dialler   Answer      proves the listener's knowledge
//   dialler -> listener   Proof       proves the dialler's
//   listener -> dialler   Verdict     accepted, or why not
//   dialler -> listener   a byte, with the descriptor of its arena     } on the same host
//   listener -> dialler   the same                                     }
//
// A proof is made over all that was said, who says it, and the address that was dialled, as the
// listener's card has it. So whoever hands on a conversation between two others, who was dialled at
// an address of his own, gets no proof that the other one believes. No descriptor is taken from a
// peer before its proof.

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
    std::uint32_t accepted = 0;
    char reason[60]{};
};

std::uint64_t fresh_number();  // never 0

/// The process at this end.
struct Self {
    const Token& token;
    std::uint64_t incarnation;
    int arena_fd;
    const std::shared_ptr<const Libcrypto>& libcrypto;  // null: links are not encrypted
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

/// Whom to dial, and where, as its card says.
struct Target {
    std::uint64_t incarnation;
    const std::string& address;
    bool local;
};

/// The dialler's side, blocking until the deadline. Takes `fd` over and closes it on failure.
/// Throws Failure: refused (token, version, wrong process), peer_lost, aborted (cancelled).
Peer greet(int fd, const Self& self, const Target& target, int cancel_fd, std::int64_t deadline_ns);

/// The listener's side of one connection, fed by readiness.
class Hello {
public:
    /// address  of this listener, as its card says
    Hello(int fd, bool local, const std::string& address, std::int64_t deadline_ns) noexcept;
    ~Hello();
    Hello(const Hello&) = delete;
    Hello& operator=(const Hello&) = delete;

    enum class State { waiting, accepted, refused };
    /// Read on. Whoever gets `accepted` takes the peer.
    State advance(const Self& self);

    int fd() const noexcept { return fd_; }
    bool greeted() const noexcept { return greeted_; }
    std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
    std::uint64_t from() const noexcept { return greeting_.from; }
    const std::string& reason() const noexcept { return reason_; }
    Peer take() noexcept;

private:
    State go_on(const Self& self);
    bool hear_greeting(const Self& self);
    bool hear_proof(const Self& self);
    bool take_memory(const Self& self);
    bool fill(void* to, std::size_t bytes);

    const Birthplace birthplace_;
    int fd_;
    const bool local_;
    const std::string& address_;
    const std::int64_t deadline_ns_;
    std::size_t got_ = 0;
    bool greeted_ = false;
    bool proved_ = false;
    Greeting greeting_;
    std::unique_ptr<Fresh> fresh_;
    Proof proof_{};
    std::unique_ptr<Mapping> mapping_;
    Keys keys_;
    std::string reason_;
};

}  // namespace tmc
