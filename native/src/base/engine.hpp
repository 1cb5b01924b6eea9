// SPDX-License-Identifier: Apache-2.0
// Who reads and writes the links.
//
// All links of a process hang on one epoll descriptor, and at any moment at most one thread, the
// *leader*, takes events from it. Whoever waits for something that links bring leads, or follows a
// leader and is called when it is served; what the leader serves is never only its own, so a call
// that waits moves every other call forward too. Where nobody waits, the endpoint's thread leads.
//
//     No event of any link is without somebody who will take it: there is a leader, or the
//     endpoint's thread is told of it, or a timer runs by which it will be.
//
// It holds because all three are changed under one mutex: a leader that leaves makes another waiting
// thread the leader, or starts the timer, before it lets go. When it runs out and nobody has waited
// since, the endpoint's thread is armed, by hanging the descriptor on that thread's own one. That costs
// one system call for all links, and readiness is a level: what came in between is reported at once.
//
// Why the timer: in a script that makes one call after the other the next event comes in the moment
// between two calls. The endpoint's thread would be woken for it, and stand in the way of the call that
// waits for it next: calls over TCP took up to two and a half times as long.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

#include "base/points.hpp"
#include "base/sockets.hpp"

namespace tmc {

/// A place for one thread at a time that waits for links.
class Waiter {
    friend class Engine;
    Condition woken_;
    bool called_ = false;
};

class Engine {
public:
    /// What one event asks for is done by `serve`: in the leader's thread, one at a time. It may
    /// take any lock but this class's own.
    using Serve = std::function<void(std::uint64_t id)>;

    /// unwaited_fd  the epoll descriptor of the endpoint's thread, which gets the events of links as `id`
    Engine(int unwaited_fd, std::uint64_t id, Serve serve);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// The descriptor that links hang on.
    int links() const noexcept { return links_; }

    /// From `enter` to `leave` the calling thread leads or follows.
    void enter(Waiter& waiter) noexcept;
    void leave(Waiter& waiter) noexcept;
    /// Serve what is there, or follow; at most that long. True: something may have changed.
    bool turn(Waiter& waiter, int wait_ms);
    /// Its turn ends, or the next one ends at once. From any thread.
    void wake(Waiter& waiter) noexcept;

    /// The endpoint's thread was told of events.
    void serve_unwaited();

private:
    int serve_events(int wait_ms);
    void arm(bool on) noexcept;
    void look_later() noexcept;
    bool is_unwaited() noexcept;

    const Birthplace birthplace_;
    const int unwaited_fd_;
    const std::uint64_t id_;
    const Serve serve_;
    int links_ = -1;
    int bell_ = -1;   // Ends the leader's sleep.
    int timer_ = -1;  // Hung on `unwaited_fd`, too.

    Mutex mutex_;
    std::atomic<Waiter*> leader_{nullptr};
    std::deque<Waiter*> followers_;
    bool armed_ = false;
    bool timed_ = false;  // The timer runs, or has run out and was not looked at.
    std::uint64_t left_ = 0;
    std::uint64_t left_when_timed_ = 0;
    Waiter unwaited_;  // The endpoint's thread, while it leads.
};

/// For as long as it lives, the calling thread leads or follows.
class Waiting {
public:
    Waiting(Engine& engine, Waiter& waiter) noexcept : engine_(engine), waiter_(waiter) {
        engine_.enter(waiter_);
    }
    ~Waiting() { engine_.leave(waiter_); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    Engine& engine_;
    Waiter& waiter_;
};

}  // namespace tmc
