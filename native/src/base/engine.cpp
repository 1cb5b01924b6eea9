// SPDX-License-Identifier: Apache-2.0
#include "base/engine.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/points.hpp"

namespace tmc {
namespace {

constexpr std::uint64_t kBell = 0;
/// Few at a time: the leader looks in between whether what it waits for is there.
constexpr int kEventsAtOnce = 8;
/// From call to call of a script that makes many, one after the other.
constexpr std::int64_t kBetweenCallsNs = 250'000;

}  // namespace

Engine::Engine(int unwaited_fd, std::uint64_t id, Serve serve)
    : unwaited_fd_(unwaited_fd),
      id_(id),
      serve_(std::move(serve)),
      links_(new_epoll()),
      bell_(new_event_fd()),
      timer_(new_timer_fd()) {
    hang(links_, bell_, kBell, EPOLLIN);
    hang(unwaited_fd_, links_, id_, EPOLLIN);
    hang(unwaited_fd_, timer_, id_, EPOLLIN);
    armed_ = true;
}

Engine::~Engine() {
    if (!birthplace_.here()) return;
    close_fd(links_);
    close_fd(bell_);
    close_fd(timer_);
}

void Engine::arm(bool on) noexcept {
    if (armed_ == on) return;
    armed_ = on;
    epoll_event event{};
    event.events = on ? EPOLLIN : 0U;
    event.data.u64 = id_;
    epoll_ctl(unwaited_fd_, EPOLL_CTL_MOD, links_, &event);
}

/// With the mutex held, and no leader.
void Engine::look_later() noexcept {
    if (armed_ || timed_) return;
    timed_ = true;
    left_when_timed_ = left_;
    start_timer(timer_, kBetweenCallsNs);
}

/// With the mutex held. Whether nobody has waited for a while, or the endpoint's thread is armed.
bool Engine::is_unwaited() noexcept {
    if (timed_ && has_run_out(timer_)) timed_ = false;
    if (leader_.load() != nullptr) return false;
    if (armed_ || timed_) return armed_;
    if (left_ != left_when_timed_) {
        look_later();
        return false;
    }
    arm(true);
    return true;
}

void Engine::enter(Waiter& waiter) noexcept {
    const std::lock_guard lock(mutex_);
    waiter.called_ = false;
    if (leader_.load() != nullptr) {
        followers_.push_back(&waiter);
        return;
    }
    leader_.store(&waiter);
    arm(false);
}

void Engine::leave(Waiter& waiter) noexcept {
    point();
    const std::lock_guard lock(mutex_);
    if (leader_.load() != &waiter) {
        std::erase(followers_, &waiter);
        return;
    }
    if (followers_.empty()) {
        leader_.store(nullptr);
        ++left_;
        look_later();
        return;
    }
    auto* next = followers_.front();
    followers_.pop_front();
    leader_.store(next);
    arm(false);
    next->woken_.notify_one();
}

bool Engine::turn(Waiter& waiter, int wait_ms) {
    gap();
    if (leader_.load(std::memory_order_acquire) == &waiter) {
        // It may have been called while it followed, and have become the leader since.
        if (std::unique_lock lock(mutex_); std::exchange(waiter.called_, false)) return true;
        return serve_events(wait_ms) > 0;
    }
    if (wait_ms == 0) return false;
    std::unique_lock lock(mutex_);
    const auto called = [&] { return waiter.called_ || leader_.load() == &waiter; };
    const bool come = waiter.woken_.wait_for(lock, std::chrono::milliseconds(wait_ms), called);
    waiter.called_ = false;
    return come;
}

void Engine::wake(Waiter& waiter) noexcept {
    point();
    const std::lock_guard lock(mutex_);
    if (leader_.load() == &waiter) return ring(bell_);
    waiter.called_ = true;
    waiter.woken_.notify_one();
}

void Engine::serve_unwaited() {
    {
        const std::lock_guard lock(mutex_);
        if (!is_unwaited()) return;
        leader_.store(&unwaited_);
    }
    serve_events(0);
    leave(unwaited_);
}

/// How many there were.
int Engine::serve_events(int wait_ms) {
    epoll_event events[kEventsAtOnce];
    const int n = epoll_wait(links_, events, kEventsAtOnce, wait_ms);
    point();
    for (int i = 0; i < n; ++i)
        events[i].data.u64 == kBell ? drain_event(bell_) : serve_(events[i].data.u64);
    return n;
}

}  // namespace tmc
