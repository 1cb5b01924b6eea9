// SPDX-License-Identifier: Apache-2.0
#include "session/wires.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "base/waited.hpp"

namespace tmc {
namespace {

// Looking costs less than sleeping where the answer comes soon, and takes the core from whoever is to
// give it where there are more ranks than cores. So it is done less after it was in vain.
constexpr int kIdleTurns = 30;
constexpr int kSleepMs = 100;
constexpr int kSleepOfTestsMs = 1'000'000;
constexpr std::int64_t kSilenceNs = 100'000'000;

}  // namespace

Wires::Wires(const View& view, const Topology& topology, Ending& ending, Mutex& mutex,
             const void* owner)
    : view_(view),
      ending_(ending),
      mutex_(mutex),
      owner_(owner),
      any_(!topology.distant.empty()),
      streams_(view.size()),
      idle_turns_(kIdleTurns) {}

void Wires::Stream::written(std::size_t) noexcept {
    if (unwritten.fetch_sub(1) - 1 <= wires->goal_unwritten_.load()) wires->ending_.nudge();
}

/// With the mutex held.
Wires::Stream& Wires::stream(std::size_t seat) {
    auto& place = streams_[seat];
    if (place == nullptr) {
        place = std::make_unique<Stream>();
        place->wires = this;
        place->link = view_.links[seat];
    }
    return *place;
}

/// For the thread that runs a collective, with the mutex held.
Wires::Stream& Wires::use(std::size_t seat) {
    auto& used = stream(seat);
    used.link->want();
    if (!std::exchange(used.busy, true)) busy_.push_back(static_cast<std::uint32_t>(seat));
    return used;
}

void Wires::send(std::size_t seat, const std::byte* at, std::size_t bytes) {
    point();
    if (ending_.stopped()) throw Failure(ending_.trouble());
    Link* link = nullptr;
    {
        const std::lock_guard lock(mutex_);
        auto& stream = use(seat);
        link = stream.link.get();
        std::size_t done = 0;
        do {  // Nothing is a frame too: the other side compares its call with ours.
            const auto part = std::min(kPayloadMax, bytes - done);
            Outgoing frame;
            frame.header.kind = Frame::data;
            frame.header.length = static_cast<std::uint32_t>(part);
            frame.header.group = view_.life;
            frame.header.epoch = view_.epoch;
            frame.header.tag = tag_;
            frame.at = at + done;
            frame.writer = &stream;
            frame.owner = owner_;
            stream.unwritten.fetch_add(1);
            stream.blocked.push_back(std::move(frame));
            done += part;
        } while (done < bytes);
        release_blocked(stream);
    }
    link->push();
}

/// Queue what the window allows. Pieces stay in order because this is done under the mutex.
void Wires::release_blocked(Stream& stream) {
    while (!stream.blocked.empty()) {
        const auto length = stream.blocked.front().header.length;
        if (stream.sent + length > stream.cleared + kWindow) return;
        stream.sent += length;
        stream.link->enqueue(std::move(stream.blocked.front()));
        stream.blocked.pop_front();
    }
}

void Wires::expect(std::size_t seat, std::byte* at, std::size_t bytes) {
    std::optional<Trouble> trouble;
    Link* link = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (ending_.stopped()) throw Failure(ending_.trouble());
        auto& stream = use(seat);
        link = stream.link.get();
        stream.expected.push_back({at, bytes, 0, tag_});
        stream.missing.fetch_add(1);
        const auto before = stream.consumed;
        trouble = match(seat, stream);
        if (stream.consumed > before) give_credit(seat);
    }
    if (trouble) throw Failure(*trouble);
    if (link->wants_to_write()) link->push();
}

bool Wires::fits(const Expected& wanted, Tag tag, std::size_t length) noexcept {
    return tag == wanted.tag && length <= wanted.bytes - wanted.got &&
           (length == 0) == (wanted.bytes == 0);
}

