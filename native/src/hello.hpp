// How two processes become peers: both prove that they know the job's token, neither sends it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sockets.hpp"

namespace tmc {

using Token = std::vector<std::byte>;
using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

inline constexpr std::uint32_t kHelloMagic = 0x48434d54;  // "TMCH"
inline constexpr std::uint32_t kVersion = 2;

//   dialler -> listener   Greeting
//   listener -> dialler   Answer      proves the listener's knowledge
//   dialler -> listener   Proof       and, on the same host, the descriptor of its arena
//   listener -> dialler   Verdict     and likewise; accepted, or why not

struct Greeting {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kVersion;
    std::uint64_t from = 0;  // the dialler's incarnation
    std::uint64_t to = 0;    // the one it wants to talk to
    Nonce nonce{};
};

struct Answer {
    std::uint32_t magic = kHelloMagic;
    std::uint32_t version = kVersion;
    Nonce nonce{};
    Proof proof{};
};

struct Verdict {
    std::uint32_t accepted = 0;
    char reason[60]{};
};

Nonce fresh_nonce();
std::uint64_t fresh_number();  // never 0

Proof listeners_proof(const Token& token, const Greeting& greeting, const Nonce& nonce);
Proof diallers_proof(const Token& token, const Greeting& greeting, const Nonce& nonce);

struct Peer {
    int fd = -1;
    int arena_fd = -1;
};

/// The dialler's side, blocking until the deadline. Takes `fd` over and closes it on failure.
/// Throws Failure: refused (token, version, wrong process), peer_lost, aborted (cancelled).
Peer greet(int fd, bool local, int own_arena_fd, const Token& token, std::uint64_t from,
           std::uint64_t to, int cancel_fd, std::int64_t deadline_ns);

/// The listener's side of one connection, fed by readiness.
class Hello {
public:
    Hello(int fd, bool local, std::int64_t deadline_ns) noexcept;
    ~Hello();
    Hello(const Hello&) = delete;
    Hello& operator=(const Hello&) = delete;

    enum class State { waiting, accepted, refused };
    /// Read on. `incarnation`: of this process. Whoever gets `accepted` takes the peer.
    State advance(const Token& token, std::uint64_t incarnation, int own_arena_fd);

    int fd() const noexcept { return fd_; }
    bool greeted() const noexcept { return greeted_; }
    std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
    std::uint64_t from() const noexcept { return greeting_.from; }
    const std::string& reason() const noexcept { return reason_; }
    Peer take() noexcept;

private:
    bool fill(void* to, std::size_t bytes);
    State refuse(const std::string& why);

    const Birthplace birthplace_;
    int fd_;
    int passed_fd_ = -1;
    const bool local_;
    const std::int64_t deadline_ns_;
    std::size_t got_ = 0;
    bool greeted_ = false;
    Greeting greeting_;
    Nonce nonce_{};
    Proof proof_{};
    std::string reason_;
};

}  // namespace tmc
