// SPDX-License-Identifier: Apache-2.0
// How long this process has waited for other seats: what it has done beside that is its own.
//
// Whoever carries out a call waits in it, be it the thread that has made the call or the group's own.
// Whose call is made in the background, and awaited by means that are not ours (as torch's reducer
// does), is then waited for as well. It is no wait of that kind if the caller computes meanwhile; but
// it lasts only until the last seat has come, so ranks that run the same still compare.
//
// Only where a wait begins: who finds what it looks for reads no clock.
//
// Of waits for other hosts it is counted, too, for whom: whoever comes last. Two processes of which each
// waits for the other are both there, so it is the way between them that takes the time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/points.hpp"
#include "base/sockets.hpp"

namespace tmc {

/// Of one process. Where several threads wait at once that time counts once.
class Waits {
public:
    void begin() noexcept {
        const auto now = now_ns();
        const std::lock_guard lock(mutex_);
        if (waiting_++ == 0) since_ns_ = now;
    }
    void end() noexcept {
        const auto now = now_ns();
        const std::lock_guard lock(mutex_);
        if (--waiting_ == 0 && now > since_ns_) total_ns_ += now - since_ns_;
    }
    /// With the wait under way, if there is one.
    std::int64_t waited_ns() noexcept {
        const auto now = now_ns();
        const std::lock_guard lock(mutex_);
        return total_ns_ + (waiting_ > 0 && now > since_ns_ ? now - since_ns_ : 0);
    }

private:
    Mutex mutex_;
    int waiting_ = 0;
    std::int64_t since_ns_ = 0;
    std::int64_t total_ns_ = 0;
};

inline Waits waits;

/// For which processes on other hosts this one has waited, since that was last taken.
class WaitedFor {
public:
    using One = std::pair<std::uint64_t, std::int64_t>;

    void add(std::uint64_t peer, std::int64_t ns) noexcept {
        const std::lock_guard lock(mutex_);
        const auto known = std::find_if(peers_.begin(), peers_.begin() + count_,
                                        [&](const One& one) { return one.first == peer; });
        if (known != peers_.begin() + count_)
            known->second += ns;
        else if (count_ < static_cast<int>(peers_.size()))
            peers_[static_cast<std::size_t>(count_++)] = {peer, ns};
    }
    /// By number of the process: nanoseconds.
    std::vector<One> take() {
        const std::lock_guard lock(mutex_);
        std::vector<One> taken(peers_.begin(), peers_.begin() + count_);
        count_ = 0;
        return taken;
    }

private:
    Mutex mutex_;
    /// A step waits for few; where nobody takes them, the first ones are kept.
    std::array<One, 64> peers_;
    int count_ = 0;
};

inline WaitedFor waited_for;

/// While it lives, the running thread waits.
class Waited {
public:
    Waited() noexcept { waits.begin(); }
    ~Waited() { waits.end(); }
    Waited(const Waited&) = delete;
    Waited& operator=(const Waited&) = delete;
};

}  // namespace tmc
