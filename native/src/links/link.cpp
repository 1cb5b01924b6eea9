// SPDX-License-Identifier: Apache-2.0
#include "links/link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "base/trouble.hpp"

namespace tmc {
namespace {

constexpr std::size_t kDirect = 4096;  // From here on a payload is read to where it belongs.
constexpr std::size_t kBehind = 4096;
constexpr int kReadsAtOnce = 16;
constexpr std::size_t kPartsAtOnce = 16;
constexpr std::size_t kSealedAtOnce = kHeaderBytes + kPayloadMax + kSealBytes;

}  // namespace

Link::Link(std::uint64_t peer_, Reach reach_, Receiver& receiver)
    : peer(peer_), reach(std::move(reach_)), receiver_(receiver) {}

Link::~Link() {
    if (birthplace_.here()) close_fd(fd_);
}

void Link::want() {
    auto expected = State::idle;
    if (state_.compare_exchange_strong(expected, State::wanted)) receiver_.wanted(*this);
}

bool Link::open(Peer& connection, int epoll_fd, std::uint64_t id) {
    {
        const std::scoped_lock lock(read_, write_);
        if (!alive()) return false;
        fd_ = connection.fd;
        keys_ = std::move(connection.keys);
        mapping_ = std::move(connection.mapping);
        inode_ = inode_of(fd_);
        epoll_fd_ = epoll_fd;
        id_ = id;
        armed_ = EPOLLIN;
        opened_ns_.store(now_ns(), std::memory_order_release);
        state_.store(State::open, std::memory_order_release);
        epoll_event event{};
        event.events = armed_;
        event.data.u64 = id_;
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd_, &event);
    }
    push();
    return true;
}

// Writing.

bool Link::enqueue(Outgoing frame) {
    const std::lock_guard lock(write_);
    if (!alive() || state() == State::idle || retiring_ || write_failed_) return false;
    auto head = encoded(frame.header);
    queue_.push_back({std::move(frame), head, 0});
    return true;
}

void Link::push() {
    point();
    const std::lock_guard lock(write_);
    if (fd_ < 0) return;
    write_some();
    arm();
}

void Link::write_some() {
    keys_.seal == nullptr ? write_plain() : write_sealed();
    if (retiring_ && !waits()) shutdown(fd_, SHUT_WR);
}

