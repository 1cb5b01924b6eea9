// SPDX-License-Identifier: Apache-2.0
// Streams of bytes to and from the other seats, one in each direction per seat. Where a group is on one
// host there are none; else also to neighbours, for what is too large for slots.
//
//     Who waits for a seat has a link to it, or is having one opened.
//
// So it hears at once if that seat is gone, be it that it never was there. A stream is made, and its
// link wanted, by the first use; what is sent before the link is open waits in the link's queue.
//
// The sender cuts its pieces into frames; the receiver names where the next pieces go, in the same
// order, and they land there without a copy. What comes before it was expected is held, at most
// `kWindow` bytes per stream: no more may be on its way than the receiver has consumed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/points.hpp"
#include "links/link.hpp"
#include "session/ending.hpp"
#include "session/topology.hpp"
#include "session/view.hpp"

namespace tmc {

inline constexpr std::uint64_t kWindow = 4 * 1024 * 1024;

/// What came from one seat and was not expected yet. Exists before its session does: a peer may be
/// in the epoch already.
struct Inflow {
    struct Piece {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t length = 0;
        Tag tag;
    };
    std::list<Piece> pieces;  // Not a deque: an empty one holds half a kilobyte.
    std::uint64_t held = 0;  // bytes in `pieces`, and in the one that is arriving
};

class Wires {
public:
    /// mutex  guards what readers of the links touch; the endpoint's
    Wires(const View& view, const Topology& topology, Ending& ending, Mutex& mutex,
          const void* owner);

    // For the thread that runs a collective. All throw Failure. What is sent from and received into
    // lies in a caller's buffer, a slot or scratch memory, never in a collective's own variables:
    // links use it until the session was cleaned up, which is after the collective has failed.
    void begin(Tag tag, std::uint64_t number) noexcept {
        tag_ = tag;
        number_ = number;
    }
    void send(std::size_t seat, const std::byte* at, std::size_t bytes);
    void expect(std::size_t seat, std::byte* at, std::size_t bytes);
    /// Wait until all that was expected has come, and all that was sent is written.
    void settle();
    /// Wait until of every seat at most so many pieces are missing, the latest expected.
    void await(std::size_t missing);
    /// The same of one seat.
    void await_from(std::size_t seat, std::size_t missing);
    /// Wait until at most so many frames for that seat are not written.
    void await_written(std::size_t seat, std::size_t unwritten);

    // For readers of links, with the mutex held. Throw Failure for a peer that breaks the rules;
    // a Trouble that is returned ends the session.
    Landing arrive(std::size_t seat, const Header& header);
    std::optional<Trouble> landed(std::size_t seat, const Header& header, Landing& landing);
    void credit(std::size_t seat, std::uint64_t consumed);
    /// Take what came before the session existed.
    void adopt(std::size_t seat, Inflow inflow);
    /// Let the peer send more, if it is time. The caller pushes the link.
    void give_credit(std::size_t seat);

    /// Drop all expectations: from now on nothing lands. With the mutex held.
    void clear();

private:
    struct Expected {
        std::byte* at = nullptr;
        std::size_t bytes = 0;
        std::size_t got = 0;
        Tag tag;
    };
    struct Stream : Writer {
        Wires* wires = nullptr;
        std::shared_ptr<Link> link;
        Inflow inflow;
        std::list<Expected> expected;
        std::atomic<std::uint64_t> missing{0};  // frames or pieces expected
        std::uint64_t consumed = 0;
        std::uint64_t told = 0;
        std::atomic<std::uint64_t> unwritten{0};  // frames
        std::uint64_t sent = 0;
        std::uint64_t cleared = 0;
        std::list<Outgoing> blocked;  // beyond the window
        bool busy = false;             // is in `busy_`

        void written(std::size_t bytes) noexcept override;
    };

    /// What a wait is for: at most so much is left, of all seats or of one.
    struct Goal {
        std::uint64_t missing = 0;
        std::uint64_t unwritten = 0;
        int seat = -1;
    };
    static constexpr std::uint64_t kAny = ~std::uint64_t{0};

    static bool fits(const Expected& wanted, Tag tag, std::size_t length) noexcept;
    bool reached(const Goal& goal) const noexcept { return late(goal) < 0; }
    /// A seat of which the goal is not reached; -1 if there is none.
    int late(const Goal& goal) const noexcept;
    static bool reached(const Stream& stream, const Goal& goal) noexcept;
    void turn(const Goal& goal);
    void check() const;
    void sleep(const Goal& goal);
    Stream& stream(std::size_t seat);
    Stream& use(std::size_t seat);
    void say_where();
    Trouble too_late() const;
    std::optional<Trouble> match(std::size_t seat, Stream& stream);
    void release_blocked(Stream& stream);

    const View& view_;
    Ending& ending_;
    Mutex& mutex_;
    const void* owner_;
    const bool any_;                                // whether there are streams at all
    std::vector<std::unique_ptr<Stream>> streams_;  // by seat; null where none was needed so far
    // Seats that something was sent to or expected from since all was settled: with a thousand of
    // them most calls have to do with a few.
    std::vector<std::uint32_t> busy_;
    // What the running thread sleeps for, so that it is woken then and not before.
    std::atomic<std::uint64_t> goal_missing_{0};
    std::atomic<std::uint64_t> goal_unwritten_{0};
    int idle_turns_;
    Tag tag_;
    std::uint64_t number_ = 0;
};

}  // namespace tmc
