// SPDX-License-Identifier: Apache-2.0
// What a caller holds while an operation runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/engine.hpp"
#include "base/points.hpp"
#include "base/trouble.hpp"

namespace tmc {

/// Numbers of operations that ended, for one thread that waits for many.
class DoneQueue {
public:
    void push(std::uint64_t id);
    /// Empty after the timeout. Throws Failure once the queue is closed.
    std::vector<std::uint64_t> take(std::int64_t timeout_ns);
    void close();

private:
    Mutex mutex_;
    Condition come_;
    std::deque<std::uint64_t> ids_;
    bool closed_ = false;
};

class Ticket {
public:
    explicit Ticket(std::shared_ptr<DoneQueue> queue);

    bool done() const noexcept { return done_.load(std::memory_order_acquire); }
    /// The first end counts.
    void finish(Trouble trouble, int source = -1);
    /// False when it is not done by then. One thread at a time moves links meanwhile, since it may be that
    /// nobody else is as quick; others sleep.
    bool wait_until(std::int64_t deadline_ns, Engine& engine);
    Trouble trouble() const;
    int source() const;
    /// Have its number come through the queue when it is done, or now: at least once for whoever
    /// asks, who may be one of several, or late.
    std::uint64_t subscribe();

private:
    const std::shared_ptr<DoneQueue> queue_;
    const std::uint64_t id_;
    std::atomic<bool> done_{false};
    mutable Mutex mutex_;
    Condition over_;
    Trouble trouble_;
    int source_ = -1;
    // Who waits for it, and moves links: called by whoever else finishes it.
    Engine* engine_ = nullptr;
    Waiter* waiter_ = nullptr;
    std::thread::id waiting_;
    bool subscribed_ = false;
};

}  // namespace tmc
