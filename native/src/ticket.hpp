// What a caller holds while an operation runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "trouble.hpp"

namespace tmc {

/// Numbers of operations that ended, for one thread that waits for many.
class DoneQueue {
public:
    void push(std::uint64_t id);
    /// Empty after the timeout. Throws Failure once the queue is closed.
    std::vector<std::uint64_t> take(std::int64_t timeout_ns);
    void close();

private:
    std::mutex mutex_;
    std::condition_variable come_;
    std::deque<std::uint64_t> ids_;
    bool closed_ = false;
};

class Ticket {
public:
    explicit Ticket(std::shared_ptr<DoneQueue> queue);

    bool done() const noexcept { return done_.load(std::memory_order_acquire); }
    /// The first end counts.
    void finish(Trouble trouble, int source = -1);
    /// False when it is not done by then.
    bool wait_until(std::int64_t deadline_ns);
    Trouble trouble() const;
    int source() const;
    /// Have its number come through the queue when it is done, or now: at least once for whoever
    /// asks, who may be one of several, or late.
    std::uint64_t subscribe();

private:
    const std::shared_ptr<DoneQueue> queue_;
    const std::uint64_t id_;
    std::atomic<bool> done_{false};
    mutable std::mutex mutex_;
    std::condition_variable over_;
    Trouble trouble_;
    int source_ = -1;
    bool subscribed_ = false;
};

}  // namespace tmc
