#include "hello.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sha256.hpp"
#include "sockets.hpp"
#include "trouble.hpp"

namespace tmc {
namespace {

void fill_randomly(void* at, std::size_t bytes) {
    if (getrandom(at, bytes, 0) != static_cast<ssize_t>(bytes))
        throw Failure(Why::refused, "the system gives no random numbers");
}

Proof proof_of(const char* role, const Token& token, const Greeting& greeting, const Nonce& nonce) {
    std::vector<std::byte> text(std::strlen(role) + sizeof greeting + nonce.size());
    auto* at = text.data();
    std::memcpy(at, role, std::strlen(role));
    at += std::strlen(role);
    std::memcpy(at, &greeting, sizeof greeting);
    std::memcpy(at + sizeof greeting, nonce.data(), nonce.size());
    return hmac_sha256(token, text);
}

std::string other_version(std::uint32_t version) {
    return "it speaks version " + std::to_string(version) + " of the native communicator, this is " +
           std::to_string(kVersion);
}

[[noreturn]] void give_up(const Peer& peer, Why why, const std::string& text) {
    close_fd(peer.fd);
    if (peer.arena_fd >= 0) close(peer.arena_fd);
    throw Failure(why, text);
}

[[noreturn]] void give_up(const Peer& peer) {
    if (errno == ECANCELED) give_up(peer, Why::aborted, "connecting was given up");
    if (errno == ETIMEDOUT) give_up(peer, Why::timed_out, "a peer did not answer in time");
    give_up(peer, Why::peer_lost, "a peer hung up while connecting");
}

}  // namespace

Nonce fresh_nonce() {
    Nonce nonce;
    fill_randomly(nonce.data(), nonce.size());
    return nonce;
}

std::uint64_t fresh_number() {
    std::uint64_t number = 0;
    while (number == 0) fill_randomly(&number, sizeof number);
    return number;
}

Proof listeners_proof(const Token& token, const Greeting& greeting, const Nonce& nonce) {
    return proof_of("listener", token, greeting, nonce);
}

Proof diallers_proof(const Token& token, const Greeting& greeting, const Nonce& nonce) {
    return proof_of("dialler", token, greeting, nonce);
}

Peer greet(int fd, bool local, int own_arena_fd, const Token& token, std::uint64_t from,
           std::uint64_t to, int cancel_fd, std::int64_t deadline_ns) {
    Peer peer{fd, -1};
    Greeting greeting;
    greeting.from = from;
    greeting.to = to;
    greeting.nonce = fresh_nonce();
    Answer answer;
    if (!send_all(fd, &greeting, sizeof greeting, -1, cancel_fd, deadline_ns) ||
        !read_all(fd, &answer, sizeof answer, nullptr, cancel_fd, deadline_ns))
        give_up(peer);
    if (answer.magic != kHelloMagic)
        give_up(peer, Why::refused, "what listens there is not a native communicator");
    if (answer.version != kVersion) give_up(peer, Why::refused, other_version(answer.version));
    if (!equal_in_constant_time(answer.proof, listeners_proof(token, greeting, answer.nonce)))
        give_up(peer, Why::refused, "the listener does not know this job's token");
    const auto proof = diallers_proof(token, greeting, answer.nonce);
    Verdict verdict;
    if (!send_all(fd, proof.data(), proof.size(), local ? own_arena_fd : -1, cancel_fd,
                  deadline_ns) ||
        !read_all(fd, &verdict, sizeof verdict, local ? &peer.arena_fd : nullptr, cancel_fd,
                  deadline_ns))
        give_up(peer);
    if (verdict.accepted != 1) {
        verdict.reason[sizeof verdict.reason - 1] = '\0';
        for (auto& letter : verdict.reason)
            if (letter != '\0' && (letter < ' ' || letter > '~')) letter = '?';
        give_up(peer, Why::refused, std::string("the peer refused: ") + verdict.reason);
    }
    if (local && peer.arena_fd < 0) give_up(peer, Why::refused, "the peer passed no shared memory");
    return peer;
}

Hello::Hello(int fd, bool local, std::int64_t deadline_ns) noexcept
    : fd_(fd), local_(local), deadline_ns_(deadline_ns) {}

Hello::~Hello() {
    if (!birthplace_.here()) return;
    close_fd(fd_);
    if (passed_fd_ >= 0) close(passed_fd_);
}

Peer Hello::take() noexcept {
    const Peer peer{fd_, passed_fd_};
    fd_ = passed_fd_ = -1;
    return peer;
}

/// True when all of it is there. Throws Failure when the dialler hangs up.
bool Hello::fill(void* to, std::size_t bytes) {
    while (got_ < bytes) {
        const auto n = read_some(fd_, static_cast<char*>(to) + got_, bytes - got_, &passed_fd_);
        if (n > 0)
            got_ += static_cast<std::size_t>(n);
        else if (n < 0 && errno == EAGAIN)
            return false;
        else if (n == 0 || errno != EINTR)
            throw Failure(Why::peer_lost, "hung up");
    }
    got_ = 0;
    return true;
}

Hello::State Hello::refuse(const std::string& why) {
    Verdict verdict;
    why.copy(verdict.reason, sizeof verdict.reason - 1);
    send_all(fd_, &verdict, sizeof verdict, -1, -1, 0);
    reason_ = why;
    return State::refused;
}

Hello::State Hello::advance(const Token& token, std::uint64_t incarnation, int own_arena_fd) {
    try {
        if (!greeted_) {
            if (!fill(&greeting_, sizeof greeting_)) return State::waiting;
            if (greeting_.magic != kHelloMagic) return refuse("not a native communicator");
            greeted_ = true;
            nonce_ = fresh_nonce();
            Answer answer;
            answer.nonce = nonce_;
            answer.proof = listeners_proof(token, greeting_, nonce_);
            send_all(fd_, &answer, sizeof answer, -1, -1, 0);
            if (greeting_.version != kVersion) return refuse(other_version(greeting_.version));
        }
        if (!fill(proof_.data(), proof_.size())) return State::waiting;
        if (!equal_in_constant_time(proof_, diallers_proof(token, greeting_, nonce_))) return refuse("wrong token");
        if (greeting_.to != incarnation) return refuse("another process listens here now");
        if (greeting_.from == 0 || greeting_.from == incarnation) return refuse("bad incarnation");
        if (local_ && passed_fd_ < 0) return refuse("no shared memory was passed");
        Verdict verdict;
        verdict.accepted = 1;
        if (!send_all(fd_, &verdict, sizeof verdict, local_ ? own_arena_fd : -1, -1, 0))
            throw Failure(Why::peer_lost, "hung up");
        return State::accepted;
    } catch (const Failure& failure) {
        reason_ = failure.what();
        return State::refused;
    }
}

}  // namespace tmc