void Link::write_plain() {
    while (!queue_.empty() && !write_failed_) {
        iovec parts[2 * kPartsAtOnce];
        std::size_t count = 0;
        auto number = begun_;
        for (auto it = queue_.begin(); it != queue_.end() && count + 2 <= 2 * kPartsAtOnce; ++it) {
            if (it->done == 0) sign(it->head, keys_.frames_out, number++);
            if (it->done < kHeaderBytes)
                parts[count++] = {it->head.data() + it->done, kHeaderBytes - it->done};
            const auto skip = it->done > kHeaderBytes ? it->done - kHeaderBytes : 0;
            if (it->frame.header.length > skip)
                parts[count++] = {const_cast<std::byte*>(it->frame.at) + skip,
                                  it->frame.header.length - skip};
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        auto left = wrote(sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (left == 0) return;
        while (left > 0) {
            auto& front = queue_.front();
            const auto whole = kHeaderBytes + front.frame.header.length;
            const auto step = std::min(left, whole - front.done);
            if (front.done == 0) ++begun_;
            front.done += step;
            left -= step;
            if (front.done < whole) break;
            if (front.frame.writer != nullptr) front.frame.writer->written(front.frame.header.length);
            queue_.pop_front();
        }
    }
}

void Link::write_sealed() {
    while (!write_failed_) {
        if (sealed_begin_ == sealed_end_) seal_some();
        if (sealed_begin_ == sealed_end_) return;
        const auto bytes = wrote(send(fd_, sealed_.get() + sealed_begin_, sealed_end_ - sealed_begin_,
                                      MSG_DONTWAIT | MSG_NOSIGNAL));
        if (bytes == 0) return;
        sealed_begin_ += bytes;
    }
}

/// Encrypt as many frames as fit into the buffer. What is written from there is a copy, so whoever
/// waits to change the bytes may do it now.
void Link::seal_some() {
    if (sealed_ == nullptr) sealed_ = std::make_unique_for_overwrite<std::byte[]>(kSealedAtOnce);
    sealed_begin_ = sealed_end_ = 0;
    while (!queue_.empty()) {
        auto& front = queue_.front();
        const std::size_t length = front.frame.header.length;
        const auto behind = length == 0 ? 0 : length + kSealBytes;
        if (kHeaderBytes + behind > kSealedAtOnce - sealed_end_) return;
        auto* to = sealed_.get() + sealed_end_;
        sign(front.head, keys_.frames_out, begun_);
        std::memcpy(to, front.head.data(), kHeaderBytes);
        if (length > 0 &&
            !keys_.seal->seal(begun_, front.head, {front.frame.at, length}, to + kHeaderBytes))
            return break_off();
        ++begun_;
        sealed_end_ += kHeaderBytes + behind;
        if (front.frame.writer != nullptr) front.frame.writer->written(length);
        queue_.pop_front();
    }
}

/// What came of a write: bytes, 0 if nothing more can be written now.
std::size_t Link::wrote(long n) {
    if (n > 0) {
        sent_.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
        return static_cast<std::size_t>(n);
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) break_off();
    return 0;
}

/// What the peer said last may still be readable, so the reader reports the loss.
void Link::break_off() noexcept {
    write_failed_ = true;
    queue_.clear();
    sealed_begin_ = sealed_end_ = 0;
    shutdown(fd_, SHUT_WR);
}

/// Hear of room for writing for as long as something waits to be written.
void Link::arm() noexcept {
    const std::uint32_t wanted = EPOLLIN | (waits() ? EPOLLOUT : 0U);
    if (epoll_fd_ < 0 || wanted == armed_) return;
    armed_ = wanted;
    epoll_event event{};
    event.events = wanted;
    event.data.u64 = id_;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd_, &event);
}

bool Link::wants_to_write() {
    const std::lock_guard lock(write_);
    return waits();
}

// Reading.

void Link::pump(std::span<std::byte> buffer) {
    const std::lock_guard lock(read_);
    bool more = true;
    for (int i = 0; more && alive() && i < kReadsAtOnce; ++i) more = read_once(buffer);
}

/// One read. True: another one may find something.
///
/// The rest of a large payload goes to where it belongs, and what follows it into the buffer; that
/// is kept short, because what of the next payload is in it must be copied.
bool Link::read_once(std::span<std::byte> buffer) {
    std::size_t direct = 0;
    if (arriving_ && arriving_->landing.at != nullptr) {
        const auto missing = arriving_->header.length - arriving_->got;
        if (missing >= kDirect) direct = missing;
    }
    std::memcpy(buffer.data(), rest_.data(), rest_bytes_);
    iovec parts[2];
    std::size_t count = 0;
    if (direct > 0) parts[count++] = {arriving_->landing.at + arriving_->got, direct};
    const auto room = direct > 0 ? kBehind : buffer.size() - rest_bytes_;
    parts[count++] = {buffer.data() + rest_bytes_, room};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const auto n = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) {
        die(n == 0 ? "the connection was closed by the peer"
                   : std::string("the connection broke: ") + std::strerror(errno),
            leaving_);
        return false;
    }
    const auto bytes = static_cast<std::size_t>(n);
    received_.fetch_add(bytes, std::memory_order_relaxed);
    try {
        const auto straight = std::min(bytes, direct);
        if (straight > 0) arriving_->got += straight;
        consume(buffer.first(rest_bytes_ + bytes - straight));
    } catch (const Failure& failure) {
        die(std::string("the peer broke the rules: ") + failure.what(), false);
    } catch (const std::bad_alloc&) {
        die("there is no memory for what the peer sends", false);
    }
    return bytes == direct + room;
}

