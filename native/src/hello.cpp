#include "hello.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "sha256.hpp"
#include "trouble.hpp"

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

Failure broken_off() {
    if (errno == ECANCELED) return {Why::aborted, "connecting was given up"};
    if (errno == ETIMEDOUT) return {Why::timed_out, "a peer did not answer in time"};
    if (errno == EPROTO) return {Why::refused, "what listens there passes descriptors, or none where it should"};
    return {Why::peer_lost, "a peer hung up while connecting"};
}

/// A connection that was dialled.
class Dialled {
public:
    Dialled(int fd, bool local, int cancel_fd, std::int64_t deadline_ns) noexcept
        : fd_(fd), local_(local), cancel_fd_(cancel_fd), deadline_ns_(deadline_ns) {}
    ~Dialled() { local_ ? close_stranger(fd_) : close_fd(fd_); }
    Dialled(const Dialled&) = delete;
    Dialled& operator=(const Dialled&) = delete;

    void say(const void* at, std::size_t bytes, int pass_fd = -1) const {
        if (!send_all(fd_, at, bytes, pass_fd, cancel_fd_, deadline_ns_)) throw broken_off();
    }
    template <class Words>
    Words hear() const {
        Words words;
        if (!read_all(fd_, &words, sizeof words, cancel_fd_, deadline_ns_)) throw broken_off();
        return words;
    }
    std::unique_ptr<Mapping> hear_memory() const {
        int passed = -1;
        if (!read_descriptor(fd_, passed, cancel_fd_, deadline_ns_)) throw broken_off();
        return std::make_unique<Mapping>(passed);
    }
    int take() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_;
    const bool local_;
    const int cancel_fd_;
    const std::int64_t deadline_ns_;
};

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

Peer greet(int fd, const Self& self, const Target& target, int cancel_fd, std::int64_t deadline_ns) {
    Dialled link(fd, target.local, cancel_fd, deadline_ns);
    const Fresh fresh(target.local ? nullptr : self.libcrypto);
    Greeting greeting;
    greeting.from = self.incarnation;
    greeting.to = target.incarnation;
    greeting.sealed = fresh.sealed() ? 1 : 0;
    greeting.nonce = fresh.nonce();
    link.say(&greeting, sizeof greeting);
    const auto answer = link.hear<Answer>();
    if (answer.magic != kHelloMagic)
        throw Failure(Why::refused, "what listens there is not a native communicator");
    check_alike(answer, fresh.sealed());
    const Transcript transcript{greeting, answer.nonce, target.address};
    if (!equal_in_constant_time(answer.proof, transcript.listeners_proof(self.token)))
        throw Failure(Why::refused, "the listener does not know this job's token, or is dialled at "
                                    "another address than its own");
    const auto proof = transcript.diallers_proof(self.token);
    link.say(proof.data(), proof.size());
    auto verdict = link.hear<Verdict>();
    if (verdict.accepted != 1) throw Failure(Why::refused, "the peer refused: " + readable(verdict));
    Peer peer;
    if (target.local) {
        link.say("", 1, self.arena_fd);
        peer.mapping = link.hear_memory();
    }
    peer.keys = transcript.keys(self.token, fresh, true);
    peer.fd = link.take();
    return peer;
}

Hello::Hello(int fd, bool local, const std::string& address, std::int64_t deadline_ns) noexcept
    : fd_(fd), local_(local), address_(address), deadline_ns_(deadline_ns) {}

Hello::~Hello() {
    if (!birthplace_.here()) return;
    local_ ? close_stranger(fd_) : close_fd(fd_);
}

Peer Hello::take() noexcept { return {std::exchange(fd_, -1), std::move(mapping_), std::move(keys_)}; }

/// True when all of it is there. Throws Failure when the dialler hangs up.
bool Hello::fill(void* to, std::size_t bytes) {
    while (got_ < bytes) {
        const auto n = read_some(fd_, static_cast<char*>(to) + got_, bytes - got_);
        if (n > 0)
            got_ += static_cast<std::size_t>(n);
        else if (n < 0 && errno == EAGAIN)
            return false;
        else if (n < 0 && errno == EPROTO)
            throw Failure(Why::refused, "descriptors were passed before the proof");
        else if (n == 0 || errno != EINTR)
            throw Failure(Why::peer_lost, "hung up");
    }
    got_ = 0;
    return true;
}

Hello::State Hello::advance(const Self& self) {
    try {
        return go_on(self);
    } catch (const Failure& failure) {
        reason_ = failure.what();
        Verdict verdict;
        reason_.copy(verdict.reason, sizeof verdict.reason - 1);
        if (failure.trouble().why == Why::refused) send_all(fd_, &verdict, sizeof verdict, -1, -1, 0);
        return State::refused;
    }
}

Hello::State Hello::go_on(const Self& self) {
    if (!greeted_ && !hear_greeting(self)) return State::waiting;
    if (!proved_ && !hear_proof(self)) return State::waiting;
    if (local_ && !take_memory(self)) return State::waiting;
    return State::accepted;
}

bool Hello::hear_greeting(const Self& self) {
    if (!fill(&greeting_, sizeof greeting_)) return false;
    if (greeting_.magic != kHelloMagic) throw Failure(Why::refused, "not a native communicator");
    greeted_ = true;
    fresh_ = std::make_unique<Fresh>(local_ ? nullptr : self.libcrypto);
    Answer answer;
    answer.sealed = fresh_->sealed() ? 1 : 0;
    answer.nonce = fresh_->nonce();
    answer.proof = Transcript{greeting_, fresh_->nonce(), address_}.listeners_proof(self.token);
    send_all(fd_, &answer, sizeof answer, -1, -1, 0);
    check_alike(greeting_, fresh_->sealed());
    return true;
}

bool Hello::hear_proof(const Self& self) {
    if (!fill(proof_.data(), proof_.size())) return false;
    const Transcript transcript{greeting_, fresh_->nonce(), address_};
    if (!equal_in_constant_time(proof_, transcript.diallers_proof(self.token)))
        throw Failure(Why::refused, "wrong token, or dialled at another address");
    if (greeting_.to != self.incarnation) throw Failure(Why::refused, "another process listens here now");
    if (greeting_.from == 0 || greeting_.from == self.incarnation)
        throw Failure(Why::refused, "bad incarnation");
    keys_ = transcript.keys(self.token, *fresh_, false);
    proved_ = true;
    Verdict verdict;
    verdict.accepted = 1;
    if (!send_all(fd_, &verdict, sizeof verdict, -1, -1, 0)) throw Failure(Why::peer_lost, "hung up");
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
    if (!send_all(fd_, "", 1, self.arena_fd, -1, 0)) throw Failure(Why::peer_lost, "hung up");
    return true;
}

}  // namespace tmc
