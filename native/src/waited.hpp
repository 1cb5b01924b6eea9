// How long this process has waited for other seats: what it has done beside that is its own.
//
// Whoever carries out a call waits in it, be it the thread that has made the call or the group's own.
// Whose call is made in the background, and awaited by means that are not ours (as torch's reducer
// does), is then waited for as well. It is no wait of that kind if the caller computes meanwhile; but
// it lasts only until the last seat has come, so ranks that run the same still compare.
//
// Only where a wait begins: who finds what it looks for reads no clock.
#pragma once

#include <cstdint>
#include <mutex>

#include "points.hpp"
#include "sockets.hpp"

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

/// While it lives, the running thread waits.
class Waited {
public:
    Waited() noexcept { waits.begin(); }
    ~Waited() { waits.end(); }
    Waited(const Waited&) = delete;
    Waited& operator=(const Waited&) = delete;
};

}  // namespace tmc
