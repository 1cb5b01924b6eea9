// SPDX-License-Identifier: Apache-2.0
// How a session ends, and how those who wait in it learn that.
//
// A seat that is gone will say nothing more; what it has said still counts. So a wait fails only if
// it waits for a seat that is gone, and a rank that leaves after its last word harms nobody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/call.hpp"
#include "base/engine.hpp"
#include "base/points.hpp"
#include "base/sockets.hpp"
#include "base/trouble.hpp"

namespace tmc {

class Ending {
public:
    Ending(std::string group, std::uint64_t epoch, std::uint32_t seat, std::size_t seats,
           Engine& engine);
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

    /// End the session; wakes everybody. True for the call that did it.
    bool stop(Trouble trouble) noexcept;
    bool stopped() const noexcept { return stopped_.load(std::memory_order_seq_cst); }
    Trouble trouble() const;

    /// A seat will say nothing more. Call `wake` afterwards.
    void lose(std::size_t seat, const std::string& why) noexcept;
    /// The seat of this process belongs to another one: no call may begin any more.
    void outdate(Trouble trouble) noexcept;
    /// Throws Failure if no call may begin.
    void check_open() const;
    bool gone(std::size_t seat) const noexcept { return gone_[seat].load(std::memory_order_seq_cst); }

    Trouble loss(std::size_t seat, Tag call) const;
    Trouble too_late(std::size_t seat, Tag call) const;
    Trouble mismatch(std::size_t seat, Tag theirs, Tag ours) const;
    /// Two seats of one all_to_all expect different amounts.
    Trouble uneven(std::size_t seat, std::uint64_t comes, std::uint64_t expected) const;

    std::int64_t timeout_ns() const noexcept { return timeout_ns_.load(std::memory_order_relaxed); }
    void set_timeout(std::int64_t ns) noexcept { timeout_ns_.store(ns, std::memory_order_relaxed); }

    /// The word that the running thread sleeps on, or null.
    void falls_asleep(const std::atomic<std::uint64_t>* word) noexcept { asleep_.store(word); }
    void wakes_up() noexcept {
        naps_.fetch_add(1);
        asleep_.store(nullptr);
    }
    /// The running thread waits for links, as `waiter` of the `engine`, and looks no more.
    void awaits_links(bool now) noexcept { awaiting_.store(now); }
    void wake() noexcept;
    /// Wake it only if it waits for links.
    void nudge() noexcept;

    Engine& engine;
    Waiter waiter;

    /// Operations that were started; for messages.
    std::atomic<std::uint64_t> calls{0};

private:
    std::string place() const;

    const std::string group_;
    const std::uint64_t epoch_;
    const std::uint32_t seat_;
    std::atomic<bool> stopped_{false};
    std::unique_ptr<std::atomic<bool>[]> gone_;
    std::atomic<std::int64_t> timeout_ns_{0};
    std::atomic<const std::atomic<std::uint64_t>*> asleep_{nullptr};
    std::atomic<std::uint64_t> naps_{0};
    std::atomic<bool> awaiting_{false};
    mutable Mutex mutex_;
    Trouble trouble_;
    std::atomic<bool> outdated_{false};
    Trouble outdated_by_;
    std::vector<std::string> losses_;
};

}  // namespace tmc
