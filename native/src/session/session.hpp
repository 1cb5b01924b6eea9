// SPDX-License-Identifier: Apache-2.0
// One group within one epoch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/points.hpp"
#include "session/board.hpp"
#include "session/ending.hpp"
#include "session/mail.hpp"
#include "session/topology.hpp"
#include "session/view.hpp"
#include "session/wires.hpp"

namespace tmc {

/// Frames of one peer for one epoch of one group that came before this process was there.
struct Early {
    Inflow inflow;
    Letterbox letters;
    std::string broken;
    bool orderly = false;  // if it is broken
};

/// A piece of memory for a collective's intermediate results; grows, never shrinks.
class Scratch {
public:
    std::byte* take(std::size_t bytes);

private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t size_ = 0;
};

/// By which a seat hears that it need not wait for this one in the epoch.
Outgoing broken_frame(std::uint64_t life, std::uint64_t epoch, const std::string& why, bool orderly);

/// By which a process hears that its seat is another's since that epoch.
Outgoing replaced_frame(std::uint64_t life, std::uint64_t epoch);

/// What the other seats hear when a session ends here.
enum class Tell : std::uint8_t {
    nobody,
    leaving,  // in good order: what others wait for from this seat will not come
    broken,   // and why
};

class Session {
public:
    /// own    this seat's board; null when it shares the host with nobody
    /// mutex, engine  the endpoint's
    Session(std::string group, View view, std::byte* own, std::uint32_t slot, Mutex& mutex,
            Engine& engine);

    View view;
    const Topology topology;
    Ending ending;
    Board board;
    Wires wires;
    Mail mail;
    Scratch scratch;
    Scratch together;  // What everybody gets, while `scratch` holds what comes.

    /// Its epoch begins.
    void open(std::int64_t timeout_ns) noexcept;
    std::uint64_t epoch() const noexcept { return view.epoch; }
    /// The seat of a process, or -1.
    int seat_of(std::uint64_t incarnation) const noexcept;
    /// Begin a collective: all beats and pieces from now on belong to it.
    void begin(const Call& call);

    /// A seat says what it is in. With the mutex held. A Trouble that is returned ends the session.
    std::optional<Trouble> compare(std::size_t seat, std::uint64_t number, Tag tag);

    /// A link to that seat was opened: say that this session counts on it, so that a seat for which
    /// the epoch is over can answer. With the mutex held; the caller pushes the link.
    void count_on(std::size_t seat);
    /// That seat counts on this one. It is told that the session has ended, if it could not be told so
    /// when that happened. Likewise.
    void tell_late(std::size_t seat);

    /// End the session: everybody who waits is woken, nothing lands any more. Not under the mutex.
    void stop(Trouble trouble, Tell tell);
    /// Have all links leave the callers' buffers alone, then tell who waits for messages.
    /// After `stop`; not from a thread that is reading a link.
    void clean();

private:
    struct Numbered {
        std::uint64_t number = 0;
        Tag tag;
    };

    std::optional<Trouble> disagreement(std::size_t seat) const;
    bool tell_end(std::size_t seat);

    Mutex& mutex_;
    std::unordered_map<std::uint64_t, int> seats_;
    std::array<Numbered, 256> history_{};  // This seat's latest calls; only if there are wires.
    std::vector<bool> unheard_;            // By seat: that it has ended could not be said.
    Tell told_ = Tell::nobody;
    std::vector<Numbered> claims_;         // What each seat said last of its own.
};

}  // namespace tmc
