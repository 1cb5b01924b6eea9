// SPDX-License-Identifier: Apache-2.0
#include "links/sealed_link.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace tmc {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = kLengthBytes + SealMarks::kBytes;
constexpr std::size_t kReadBytes = 1 << 16;
constexpr suseconds_t kPatienceUs = 10'000;

std::span<const std::byte> bytes_of(const char* at, std::size_t size) {
    return {reinterpret_cast<const std::byte*>(at), size};
}

void append(std::string& to, std::span<const std::byte> bytes) {
    to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// The error; 0: all was sent.
int sent(int fd, std::string_view data) noexcept {
    while (!data.empty()) {
        const auto count = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR) return errno;
        if (count > 0) data.remove_prefix(static_cast<std::size_t>(count));
    }
    return 0;
}

}  // namespace

SealMarks::Mark SealMarks::next(std::span<const std::byte> said) noexcept {
    std::array<std::byte, 8> number;
    for (std::size_t i = 0; i < number.size(); ++i)
        number[i] = static_cast<std::byte>(number_ >> (8 * (number.size() - 1 - i)));
    ++number_;
    Sha256 inner = hmac_.begin();
    inner.add(number);
    inner.add(said);
    const auto digest = hmac_.end(inner);
    Mark mark;
    std::memcpy(mark.data(), digest.data(), mark.size());
    return mark;
}

/// What the link and its thread have in common: the thread may outlive the link by what it is about
/// to do.
struct SealedLink::Line {
    Line(int copy, std::span<const std::byte> key, std::uint64_t said) : fd(copy), says(key, said) {}
    ~Line() { close_fd(fd); }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    const int fd;
    SealMarks says;  // Of the thread alone.
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> queue;
    bool is_carried = false;
    bool closing = false;
    int error = 0;  // With which something could not be sent.
};

SealedLink::SealedLink(int fd, std::span<const std::byte> says, std::uint64_t said,
                       std::span<const std::byte> hears, std::uint64_t heard, std::size_t bytes_max)
    : hears_(hears, heard), bytes_max_(bytes_max) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw LinkOver(errno);
    fork_closes(copy);
    line_ = std::make_shared<Line>(copy, says, said);
    const timeval patience{0, kPatienceUs};
    if (::setsockopt(copy, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0) throw LinkOver(errno);
}

SealedLink::~SealedLink() {
    if (birthplace_.here()) {
        close();
    } else {
        new std::shared_ptr<Line>(std::move(line_));  // A forked child has neither thread nor socket.
    }
}

void SealedLink::say(std::span<const std::byte> payload) {
    if (!birthplace_.here()) throw LinkOver(EBADF);
    std::string frame;
    frame.reserve(kHeadBytes + payload.size() + SealMarks::kBytes);
    const auto length = static_cast<std::uint32_t>(payload.size());
    for (std::size_t i = 0; i < kLengthBytes; ++i)
        frame.push_back(static_cast<char>(length >> (8 * (kLengthBytes - 1 - i))));
    frame.resize(kHeadBytes);
    append(frame, payload);
    const std::lock_guard lock(line_->mutex);
    if (line_->error != 0 || line_->closing) throw LinkOver(line_->error != 0 ? line_->error : EPIPE);
    line_->queue.push_back(std::move(frame));
    if (!std::exchange(line_->is_carried, true)) {
        try {
            std::thread(&SealedLink::carry, line_).detach();
        } catch (const std::system_error& none) {
            line_->is_carried = false;
            line_->error = none.code().value();
            throw LinkOver(line_->error);
        }
    }
    line_->changed.notify_one();
}

void SealedLink::carry(const std::shared_ptr<Line>& line) noexcept {
    std::unique_lock lock(line->mutex);
    while (true) {
        line->changed.wait(lock, [&] { return line->closing || !line->queue.empty(); });
        if (line->closing) return;
        auto frames = std::exchange(line->queue, {});
        lock.unlock();
        int error = 0;
        for (auto& frame : frames) {  // Its place is kept: length, mark, payload; now the marks.
            const auto head = line->says.next(bytes_of(frame.data(), kLengthBytes));
            std::memcpy(frame.data() + kLengthBytes, head.data(), head.size());
            const auto mark = line->says.next(bytes_of(frame.data() + kHeadBytes, frame.size() - kHeadBytes));
            frame.append(reinterpret_cast<const char*>(mark.data()), mark.size());
            if (error == 0) error = sent(line->fd, frame);
        }
        lock.lock();
        if (error != 0) {
            line->error = error;
            ::shutdown(line->fd, SHUT_RDWR);  // Who waits for what is said to this hears of it.
            return;
        }
    }
}

std::vector<std::string> SealedLink::whole_frames() {
    std::vector<std::string> frames;
    std::size_t at = 0;
    while (true) {
        const char* from = come_.data() + at;
        const std::size_t left = come_.size() - at;
        if (rest_ == 0) {
            if (left < kHeadBytes) break;
            const auto mark = hears_.next(bytes_of(from, kLengthBytes));
            if (!equal_in_constant_time(mark, bytes_of(from + kLengthBytes, mark.size()))) throw NotSaid();
            std::size_t length = 0;
            for (std::size_t i = 0; i < kLengthBytes; ++i)
                length = length << 8 | static_cast<unsigned char>(from[i]);
            if (length > bytes_max_) throw NotSaid(length);
            rest_ = length + SealMarks::kBytes;
        }
        if (left < kHeadBytes + rest_) break;
        const std::size_t length = rest_ - SealMarks::kBytes;
        const auto payload = bytes_of(from + kHeadBytes, length);
        const auto mark = hears_.next(payload);
        if (!equal_in_constant_time(mark, bytes_of(from + kHeadBytes + length, mark.size()))) throw NotSaid();
        frames.emplace_back(from + kHeadBytes, length);
        at += kHeadBytes + rest_;
        rest_ = 0;
    }
    come_.erase(0, at);
    return frames;
}

std::vector<std::string> SealedLink::hear() {
    if (!birthplace_.here()) throw LinkOver(EBADF);
    std::array<char, 4096> few;
    std::string more;
    while (true) {
        const bool is_much = rest_ > few.size();
        if (is_much) more.resize(kReadBytes);
        char* into = is_much ? more.data() : few.data();
        const auto count = ::recv(line_->fd, into, is_much ? more.size() : few.size(), 0);
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
        if (count <= 0) {
            const int error = count < 0 ? errno : 0;
            const std::lock_guard lock(line_->mutex);
            throw LinkOver(line_->error != 0 ? line_->error : error);
        }
        come_.append(into, static_cast<std::size_t>(count));
        if (auto frames = whole_frames(); !frames.empty()) return frames;
        if (rest_ == 0) return {};
    }
}

void SealedLink::close() noexcept {
    const std::lock_guard lock(line_->mutex);
    line_->closing = true;
    ::shutdown(line_->fd, SHUT_RDWR);
    line_->changed.notify_one();
}

}  // namespace tmc
