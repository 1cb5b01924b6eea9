// SPDX-License-Identifier: Apache-2.0
#include "session/ending.hpp"

#include <sched.h>

#include "base/sockets.hpp"
#include "session/board.hpp"

namespace tmc {
namespace {

constexpr std::int64_t kWakeNs = 2'000'000;

}  // namespace

Ending::Ending(std::string group, std::uint64_t epoch, std::uint32_t seat, std::size_t seats,
               Engine& engine_)
    : engine(engine_),
      group_(std::move(group)),
      epoch_(epoch),
      seat_(seat),
      gone_(std::make_unique<std::atomic<bool>[]>(seats)),
      losses_(seats) {}

bool Ending::stop(Trouble trouble) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (trouble_) return false;
        trouble_ = std::move(trouble);
        stopped_.store(true);
    }
    wake();
    return true;
}

Trouble Ending::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

void Ending::lose(std::size_t seat, const std::string& why) noexcept {
    const std::lock_guard lock(mutex_);
    if (gone_[seat].load()) return;
    losses_[seat] = why;
    gone_[seat].store(true);
}

void Ending::outdate(Trouble trouble) noexcept {
    const std::lock_guard lock(mutex_);
    outdated_by_ = std::move(trouble);
    outdated_.store(true);
}

void Ending::check_open() const {
    if (stopped()) throw Failure(trouble());
    if (!outdated_.load()) return;
    const std::lock_guard lock(mutex_);
    throw Failure(outdated_by_);
}

/// The flags are set before this: a thread that is not asleep yet will look at them first, and one
/// that is between its look and its sleep is shaken until it has left.
void Ending::wake() noexcept {
    nudge();
    const auto nap = naps_.load();
    const auto until = now_ns() + kWakeNs;
    for (;;) {
        const auto* word = asleep_.load();
        if (word == nullptr || naps_.load() != nap || now_ns() > until) return;
        shake(*word);
        sched_yield();
    }
}

void Ending::nudge() noexcept {
    if (awaiting_.load()) engine.wake(waiter);
}

std::string Ending::place() const {
    return "call " + std::to_string(calls.load()) + " of group " + group_ + " in epoch " +
           std::to_string(epoch_);
}

Trouble Ending::loss(std::size_t seat, Tag call) const {
    const std::lock_guard lock(mutex_);
    const auto& why = losses_[seat].empty() ? std::string("it gave up") : losses_[seat];
    return {Why::peer_lost, "seat " + std::to_string(seat) + " is lost to seat " +
                                std::to_string(seat_) + " in " + described(call) + ", " + place() +
                                ": " + why,
            static_cast<int>(seat)};
}

Trouble Ending::too_late(std::size_t seat, Tag call) const {
    const auto seconds = static_cast<double>(timeout_ns()) / 1e9;
    return {Why::timed_out, "seat " + std::to_string(seat_) + " timed out after " +
                                std::to_string(seconds) + " s waiting for seat " +
                                std::to_string(seat) + " in " + described(call) + ", " + place(),
            static_cast<int>(seat)};
}

Trouble Ending::mismatch(std::size_t seat, Tag theirs, Tag ours) const {
    return {Why::order, "seat " + std::to_string(seat_) + " called " + described(ours) +
                            ", seat " + std::to_string(seat) + " called " + described(theirs) +
                            ", as " + place(),
            static_cast<int>(seat)};
}

Trouble Ending::uneven(std::size_t seat, std::uint64_t comes, std::uint64_t expected) const {
    return {Why::order, "seat " + std::to_string(seat) + " called all_to_all with " +
                            std::to_string(comes) + " bytes for seat " + std::to_string(seat_) +
                            ", which expects " + std::to_string(expected) + ", as " + place(),
            static_cast<int>(seat)};
}

}  // namespace tmc
