// SPDX-License-Identifier: Apache-2.0
// What a seat shows to the other seats on its host: two slots of memory and a word that says which
// of them holds what.
//
// A collective is a row of *beats*, the same on all seats. In a beat every seat may fill its slot,
// then posts; others read the slot once they see the post. A seat posts a beat only after it has
// read all it wants of the beats before. So a slot may be filled for beat b when every neighbour
// has posted beat b - 1: all have then finished reading beat b - 2, which was in the same slot.
//
// Every word has one writer. Nothing here is locked, and a writer that dies leaves nothing half
// said: what was not posted was never there.
//
// A seat may be late: stopped while the others go on without it. Its neighbours' memory is then used
// for other things, a later epoch or another group. So a board says whose it is (`life`), and a slot
// which beat of which epoch it holds; a reader compares both before it reads, and again afterwards,
// before anything made of what it has read leaves it (`verify`). The owner takes a slot's name away
// before it writes into it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <span>
#include <vector>

#include "base/call.hpp"
#include "session/ending.hpp"
#include "session/plan.hpp"
#include "session/topology.hpp"
#include "session/view.hpp"

namespace tmc {

inline constexpr std::size_t kSlots = 2;

/// What is in a slot. beat: 0 while it is being filled
struct SlotWords {
    std::atomic<std::uint64_t> epoch;
    std::atomic<std::uint64_t> beat;
    Tag tag;
};

/// A beat of an epoch, in two words that are not written at once. epoch: kNoEpoch in between
struct Place {
    std::atomic<std::uint64_t> beat;
    std::atomic<std::uint64_t> epoch;
};

inline constexpr std::uint64_t kNoEpoch = ~std::uint64_t{0};

/// The words of one seat; only their owner writes them.
///
/// posted     the last beat posted
/// life       of the group that the board belongs to; 0: of none
/// cpu        where the owner ran when it posted
/// ended      the last beat posted in the epoch before
/// broken     epoch + 1 in which the owner gave up; blamed: seat + 1 whose fault that was, or 0
/// asleep_on  seat + 1 whose words the owner sleeps on, so that only then a post costs a system call
struct BoardWords {
    alignas(64) Place posted;
    std::atomic<std::uint64_t> life;
    std::atomic<int> cpu;
    alignas(64) std::array<SlotWords, kSlots> slots;
    alignas(64) std::atomic<std::uint32_t> asleep_on;
    alignas(64) std::atomic<std::uint64_t> broken;
    std::atomic<std::uint32_t> blamed;
    Place ended;
};

inline constexpr std::size_t kBoardHead = 4096;
static_assert(sizeof(BoardWords) <= kBoardHead);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Bytes of a seat's board.
std::size_t board_bytes(std::uint32_t slot) noexcept;

/// The boards of one epoch, as the thread that runs a collective uses them.
class Board {
public:
    /// own  this seat's board, `board_bytes(slot)` long; null when nobody shares the host
    Board(const View& view, const Topology& topology, std::byte* own, std::uint32_t slot,
          Ending& ending);

    /// The call that the coming beats belong to.
    void begin(Tag tag) noexcept { tag_ = tag; }
    /// Go to the next beat: this seat's slot, which nobody reads any more. Throws Failure.
    std::byte* open();
    /// From now on neighbours see this seat in the epoch.
    void publish() noexcept;
    /// Show the slot. Throws Failure.
    void post();
    /// That neighbour's slot, once it is posted; what is read there counts once it was verified.
    /// Throws Failure: it is gone, or calls another thing.
    const std::byte* see(std::size_t seat);
    /// All slots that were seen still hold what they held. To be called before what was read there
    /// is shown, sent or returned; `open` and `post` do so themselves. Throws Failure.
    void verify();
    /// Nothing more comes from this seat in this epoch.
    void give_up(int blamed) noexcept;
    /// The board belongs to no group any more.
    static void disown(std::byte* own) noexcept;

    std::uint32_t slot_bytes() const noexcept { return slot_; }

private:
    bool passed(const Place& place, std::uint64_t beat) const noexcept;
    bool holds(std::size_t seat) const noexcept;
    bool reached(std::size_t seat, std::uint64_t beat) const noexcept;
    void wait(std::size_t seat, std::uint64_t beat);
    bool linger(std::size_t seat, std::uint64_t beat);
    void check(std::size_t seat);
    void sleep(std::size_t seat, std::uint64_t beat);

    const Topology& topology_;
    Ending& ending_;
    const std::uint64_t epoch_;
    const std::uint64_t life_;
    const std::uint32_t seat_;
    const std::uint32_t slot_;
    BoardWords* own_ = nullptr;
    std::vector<const BoardWords*> words_;  // by seat; null for those elsewhere
    std::vector<const LifeWord*> lives_;    // likewise
    const int spins_;
    std::uint64_t beat_;
    std::vector<std::uint32_t> seen_;  // seats whose slots of this beat were read and not verified
    std::uint64_t stalls_ = 0;
    Tag tag_;
};

/// Sleep while the word's lower half is `seen`, at most that long; a post or `shake` ends it.
void sleep_on(const std::atomic<std::uint64_t>& word, std::uint64_t seen, std::int64_t ns) noexcept;
/// Wake who sleeps on the word, also on a peer's. Returns how many.
int shake(const std::atomic<std::uint64_t>& word) noexcept;

}  // namespace tmc