/// Take apart what was read; what is left of it is less than a header, or than a seal.
void Link::consume(std::span<const std::byte> bytes) {
    rest_bytes_ = 0;
    while (alive()) {
        if (!arriving_) {
            if (bytes.size() < kHeaderBytes) break;
            begin(bytes.first<kHeaderBytes>());
            bytes = bytes.subspan(kHeaderBytes);
        }
        const auto step = std::min(arriving_->header.length - arriving_->got, bytes.size());
        if (step > 0 && arriving_->landing.at != nullptr)
            std::memcpy(arriving_->landing.at + arriving_->got, bytes.data(), step);
        bytes = bytes.subspan(step);
        arriving_->got += step;
        if (arriving_->got < arriving_->header.length) return;
        if (keys_.open != nullptr && arriving_->header.length > 0) {
            if (bytes.size() < kSealBytes) break;
            unseal(bytes.first<kSealBytes>());
            bytes = bytes.subspan(kSealBytes);
        }
        finish();
    }
    if (!alive()) return;
    std::memcpy(rest_.data(), bytes.data(), bytes.size());
    rest_bytes_ = bytes.size();
}

void Link::begin(std::span<const std::byte, kHeaderBytes> bytes) {
    Header header;
    const auto reason = decode(bytes, keys_.frames_in, come_++, header);
    if (!reason.empty()) throw Failure(Why::peer_lost, reason);
    HeaderBytes head;
    std::copy(bytes.begin(), bytes.end(), head.begin());
    if (header.kind == Frame::leaving) leaving_ = true;
    auto landing = receiver_.arrive(*this, header);
    arriving_.emplace(Arriving{header, head, std::move(landing), 0});
}

/// Decrypt what has come, where it lies. What nobody wants any more was not kept.
void Link::unseal(std::span<const std::byte, kSealBytes> seal) {
    const auto& landing = arriving_->landing;
    if (landing.at != nullptr &&
        !keys_.open->open(come_ - 1, arriving_->head, {landing.at, arriving_->got}, seal))
        throw Failure(Why::peer_lost, "a frame's payload was changed on its way");
}

void Link::finish() {
    auto done = std::move(*arriving_);
    arriving_.reset();
    point();
    receiver_.landed(*this, done.header, std::move(done.landing));
}

// Who reads it.

void Link::detach() {
    const std::lock_guard lock(write_);
    if (epoll_fd_ >= 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd_, nullptr);
    epoll_fd_ = -1;
}

void Link::forget(const void* owner) {
    {
        const std::lock_guard lock(read_);
        if (arriving_ && arriving_->landing.owner == owner) arriving_->landing = {};
    }
    const std::lock_guard lock(write_);
    for (auto it = queue_.begin(); it != queue_.end();) {
        auto& frame = it->frame;
        if (frame.owner != owner) {
            ++it;
        } else if (it->done == 0) {
            it = queue_.erase(it);
        } else {
            if (!frame.own && frame.header.length > 0) {
                frame.own = std::make_unique<std::byte[]>(frame.header.length);
                std::memcpy(frame.own.get(), frame.at, frame.header.length);
                frame.at = frame.own.get();
            }
            frame.owner = nullptr;
            frame.writer = nullptr;
            ++it;
        }
    }
}

// The end.

void Link::retire() {
    Outgoing goodbye;
    goodbye.header.kind = Frame::leaving;
    enqueue(std::move(goodbye));
    {
        const std::lock_guard lock(write_);
        retiring_ = true;
    }
    push();
}

void Link::kill(const std::string& why, bool orderly) {
    const std::lock_guard lock(read_);
    die(why, orderly);
}

void Link::die(const std::string& why, bool orderly) {
    arriving_.reset();
    {
        const std::lock_guard lock(write_);
        state_.store(State::dead, std::memory_order_release);
        queue_.clear();
        sealed_begin_ = sealed_end_ = 0;
    }
    if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
    if (!reported_.exchange(true)) receiver_.lost(*this, why, orderly || retiring_);
}

}  // namespace tmc
