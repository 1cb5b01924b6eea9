// SPDX-License-Identifier: Apache-2.0
#include "session/board.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "base/waited.hpp"

namespace tmc {
namespace {

/// The half of the word that counts beats: it changes with every post.
const std::uint32_t* low_half(const std::atomic<std::uint64_t>& word) noexcept {
    return reinterpret_cast<const std::uint32_t*>(&word);
}

}  // namespace

std::size_t board_bytes(std::uint32_t slot) noexcept { return kBoardHead + kSlots * slot; }

namespace {

// Spinning longer is slower when there are more ranks than cores.
constexpr int kSpins = 200;
constexpr int kSpinsAlone = 1000;  // Every rank has a core to itself.
constexpr int kYields = 30;
// Two ranks that yield to each other on one core look busy to the scheduler, and are left there even
// if another core is idle. One that sleeps is woken on an idle core.
constexpr std::uint64_t kStallsPerSleep = 16;
constexpr std::int64_t kNapNs = 1'000'000;  // How late the death of a neighbour is seen.
constexpr std::uint64_t kFirstBeat = kSlots;

inline void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

std::byte* slot_at(const BoardWords* words, std::uint64_t beat, std::uint32_t slot) noexcept {
    auto* at = reinterpret_cast<std::byte*>(const_cast<BoardWords*>(words));
    return at + kBoardHead + (beat % kSlots) * slot;
}

void set(Place& place, std::uint64_t epoch, std::uint64_t beat) noexcept {
    place.epoch.store(kNoEpoch, std::memory_order_relaxed);
    place.beat.store(beat, std::memory_order_release);
    place.epoch.store(epoch, std::memory_order_release);
}

}  // namespace

Board::Board(const View& view, const Topology& topology, std::byte* own, std::uint32_t slot,
             Ending& ending)
    : topology_(topology),
      ending_(ending),
      epoch_(view.epoch),
      life_(view.life),
      seat_(view.seat),
      slot_(slot),
      own_(reinterpret_cast<BoardWords*>(own)),
      words_(view.size(), nullptr),
      lives_(view.size(), nullptr),
      spins_(topology.here().size() <= std::thread::hardware_concurrency() ? kSpinsAlone : kSpins),
      beat_(kFirstBeat) {
    for (const auto seat : topology.neighbours) {
        const auto* at = view.links[seat]->mapping()->region(view.cards[seat].region, board_bytes(slot));
        words_[seat] = reinterpret_cast<const BoardWords*>(at);
        lives_[seat] = &view.links[seat]->mapping()->life();
    }
    seen_.reserve(topology.neighbours.size());
}

void Board::publish() noexcept {
    if (own_ == nullptr) return;
    if (own_->life.load(std::memory_order_relaxed) != life_) {
        // Whatever this memory was before, for another group perhaps, it says nothing now.
        own_->posted.epoch.store(kNoEpoch, std::memory_order_relaxed);
        own_->ended.epoch.store(kNoEpoch, std::memory_order_relaxed);
        for (auto& slot : own_->slots) slot.beat.store(0, std::memory_order_relaxed);
        own_->life.store(life_, std::memory_order_release);
    }
    set(own_->ended, own_->posted.epoch.load(std::memory_order_relaxed),
        own_->posted.beat.load(std::memory_order_relaxed));
    set(own_->posted, epoch_, beat_);
    shake(own_->posted.beat);
}

void Board::disown(std::byte* own) noexcept {
    auto& words = *reinterpret_cast<BoardWords*>(own);
    words.life.store(0, std::memory_order_release);
    // Whoever reads the slots while they are given to others finds that out afterwards.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// Whether it is that beat of this epoch, or a later one.
bool Board::passed(const Place& place, std::uint64_t beat) const noexcept {
    if (place.epoch.load(std::memory_order_acquire) != epoch_) return false;
    const auto there = place.beat.load(std::memory_order_acquire);
    return place.epoch.load(std::memory_order_relaxed) == epoch_ && there >= beat;
}

/// True when a peer has posted the beat, be it that it has gone on to the next epoch since.
bool Board::reached(std::size_t seat, std::uint64_t beat) const noexcept {
    const auto& words = *words_[seat];
    if (!passed(words.posted, beat) && !passed(words.ended, beat)) return false;
    return words.life.load(std::memory_order_relaxed) == life_;
}

/// Whether the slot of this beat is still that.
bool Board::holds(std::size_t seat) const noexcept {
    const auto& slot = words_[seat]->slots[beat_ % kSlots];
    return slot.beat.load(std::memory_order_acquire) == beat_ &&
           slot.epoch.load(std::memory_order_relaxed) == epoch_ &&
           words_[seat]->life.load(std::memory_order_relaxed) == life_;
}

void Board::verify() {
    if (seen_.empty()) return;
    point();
    std::atomic_thread_fence(std::memory_order_acquire);
    for (const auto seat : seen_) {
        if (holds(seat)) continue;
        ending_.lose(seat, "it has gone on to another epoch, and uses its memory for that");
        throw Failure(ending_.loss(seat, tag_));
    }
    seen_.clear();
}

std::byte* Board::open() {
    if (ending_.stopped()) throw Failure(ending_.trouble());
    verify();
    for (const auto seat : topology_.neighbours)
        if (!reached(seat, beat_)) wait(seat, beat_);
    ++beat_;
    if (own_ == nullptr) return nullptr;
    own_->slots[beat_ % kSlots].beat.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    return slot_at(own_, beat_, slot_);
}

void Board::post() {
    if (own_ == nullptr) return;
    verify();
    point();
    auto& slot = own_->slots[beat_ % kSlots];
    slot.tag = tag_;
    slot.epoch.store(epoch_, std::memory_order_relaxed);
    slot.beat.store(beat_, std::memory_order_release);
    own_->cpu.store(sched_getcpu(), std::memory_order_relaxed);
    own_->posted.beat.store(beat_, std::memory_order_release);
    // Either this seat sees who sleeps, or who is about to sleep sees the post.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const auto seat : topology_.neighbours) {
        if (words_[seat]->asleep_on.load(std::memory_order_relaxed) != seat_ + 1) continue;
        shake(own_->posted.beat);
        break;
    }
    point();
}

const std::byte* Board::see(std::size_t seat) {
    const auto* words = words_[seat];
    if (!reached(seat, beat_)) wait(seat, beat_);
    seen_.push_back(static_cast<std::uint32_t>(seat));
    const auto theirs = words->slots[beat_ % kSlots].tag;
    if (theirs != tag_) {
        verify();
        throw Failure(ending_.mismatch(seat, theirs, tag_));
    }
    point();
    return slot_at(words, beat_, slot_);
}

void Board::wait(std::size_t seat, std::uint64_t beat) {
    point();
    const Waited waited;
    if (linger(seat, beat)) return;
    const auto deadline = now_ns() + ending_.timeout_ns();
    while (!reached(seat, beat)) {
        check(seat);
        if (ending_.gone(seat)) {
            if (reached(seat, beat)) return;  // Its last word came before its end.
            throw Failure(ending_.loss(seat, tag_));
        }
        if (now_ns() > deadline) throw Failure(ending_.too_late(seat, tag_));
        sleep(seat, beat);
    }
}

/// Wait without sleeping, as far as that is cheaper. True: the beat is there.
bool Board::linger(std::size_t seat, std::uint64_t beat) {
    const bool same_core = words_[seat]->cpu.load(std::memory_order_relaxed) == sched_getcpu();
    for (int i = 0; i < spins_ && !same_core; ++i) {
        relax();
        if (reached(seat, beat)) return true;
    }
    if (same_core && ++stalls_ % kStallsPerSleep == 0) return false;
    for (int i = 0; i < kYields && !ending_.stopped(); ++i) {
        sched_yield();
        if (reached(seat, beat)) return true;
    }
    return false;
}

/// Throws Failure when this session is over; notes it when the seat's is.
void Board::check(std::size_t seat) {
    if (ending_.stopped()) throw Failure(ending_.trouble());
    if (lives_[seat]->died()) ending_.lose(seat, "its process died");
    const auto& words = *words_[seat];
    if (words.broken.load(std::memory_order_acquire) == epoch_ + 1) {
        const auto blamed = words.blamed.load(std::memory_order_relaxed);
        ending_.lose(seat, blamed == 0 ? "it gave up"
                                       : "it gave up on seat " + std::to_string(blamed - 1));
    }
    const auto epoch = words.posted.epoch.load(std::memory_order_acquire);
    if (epoch != kNoEpoch && epoch > epoch_) ending_.lose(seat, "it has gone on to another epoch");
    const auto life = words.life.load(std::memory_order_relaxed);
    const bool published = words.posted.beat.load(std::memory_order_relaxed) >= kFirstBeat;
    if (life != life_ && (life != 0 || (published && epoch == epoch_)))
        ending_.lose(seat, "it has closed the group, and uses its memory for another");
}

void Board::sleep(std::size_t seat, std::uint64_t beat) {
    const auto& word = words_[seat]->posted.beat;
    const auto seen = word.load(std::memory_order_relaxed);
    own_->asleep_on.store(static_cast<std::uint32_t>(seat) + 1, std::memory_order_relaxed);
    ending_.falls_asleep(&word);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!reached(seat, beat) && !ending_.stopped() && !ending_.gone(seat)) sleep_on(word, seen, kNapNs);
    ending_.wakes_up();
    own_->asleep_on.store(0, std::memory_order_relaxed);
}

void Board::give_up(int blamed) noexcept {
    if (own_ == nullptr) return;
    own_->blamed.store(static_cast<std::uint32_t>(blamed + 1), std::memory_order_relaxed);
    own_->broken.store(epoch_ + 1, std::memory_order_release);
    shake(own_->posted.beat);
}

// The word may lie in memory that this process can only read; the kernel needs no more for either.

void sleep_on(const std::atomic<std::uint64_t>& word, std::uint64_t seen, std::int64_t ns) noexcept {
    const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    syscall(SYS_futex, low_half(word), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &limit, nullptr, 0);
}

int shake(const std::atomic<std::uint64_t>& word) noexcept {
    return static_cast<int>(
        syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0));
}

}  // namespace tmc
