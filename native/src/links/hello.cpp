// SPDX-License-Identifier: Apache-2.0
#include "links/hello.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/trouble.hpp"
#include "crypto/sha256.hpp"

namespace tmc {
namespace {

void fill_randomly(void* at, std::size_t bytes) {
    if (getrandom(at, bytes, 0) != static_cast<ssize_t>(bytes))
        throw Failure(Why::refused, "the system gives no random numbers");
}

template <class Key>
Key key_of(const Digest& secret, const std::string& purpose) {
    const auto drawn = hmac_sha256(secret, std::as_bytes(std::span(purpose)));
    Key key;
    static_assert(key.size() <= drawn.size());
    std::copy_n(drawn.begin(), key.size(), key.begin());
    return key;
}

/// All that both ends must have the same. The address comes last: the rest has one length.
struct Transcript {
    const Greeting& greeting;
    const Nonce& nonce;
    const std::string& address;

    Digest signed_by(const Token& token, std::string_view role) const {
        std::vector<std::byte> text;
        const auto add = [&](const void* at, std::size_t bytes) {
            const auto* from = static_cast<const std::byte*>(at);
            text.insert(text.end(), from, from + bytes);
        };
        add(role.data(), role.size());
        add(&greeting, sizeof greeting);
        add(nonce.data(), nonce.size());
        add(address.data(), address.size());
        return hmac_sha256(token, text);
    }
    Digest listeners_proof(const Token& token) const { return signed_by(token, "trainmover listener"); }
    Digest diallers_proof(const Token& token) const { return signed_by(token, "trainmover dialler"); }
    Keys keys(const Token& token, const Fresh& fresh, bool dialled) const {
        const auto shared = fresh.with(dialled ? nonce : greeting.nonce);
        const auto secret = hmac_sha256(shared, signed_by(token, "trainmover keys"));
        const std::string ends[] = {"dialler", "listener"};
        const auto& mine = ends[dialled ? 0 : 1];
        const auto& theirs = ends[dialled ? 1 : 0];
        Keys keys;
        keys.frames_out = key_of<SipKey>(secret, "frames of the " + mine);
        keys.frames_in = key_of<SipKey>(secret, "frames of the " + theirs);
        if (!fresh.sealed()) return keys;
        keys.seal = std::make_unique<Cipher>(
            fresh.libcrypto(), key_of<CipherKey>(secret, "payload of the " + mine), Cipher::Use::seal);
        keys.open = std::make_unique<Cipher>(
            fresh.libcrypto(), key_of<CipherKey>(secret, "payload of the " + theirs), Cipher::Use::open);
        return keys;
    }
};

/// Whether the peer speaks as this process does. Greeting and answer say it alike.
template <class Words>
void check_alike(const Words& words, bool sealed) {
    if (words.version != kVersion)
        throw Failure(Why::refused, "it speaks version " + std::to_string(words.version) +
                                        " of the native communicator, this is " + std::to_string(kVersion));
    if (words.sealed != (sealed ? 1 : 0))
        throw Failure(Why::refused, sealed ? "it does not encrypt its links, this process does (--tls)"
                                           : "it encrypts its links (--tls), this process does not");
}

/// What a peer wrote, which may be anything, as text.
std::string readable(Verdict& verdict) {
    verdict.reason[sizeof verdict.reason - 1] = '\0';
    for (auto& letter : verdict.reason)
        if (letter != '\0' && (letter < ' ' || letter > '~')) letter = '?';
    return verdict.reason;
}

}  // namespace

Fresh::Fresh(const std::shared_ptr<const Libcrypto>& libcrypto) : libcrypto_(libcrypto) {
    if (libcrypto_ == nullptr) {
        fill_randomly(nonce_.data(), nonce_.size());
        return;
    }
    pair_ = std::make_unique<KeyPair>(libcrypto_);
    nonce_ = pair_->shown();
}

Shared Fresh::with(const Nonce& other) const { return pair_ == nullptr ? Shared{} : pair_->with(other); }

std::uint64_t fresh_number() {
    std::uint64_t number = 0;
    while (number == 0) fill_randomly(&number, sizeof number);
    return number;
}

bool Ear::hear(int fd, void* to, std::size_t bytes) {
    while (got_ < bytes) {
        const auto n = read_some(fd, static_cast<char*>(to) + got_, bytes - got_);
        if (n > 0)
            got_ += static_cast<std::size_t>(n);
        else if (n < 0 && errno == EAGAIN)
            return false;
        else if (n < 0 && errno == EPROTO)
            throw Failure(Why::refused, "descriptors were passed where none belong");
        else if (n == 0 || errno != EINTR)
            throw Failure(Why::peer_lost, "it hung up while connecting");
    }
    got_ = 0;
    return true;
}

Dial::Dial(const Self& self, std::uint64_t peer, const Reach& reach)
    : peer_(peer),
      reach_(reach),
      fd_(reach.local ? dial_local(reach.address) : dial_tcp(reach.address)),
      fresh_(std::make_unique<Fresh>(reach.local ? nullptr : self.libcrypto)) {}

Dial::~Dial() {
    if (!birthplace_.here()) return;
    reach_.local ? close_stranger(fd_) : close_fd(fd_);
}

Peer Dial::take() noexcept { return {std::exchange(fd_, -1), std::move(mapping_), std::move(keys_)}; }

void Dial::say(const void* at, std::size_t bytes, int pass_fd) const {
    if (!send_all(fd_, at, bytes, pass_fd)) throw Failure(Why::peer_lost, "it hung up while connecting");
}

Dial::State Dial::advance(const Self& self) {
    if (connecting_) greet(self);
    if (!answered_) {
        if (!ear_.hear(fd_, &answer_, sizeof answer_)) return State::waiting;
        prove(self);
    }
    if (!judged_) {
        if (!ear_.hear(fd_, &verdict_, sizeof verdict_)) return State::waiting;
        if (verdict_.answer == Verdict::crossed) return State::crossed;
        if (verdict_.answer != Verdict::accepted)
            throw Failure(Why::refused, "the peer refused: " + readable(verdict_));
        judged_ = true;
        if (reach_.local) say("", 1, self.arena_fd);
    }
    return !reach_.local || hear_memory() ? State::accepted : State::waiting;
}

void Dial::greet(const Self& self) {
    if (!reach_.local) connected(fd_, reach_.address);
    connecting_ = false;
    greeting_.from = self.incarnation;
    greeting_.to = peer_;
    greeting_.sealed = fresh_->sealed() ? 1 : 0;
    greeting_.nonce = fresh_->nonce();
    say(&greeting_, sizeof greeting_);
}

/// To who has proved itself.
void Dial::prove(const Self& self) {
    answered_ = true;
    if (answer_.magic != kHelloMagic)
        throw Failure(Why::refused, "what listens there is not a native communicator");
    check_alike(answer_, fresh_->sealed());
    const Transcript transcript{greeting_, answer_.nonce, reach_.address};
    if (!equal_in_constant_time(answer_.proof, transcript.listeners_proof(self.token)))
        throw Failure(Why::refused, "the listener does not know this job's token, or is dialled at "
                                    "another address than its own");
    const auto proof = transcript.diallers_proof(self.token);
    say(proof.data(), proof.size());
    keys_ = transcript.keys(self.token, *fresh_, true);
}

/// Exchange memory with a neighbour; see `Hello::take_memory`.
bool Dial::hear_memory() {
    int passed = -1;
    const auto n = read_descriptor(fd_, passed);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n == 0) throw Failure(Why::peer_lost, "it hung up while connecting");
    if (n < 0) throw Failure(Why::refused, "what listens there passes no memory");
    mapping_ = std::make_unique<Mapping>(passed);
    return true;
}