/// Give early pieces to who expects them now.
std::optional<Trouble> Wires::match(std::size_t seat, Stream& stream) {
    auto& pieces = stream.inflow.pieces;
    while (!pieces.empty() && !stream.expected.empty()) {
        auto& piece = pieces.front();
        auto& wanted = stream.expected.front();
        if (!fits(wanted, piece.tag, piece.length))
            return ending_.mismatch(seat, piece.tag, wanted.tag);
        if (piece.length > 0) std::memcpy(wanted.at + wanted.got, piece.bytes.get(), piece.length);
        wanted.got += piece.length;
        stream.consumed += piece.length;
        stream.inflow.held -= piece.length;
        pieces.pop_front();
        if (wanted.got < wanted.bytes) continue;
        stream.expected.pop_front();
        stream.missing.fetch_sub(1);
    }
    return std::nullopt;
}

Landing Wires::arrive(std::size_t seat, const Header& header) {
    if (!any_) throw Failure(Why::peer_lost, "data in a group that is on one host");
    auto& stream = this->stream(seat);
    if (!stream.expected.empty() && stream.inflow.pieces.empty()) {
        auto& wanted = stream.expected.front();
        if (fits(wanted, header.tag, header.length))
            return {wanted.at + wanted.got, nullptr, owner_};
    }
    stream.inflow.held += header.length;
    if (stream.inflow.held > kWindow) throw Failure(Why::peer_lost, "it sends more than its window");
    Landing landing;
    landing.own = std::make_unique<std::byte[]>(std::max<std::size_t>(header.length, 1));
    landing.at = landing.own.get();
    return landing;
}

std::optional<Trouble> Wires::landed(std::size_t seat, const Header& header, Landing& landing) {
    auto& stream = this->stream(seat);
    std::optional<Trouble> trouble;
    if (landing.own != nullptr) {
        stream.inflow.pieces.push_back({std::move(landing.own), header.length, header.tag});
        trouble = match(seat, stream);
    } else if (landing.owner == owner_ && !stream.expected.empty()) {
        auto& wanted = stream.expected.front();
        wanted.got += header.length;
        stream.consumed += header.length;
        if (wanted.got == wanted.bytes) {
            stream.expected.pop_front();
            stream.missing.fetch_sub(1);
        }
    }
    if (stream.missing.load() <= goal_missing_.load()) ending_.nudge();
    return trouble;
}

void Wires::give_credit(std::size_t seat) {
    auto& stream = this->stream(seat);
    if (stream.consumed - stream.told < kWindow / 4) return;
    stream.told = stream.consumed;
    Outgoing credit;
    credit.header.kind = Frame::credit;
    credit.header.group = view_.life;
    credit.header.epoch = view_.epoch;
    credit.header.a = stream.consumed;
    stream.link->enqueue(std::move(credit));
}

void Wires::credit(std::size_t seat, std::uint64_t consumed) {
    if (!any_) throw Failure(Why::peer_lost, "credit in a group that is on one host");
    auto& stream = this->stream(seat);
    if (consumed > stream.sent || consumed < stream.cleared)
        throw Failure(Why::peer_lost, "it has consumed what was never sent");
    stream.cleared = consumed;
    release_blocked(stream);
}

void Wires::adopt(std::size_t seat, Inflow inflow) {
    // What is held may still be on its way, with no piece here yet.
    if (any_ && (inflow.held > 0 || !inflow.pieces.empty())) stream(seat).inflow = std::move(inflow);
}

void Wires::clear() {
    for (auto& stream : streams_) {
        if (stream == nullptr) continue;
        stream->expected.clear();
        stream->blocked.clear();
        stream->inflow = {};
    }
}

bool Wires::reached(const Stream& stream, const Goal& goal) noexcept {
    return stream.missing.load() <= goal.missing && stream.unwritten.load() <= goal.unwritten;
}

int Wires::late(const Goal& goal) const noexcept {
    if (goal.seat >= 0)
        return reached(*streams_[static_cast<std::size_t>(goal.seat)], goal) ? -1 : goal.seat;
    const auto found = std::find_if(busy_.begin(), busy_.end(), [&](auto seat) {
        return !reached(*streams_[seat], goal);
    });
    return found == busy_.end() ? -1 : static_cast<int>(*found);
}

