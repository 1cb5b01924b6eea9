// SPDX-License-Identifier: Apache-2.0
#include "base/ticket.hpp"

#include <algorithm>

#include "base/sockets.hpp"
#include "base/waited.hpp"

namespace tmc {
namespace {

std::atomic<std::uint64_t> next_id{1};
constexpr std::int64_t kTurnNs = 1'000'000'000;
constexpr std::int64_t kTurnOfTestsNs = 1'000'000'000'000;

}  // namespace

void DoneQueue::push(std::uint64_t id) {
    {
        const std::lock_guard lock(mutex_);
        ids_.push_back(id);
    }
    come_.notify_one();
}

std::vector<std::uint64_t> DoneQueue::take(std::int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    come_.wait_until(lock, moment(now_ns() + timeout_ns), [&] { return closed_ || !ids_.empty(); });
    std::vector<std::uint64_t> taken(ids_.begin(), ids_.end());
    ids_.clear();
    if (taken.empty() && closed_) throw Failure(Why::aborted, "the endpoint was closed");
    return taken;
}

void DoneQueue::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    come_.notify_all();
}

Ticket::Ticket(std::shared_ptr<DoneQueue> queue)
    : queue_(std::move(queue)), id_(next_id.fetch_add(1, std::memory_order_relaxed)) {}

void Ticket::finish(Trouble trouble, int source) {
    bool tell = false;
    {
        const std::lock_guard lock(mutex_);
        if (done()) return;
        trouble_ = std::move(trouble);
        source_ = source;
        tell = subscribed_;
        done_.store(true, std::memory_order_release);
        over_.notify_all();
        if (waiter_ != nullptr && waiting_ != std::this_thread::get_id()) engine_->wake(*waiter_);
    }
    if (tell) queue_->push(id_);
}

bool Ticket::wait_until(std::int64_t deadline_ns, Engine& engine) {
    if (done()) return true;
    const Waited waited;
    Waiter waiter;
    {
        std::unique_lock lock(mutex_);
        if (waiter_ != nullptr) return over_.wait_until(lock, moment(deadline_ns), [&] { return done(); });
        engine_ = &engine;
        waiter_ = &waiter;
        waiting_ = std::this_thread::get_id();
    }
    const auto turn_ns = points_delayed() ? kTurnOfTestsNs : kTurnNs;
    const Waiting waiting(engine, waiter);
    for (auto left = deadline_ns - now_ns(); !done() && left > 0; left = deadline_ns - now_ns())
        engine.turn(waiter, static_cast<int>(std::min(left, turn_ns) / 1'000'000 + 1));
    const std::lock_guard lock(mutex_);
    waiter_ = nullptr;
    return done();
}

Trouble Ticket::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

int Ticket::source() const {
    const std::lock_guard lock(mutex_);
    return source_;
}

std::uint64_t Ticket::subscribe() {
    bool now = false;
    {
        const std::lock_guard lock(mutex_);
        subscribed_ = true;
        now = done();
    }
    if (now) queue_->push(id_);
    return id_;
}

}  // namespace tmc