Hello::Hello(int fd, bool local, const std::string& address, std::int64_t deadline_ns) noexcept
    : fd_(fd), local_(local), address_(address), deadline_ns_(deadline_ns) {}

Hello::~Hello() {
    if (!birthplace_.here()) return;
    local_ ? close_stranger(fd_) : close_fd(fd_);
}

Peer Hello::take() noexcept { return {std::exchange(fd_, -1), std::move(mapping_), std::move(keys_)}; }

Hello::State Hello::advance(const Self& self) {
    try {
        return go_on(self);
    } catch (const Failure& failure) {
        reason_ = failure.what();
        Verdict verdict;
        reason_.copy(verdict.reason, sizeof verdict.reason - 1);
        if (failure.trouble().why == Why::refused) send_all(fd_, &verdict, sizeof verdict);
        return State::refused;
    }
}

Hello::State Hello::go_on(const Self& self) {
    if (!greeted_ && !hear_greeting(self)) return State::waiting;
    if (!proved_ && !hear_proof(self)) return State::waiting;
    if (crossed_) return State::crossed;
    if (local_ && !take_memory(self)) return State::waiting;
    return State::accepted;
}

bool Hello::hear_greeting(const Self& self) {
    if (!ear_.hear(fd_, &greeting_, sizeof greeting_)) return false;
    if (greeting_.magic != kHelloMagic) throw Failure(Why::refused, "not a native communicator");
    greeted_ = true;
    fresh_ = std::make_unique<Fresh>(local_ ? nullptr : self.libcrypto);
    Answer answer;
    answer.sealed = fresh_->sealed() ? 1 : 0;
    answer.nonce = fresh_->nonce();
    answer.proof = Transcript{greeting_, fresh_->nonce(), address_}.listeners_proof(self.token);
    send_all(fd_, &answer, sizeof answer);
    check_alike(greeting_, fresh_->sealed());
    return true;
}

bool Hello::hear_proof(const Self& self) {
    if (!ear_.hear(fd_, proof_.data(), proof_.size())) return false;
    const Transcript transcript{greeting_, fresh_->nonce(), address_};
    if (!equal_in_constant_time(proof_, transcript.diallers_proof(self.token)))
        throw Failure(Why::refused, "wrong token, or dialled at another address");
    if (greeting_.to != self.incarnation) throw Failure(Why::refused, "another process listens here now");
    if (greeting_.from == 0 || greeting_.from == self.incarnation)
        throw Failure(Why::refused, "bad incarnation");
    crossed_ = self.doorkeeper.prefers_another(greeting_.from);
    proved_ = true;
    Verdict verdict;
    verdict.answer = crossed_ ? Verdict::crossed : Verdict::accepted;
    keys_ = transcript.keys(self.token, *fresh_, false);
    if (!send_all(fd_, &verdict, sizeof verdict)) throw Failure(Why::peer_lost, "hung up");
    return true;
}

/// Exchange memory with a neighbour; it gets ours once its own was found good.
bool Hello::take_memory(const Self& self) {
    int passed = -1;
    const auto n = read_descriptor(fd_, passed);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n == 0) throw Failure(Why::peer_lost, "hung up");
    if (n < 0) throw Failure(Why::peer_lost, "no shared memory was passed");
    mapping_ = std::make_unique<Mapping>(passed);
    if (!send_all(fd_, "", 1, self.arena_fd)) throw Failure(Why::peer_lost, "hung up");
    return true;
}

}  // namespace tmc
