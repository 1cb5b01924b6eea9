// SPDX-License-Identifier: Apache-2.0
// The doors' thread: who comes, which links are dialled, and what of that has a deadline. No wait of anybody
// holds it up: so a process that is itself about to wait for a link always answers who dials it.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/sockets.hpp"
#include "endpoint/endpoint.hpp"

namespace tmc {
namespace {

constexpr std::int64_t kHelloNs = 10'000'000'000;
constexpr std::int64_t kTickNs = 50'000'000;
constexpr int kDials = 3;
// Two processes that both want a link: the one with the lower number dials, the other a little later,
// in case that one does not want it.
constexpr std::int64_t kHeadStartNs = 5'000'000;
// What the other one dials instead of this one is here within that time, or this one dials again.
constexpr std::int64_t kAgainNs = 50'000'000;
// A door that has no room for one more is tried again so soon.
constexpr std::int64_t kFullNs = 1'000'000;
// Without a free descriptor nobody can be accepted; the listeners are looked at again after that time.
constexpr std::int64_t kRestNs = 100'000'000;
constexpr int kAcceptsAtOnce = 4;
constexpr int kEventsAtOnce = 16;

}  // namespace

void Endpoint::keep_doors() {
    pthread_setname_np(pthread_self(), "tmc-doors");
    epoll_event events[kEventsAtOnce];
    while (!stopping_.load()) {
        const int n = epoll_wait(doors_, events, kEventsAtOnce, patience_ms());
        for (int i = 0; i < n; ++i) serve(events[i].data.u64);
        tick();
    }
}

void Endpoint::serve(std::uint64_t id) {
    if (id == kTcpListener) return accept_all(tcp_listener_, false);
    if (id == kLocalListener) return accept_all(local_door_.fd(), true);
    if (id == kBell) return drain_event(door_bell_);
    if (hellos_.contains(id)) advance(id);
    if (openings_.contains(id)) go_on(id);
}

void Endpoint::accept_all(int listener, bool local) {
    // A few at a time: a crowd at one door must not hold up who speaks already.
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
        const int fd = accept_from(listener);
        if (fd < 0 && is_shortage(errno)) rest();
        if (fd < 0) return;
        if (local && !same_user(fd)) {
            close_stranger(fd);
            refused("another user's process");
            continue;
        }
        if (hellos_.size() >= strangers_max_) make_room();
        const auto& address = local ? local_door_.path() : address_;
        auto hello = std::make_unique<Hello>(fd, local, address, now_ns() + kHelloNs);
        const auto id = fresh_id();
        try {
            hang(doors_, fd, id, EPOLLIN);
        } catch (const Failure& failure) {
            refused(failure.what());
            continue;
        }
        hellos_[id] = std::move(hello);
    }
}

/// There is no free descriptor. Who is in a queue stays there meanwhile, and epoll would name the listeners
/// at once, again and again.
void Endpoint::rest() {
    listeners_rest_until_ns_ = now_ns() + kRestNs;
    watch_listeners(0);
    refused(std::string("no connection could be accepted: ") + std::strerror(errno));
}

void Endpoint::watch_listeners(std::uint32_t events) noexcept {
    for (const auto& [fd, id] : {std::pair{tcp_listener_, kTcpListener}, {local_door_.fd(), kLocalListener}}) {
        epoll_event event{};
        event.events = events;
        event.data.u64 = id;
        epoll_ctl(doors_, EPOLL_CTL_MOD, fd, &event);
    }
}

std::uint64_t Endpoint::fresh_id() {
    return next_id_.fetch_add(1, std::memory_order_relaxed);
}

/// A crowd that only stands at the door keeps nobody out: peers greet at once, so whoever has said
/// nothing for longest goes.
void Endpoint::make_room() {
    auto oldest = std::find_if(hellos_.begin(), hellos_.end(),
                               [](const auto& entry) { return !entry.second->greeted(); });
    if (oldest == hellos_.end()) oldest = hellos_.begin();
    epoll_ctl(doors_, EPOLL_CTL_DEL, oldest->second->fd(), nullptr);
    hellos_.erase(oldest);
    refused("too many connections at once");
}

void Endpoint::advance(std::uint64_t id) {
    auto& hello = *hellos_.at(id);
    const auto state = hello.advance(self());
    if (state == Hello::State::waiting) return;
    epoll_ctl(doors_, EPOLL_CTL_DEL, hello.fd(), nullptr);
    const std::string reason = hello.reason();
    if (state == Hello::State::accepted) hello.tune();
    if (state == Hello::State::accepted && !closing_.load()) admit(hello.take(), hello.from());
    hellos_.erase(id);
    if (!reason.empty()) refused(reason);
}

void Endpoint::refused(const std::string& why) {
    const std::lock_guard left(left_mutex_);
    ++refused_;
    last_end_ = why;
}

/// What has a deadline, and what links others want.
void Endpoint::tick() {
    begin_openings();
    const auto now = now_ns();
    tend_openings(now);
    if (listeners_rest_until_ns_ != 0 && listeners_rest_until_ns_ <= now) {
        listeners_rest_until_ns_ = 0;
        watch_listeners(EPOLLIN);
    }
    if (now < look_at_ns_) return;
    look_at_ns_ = now + kTickNs;
    for (auto it = hellos_.begin(); it != hellos_.end();) {
        if (it->second->deadline_ns() > now) {
            ++it;
            continue;
        }
        epoll_ctl(doors_, EPOLL_CTL_DEL, it->second->fd(), nullptr);
        it = hellos_.erase(it);
        refused("a peer did not finish its hello in time");
    }
}