void Wires::check() const {
    if (ending_.stopped()) throw Failure(ending_.trouble());
    for (const auto seat : busy_) {
        const auto& stream = *streams_[seat];
        // Its last words come before its end, so the end is looked at first.
        if (!ending_.gone(seat)) continue;
        if (stream.missing.load() + stream.unwritten.load() > 0)
            throw Failure(ending_.loss(seat, tag_));
    }
}

void Wires::settle() {
    turn({});
    for (const auto seat : busy_) streams_[seat]->busy = false;
    busy_.clear();
}

void Wires::await(std::size_t missing) { turn({missing, kAny}); }

void Wires::await_from(std::size_t seat, std::size_t missing) {
    turn({missing, kAny, static_cast<int>(seat)});
}

void Wires::await_written(std::size_t seat, std::size_t unwritten) {
    turn({kAny, unwritten, static_cast<int>(seat)});
}

void Wires::turn(const Goal& goal) {
    point();
    auto last = late(goal);
    if (last < 0) {
        if (ending_.stopped()) throw Failure(ending_.trouble());
        return;
    }
    const Waited waited;
    const auto began = now_ns();
    const Waiting waiting(ending_.engine, ending_.waiter);
    const auto deadline = now_ns() + ending_.timeout_ns();
    auto say_at = now_ns() + kSilenceNs;
    bool slept = false;
    for (int idle = 0;;) {
        const auto still = late(goal);
        if (still < 0) break;
        last = still;
        const bool served = ending_.engine.turn(ending_.waiter, 0);
        if (reached(goal)) break;
        check();
        if (served) {
            idle = 0;
            continue;
        }
        const auto now = now_ns();
        if (now > deadline) throw Failure(too_late());
        if (now > say_at) {
            say_where();
            say_at = now + kSilenceNs;
        }
        if (++idle < idle_turns_) {
            sched_yield();
        } else {
            slept = true;
            sleep(goal);
        }
    }
    const auto seat = static_cast<std::size_t>(last);
    if (!view_.local(seat)) waited_for.add(view_.cards[seat].incarnation, now_ns() - began);
    idle_turns_ = slept ? std::max(idle_turns_ / 2, 1) : std::min(idle_turns_ * 2, kIdleTurns);
    point();
}

Trouble Wires::too_late() const {
    const auto slow = std::find_if(busy_.begin(), busy_.end(), [&](auto seat) {
        return streams_[seat]->missing.load() + streams_[seat]->unwritten.load() > 0;
    });
    return ending_.too_late(slow == busy_.end() ? view_.seat : *slow, tag_);
}

/// Until there is something to serve, or to look at.
void Wires::sleep(const Goal& goal) {
    goal_missing_.store(goal.missing);
    goal_unwritten_.store(goal.unwritten);
    ending_.awaits_links(true);
    const bool lost = std::any_of(busy_.begin(), busy_.end(), [&](auto seat) {
        return ending_.gone(seat) && streams_[seat]->missing.load() + streams_[seat]->unwritten.load() > 0;
    });
    const auto ms = points_delayed() ? kSleepOfTestsMs : kSleepMs;
    if (!reached(goal) && !ending_.stopped() && !lost) ending_.engine.turn(ending_.waiter, ms);
    ending_.awaits_links(false);
}

/// See `Session::compare`.
void Wires::say_where() {
    for (const auto seat : busy_) {
        auto& stream = *streams_[seat];
        if (stream.missing.load() == 0 || !stream.link->opened()) continue;
        Outgoing claim;
        claim.header.kind = Frame::waiting;
        claim.header.group = view_.life;
        claim.header.epoch = view_.epoch;
        claim.header.a = number_;
        claim.header.tag = tag_;
        stream.link->enqueue(std::move(claim));
        stream.link->push();
    }
}

}  // namespace tmc
