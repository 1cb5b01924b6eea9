// SPDX-License-Identifier: Apache-2.0
// One connection to one other process, shared by all groups. It is there before it is open: see
// `Link::want`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "base/trouble.hpp"
#include "crypto/keys.hpp"
#include "links/arena.hpp"
#include "links/frame.hpp"
#include "links/hello.hpp"

namespace tmc {

inline constexpr std::size_t kReadBuffer = 64 * 1024;

class Link;

/// Where the payload of the frame that is arriving goes.
struct Landing {
    std::byte* at = nullptr;           // null: read and dropped
    std::unique_ptr<std::byte[]> own;  // what `at` points to, unless it is a caller's buffer
    const void* owner = nullptr;       // the session whose buffer it is
};

/// What a link hands its frames to. Called by whichever thread reads the link, one at a time.
class Receiver {
public:
    virtual ~Receiver() = default;
    /// A header came. Throws Failure when this peer may not say that: the link is then closed.
    virtual Landing arrive(Link& link, const Header& header) = 0;
    /// All of its payload is there.
    virtual void landed(Link& link, const Header& header, Landing landing) = 0;
    /// Somebody needs it, and it is not open. Called once, under any lock but its own.
    virtual void wanted(Link& link) = 0;
    /// Nothing will ever come again. Called once.
    virtual void lost(Link& link, const std::string& why, bool orderly) = 0;
};

/// Who is told that bytes of theirs were written and may be changed again.
class Writer {
public:
    virtual ~Writer() = default;
    /// Called under the link's lock: it must only count and wake.
    virtual void written(std::size_t bytes) noexcept = 0;
};

/// A frame that waits to be written.
struct Outgoing {
    Header header;
    const std::byte* at = nullptr;     // payload; lives until written
    std::unique_ptr<std::byte[]> own;  // or nullptr: a caller's buffer
    Writer* writer = nullptr;
    const void* owner = nullptr;       // the session that can take it back
};

class Link : public std::enable_shared_from_this<Link> {
public:
    Link(std::uint64_t peer, Reach reach, Receiver& receiver);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    const std::uint64_t peer;
    const Reach reach;

    bool alive() const noexcept { return state() != State::dead; }
    /// Whether it was ever open; it may be dead since.
    bool opened() const noexcept { return opened_ns_.load(std::memory_order_acquire) != 0; }
    std::int64_t opened_ns() const noexcept { return opened_ns_.load(std::memory_order_acquire); }
    /// Of a link that was opened.
    std::uint64_t inode() const noexcept { return inode_; }
    /// The peer's arena when it is on this host, and the link was opened; or null.
    const Mapping* mapping() const noexcept { return mapping_.get(); }
    std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }
    std::uint64_t received() const noexcept { return received_.load(std::memory_order_relaxed); }

    /// Have it opened, if nobody has yet. What is queued from now on goes when it is open.
    void want();
    /// It is this connection from now on, and whoever takes events from that epoll descriptor reads
    /// and writes it; he knows it by `id`. False: it is dead, and `peer` was left alone.
    bool open(Peer& connection, int epoll_fd, std::uint64_t id);

    /// Queue a frame. False: the link is dead, or nobody has wanted it yet, and the frame was dropped.
    bool enqueue(Outgoing frame);
    /// Write what the system takes; the rest goes when it takes more.
    void push();
    bool wants_to_write();
    /// Read what is there and hand it on. Only the leader does: see `Engine`.
    /// buffer  at least `kReadBuffer` bytes, which this link needs for as long as this takes
    void pump(std::span<std::byte> buffer);

    /// Leave the buffers of `owner` alone from the moment this returns.
    ///
    /// A frame of which a part was written is finished from a copy, and one that is arriving is
    /// read to its end and dropped: the link stays at a frame's border and serves the next epoch.
    void forget(const void* owner);

    /// Say goodbye, write what is queued, and close for writing; the peer's end of file follows.
    void retire();
    /// Close now.
    void kill(const std::string& why, bool orderly);

    int references = 0;      // Views that hold this link. Guarded by the endpoint.
    bool accounted = false;  // A view has counted it as opened for it. Likewise.
    Trouble trouble;         // Why it could not be opened. Likewise.
    std::optional<bool> over;  // It is lost, and whether in good order. Likewise.

    void detach();

private:
    // Nobody needs it; it is being opened; it is open; it is over. Only ever goes on.
    enum class State : std::uint8_t { idle, wanted, open, dead };

    struct Queued {
        Outgoing frame;
        HeaderBytes head;
        std::size_t done = 0;  // Of head and payload together.
    };
    struct Arriving {
        Header header;
        HeaderBytes head;
        Landing landing;
        std::size_t got = 0;
    };

    bool read_once(std::span<std::byte> buffer);
    void consume(std::span<const std::byte> bytes);
    void begin(std::span<const std::byte, kHeaderBytes> bytes);
    void finish();
    void die(const std::string& why, bool orderly);
    void unseal(std::span<const std::byte, kSealBytes> seal);
    void write_some();
    void write_plain();
    void write_sealed();
    void seal_some();
    std::size_t wrote(long n);
    void break_off() noexcept;
    bool waits() const noexcept { return !queue_.empty() || sealed_begin_ < sealed_end_; }
    void arm() noexcept;
    State state() const noexcept { return state_.load(std::memory_order_acquire); }

    const Birthplace birthplace_;
    Receiver& receiver_;
    std::atomic<State> state_{State::idle};
    // From `open` on, which holds both locks.
    int fd_ = -1;
    Keys keys_;
    std::unique_ptr<Mapping> mapping_;
    std::uint64_t inode_ = 0;
    std::atomic<std::int64_t> opened_ns_{0};

    std::atomic<bool> reported_{false};
    std::atomic<std::uint64_t> sent_{0};
    std::atomic<std::uint64_t> received_{0};

    Mutex write_;
    std::list<Queued> queue_;
    std::uint64_t begun_ = 0;  // frames of which something was written
    // Where links are encrypted: frames that are, and wait to be written.
    std::unique_ptr<std::byte[]> sealed_;
    std::size_t sealed_begin_ = 0;
    std::size_t sealed_end_ = 0;
    bool retiring_ = false;
    bool write_failed_ = false;
    // What epoll reports depends on the queue, and changes with it, under the same lock.
    int epoll_fd_ = -1;
    std::uint64_t id_ = 0;
    std::uint32_t armed_ = 0;

    Mutex read_;
    // The beginning of a header, or of a seal, whose end has not come. All that an idle link holds, so
    // that a process can have thousands.
    HeaderBytes rest_{};
    std::size_t rest_bytes_ = 0;
    std::uint64_t come_ = 0;  // headers that were read
    std::optional<Arriving> arriving_;
    bool leaving_ = false;  // The peer said goodbye.
};

}  // namespace tmc