/// How long the doors' thread may sleep.
int Endpoint::patience_ms() const noexcept {
    const bool ticks = !hellos_.empty() || listeners_rest_until_ns_ != 0;
    std::int64_t ms = ticks ? kTickNs / 1'000'000 : -1;
    for (const auto& [id, opening] : openings_) {
        if (opening.dial != nullptr) continue;
        const auto left = std::max<std::int64_t>(opening.dial_at_ns - now_ns(), 0) / 1'000'000 + 1;
        ms = ms < 0 ? left : std::min(ms, left);
    }
    return static_cast<int>(ms);
}

// Links that are wanted.

void Endpoint::wanted(Link& link) {
    {
        const std::lock_guard left(left_mutex_);
        asked_.push_back(link.shared_from_this());
    }
    ring(door_bell_);
}

void Endpoint::begin_openings() {
    std::vector<std::shared_ptr<Link>> asked;
    {
        const std::lock_guard left(left_mutex_);
        asked.swap(asked_);
    }
    for (auto& link : asked) {
        const auto head_start = incarnation < link->peer ? 0 : kHeadStartNs;
        openings_[fresh_id()] = {std::move(link), now_ns() + head_start, 0, nullptr};
    }
}

void Endpoint::tend_openings(std::int64_t now) {
    for (auto it = openings_.begin(); it != openings_.end();) {
        auto& [id, opening] = *it;
        if (opening.link->opened() || !opening.link->alive()) {
            hang_up(opening, 0);
            it = openings_.erase(it);
            continue;
        }
        if (opening.dial == nullptr && opening.dial_at_ns <= now) dial(id, opening);
        ++it;
    }
}

void Endpoint::dial(std::uint64_t id, Opening& opening) {
    const auto& link = *opening.link;
    const bool comes = std::any_of(hellos_.begin(), hellos_.end(), [&](const auto& entry) {
        return entry.second->proved() && entry.second->from() == link.peer;
    });
    if (comes) return hang_up(opening, now_ns() + kAgainNs);
    try {
        opening.dial = std::make_unique<Dial>(self(), link.peer, link.reach);
        if (opening.dial->fd() < 0) return hang_up(opening, now_ns() + kFullNs);
        ++opening.dials;
        hang(doors_, opening.dial->fd(), id, EPOLLOUT);
    } catch (const Failure& failure) {
        return dialled_in_vain(opening, failure);
    }
}

void Endpoint::go_on(std::uint64_t id) {
    auto& opening = openings_.at(id);
    const auto link = opening.link;
    if (opening.dial == nullptr) return;
    auto& dial = *opening.dial;
    const bool connects = dial.connecting();
    try {
        switch (dial.advance(self())) {
            case Dial::State::waiting: {
                epoll_event event{};
                event.events = EPOLLIN;
                event.data.u64 = id;
                if (connects) epoll_ctl(doors_, EPOLL_CTL_MOD, dial.fd(), &event);
                return;
            }
            case Dial::State::crossed: return hang_up(opening, now_ns() + kAgainNs);
            case Dial::State::accepted: break;
        }
    } catch (const Failure& failure) {
        return dialled_in_vain(opening, failure);
    }
    epoll_ctl(doors_, EPOLL_CTL_DEL, dial.fd(), nullptr);
    auto peer = dial.take();
    openings_.erase(id);
    if (closing_.load()) return close_fd(peer.fd);
    admit(std::move(peer), link->peer);
}

void Endpoint::dialled_in_vain(Opening& opening, const Failure& failure) {
    const auto link = opening.link;
    hang_up(opening, now_ns());
    // Whoever listens lives, and may only have been too busy to hear this one out.
    if (failure.trouble().why == Why::peer_lost && opening.dials > 0 && opening.dials < kDials) return;
    {
        const std::lock_guard lock(mutex_);
        link->trouble = failure.trouble();
    }
    link->kill(std::string("it could not be reached: ") + failure.what(), false);
}

void Endpoint::hang_up(Opening& opening, std::int64_t dial_at_ns) {
    if (opening.dial != nullptr && opening.dial->fd() >= 0)
        epoll_ctl(doors_, EPOLL_CTL_DEL, opening.dial->fd(), nullptr);
    opening.dial.reset();
    opening.dial_at_ns = dial_at_ns;
}

/// Of two processes that dial each other the one with the lower number decides; see hello.hpp.
bool Endpoint::prefers_another(std::uint64_t from) {
    if (from < incarnation) return false;
    const bool dials = std::any_of(openings_.begin(), openings_.end(), [&](const auto& entry) {
        return entry.second.dial != nullptr && entry.second.link->peer == from;
    });
    if (dials) return true;
    const std::lock_guard lock(mutex_);
    const auto found = links_.find(from);
    return found != links_.end() && found->second->opened() && found->second->alive();
}

}  // namespace tmc
