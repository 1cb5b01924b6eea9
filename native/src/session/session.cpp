// SPDX-License-Identifier: Apache-2.0
#include "session/session.hpp"

#include <algorithm>
#include <cstring>

namespace tmc {

std::byte* Scratch::take(std::size_t bytes) {
    if (bytes > size_) {
        memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
        size_ = bytes;
    }
    return memory_.get();
}

Session::Session(std::string group, View view_, std::byte* own, std::uint32_t slot,
                 Mutex& mutex, Engine& engine)
    : view(std::move(view_)),
      topology(view),
      ending(std::move(group), view.epoch, view.seat, view.size(), engine),
      board(view, topology, topology.neighbours.empty() ? nullptr : own, slot, ending),
      wires(view, topology, ending, mutex, this),
      mail(view, ending, mutex, this),
      mutex_(mutex),
      unheard_(view.size()),
      claims_(view.size()) {
    for (std::size_t seat = 0; seat < view.size(); ++seat)
        seats_[view.cards[seat].incarnation] = static_cast<int>(seat);
}

void Session::open(std::int64_t timeout_ns) noexcept {
    ending.set_timeout(timeout_ns);
    board.publish();
}

int Session::seat_of(std::uint64_t incarnation) const noexcept {
    const auto found = seats_.find(incarnation);
    return found == seats_.end() ? -1 : found->second;
}

void Session::begin(const Call& call) {
    ending.check_open();
    const auto number = ending.calls.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto tag = packed(call);
    board.begin(tag);
    wires.begin(tag, number);
    if (topology.distant.empty()) return;
    const std::lock_guard lock(mutex_);
    history_[number % history_.size()] = {number, tag};
    for (std::size_t seat = 0; seat < claims_.size(); ++seat)
        if (const auto trouble = disagreement(seat)) throw Failure(*trouble);
}

/// Two seats that only receive would wait for each other for ever if they disagree: nothing that
/// either sends carries its call. So who waits long says what it is in, and the other compares,
/// now or when it gets to that call.
std::optional<Trouble> Session::compare(std::size_t seat, std::uint64_t number, Tag tag) {
    claims_[seat] = {number, tag};
    return disagreement(seat);
}

std::optional<Trouble> Session::disagreement(std::size_t seat) const {
    const auto& claim = claims_[seat];
    const auto& ours = history_[claim.number % history_.size()];
    if (claim.number == 0 || ours.number != claim.number || ours.tag == claim.tag) return std::nullopt;
    return ending.mismatch(seat, claim.tag, ours.tag);
}

Outgoing broken_frame(std::uint64_t life, std::uint64_t epoch, const std::string& why, bool orderly) {
    const auto text = why.substr(0, kReasonMax);
    Outgoing frame;
    frame.header.kind = Frame::broken;
    frame.header.length = static_cast<std::uint32_t>(text.size());
    frame.header.group = life;
    frame.header.epoch = epoch;
    frame.header.a = orderly ? 1 : 0;
    frame.own = std::make_unique<std::byte[]>(text.size() + 1);
    std::memcpy(frame.own.get(), text.data(), text.size());
    frame.at = frame.own.get();
    return frame;
}

Outgoing replaced_frame(std::uint64_t life, std::uint64_t epoch) {
    Outgoing frame;
    frame.header.kind = Frame::replaced;
    frame.header.group = life;
    frame.header.epoch = epoch;
    return frame;
}

void Session::count_on(std::size_t seat) {
    Outgoing claim;
    claim.header.kind = Frame::waiting;
    claim.header.group = view.life;
    claim.header.epoch = view.epoch;
    view.links[seat]->enqueue(std::move(claim));
}

bool Session::tell_end(std::size_t seat) {
    return view.links[seat]->enqueue(
        broken_frame(view.life, view.epoch, ending.trouble().text, told_ == Tell::leaving));
}

void Session::tell_late(std::size_t seat) {
    if (unheard_[seat]) unheard_[seat] = !tell_end(seat);
}

void Session::stop(Trouble trouble, Tell tell) {
    const auto blamed = trouble.seat;
    if (!ending.stop(std::move(trouble))) return;
    {
        const std::lock_guard lock(mutex_);
        wires.clear();
        mail.stop();
        told_ = tell;
        for (std::size_t seat = 0; seat < view.size(); ++seat)
            if (seat != view.seat && tell != Tell::nobody) unheard_[seat] = !tell_end(seat);
    }
    board.give_up(blamed);
    if (tell == Tell::nobody) return;
    for (std::size_t seat = 0; seat < view.size(); ++seat)
        if (seat != view.seat) view.links[seat]->push();
}

void Session::clean() {
    for (std::size_t seat = 0; seat < view.size(); ++seat)
        if (seat != view.seat) view.links[seat]->forget(this);
    mail.finish(ending.trouble());
}

}  // namespace tmc
