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
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <span>
#include <vector>

#include "call.hpp"
#include "ending.hpp"
#include "topology.hpp"
#include "view.hpp"

namespace tmc {

inline constexpr std::size_t kSlots = 2;

/// The words of one seat; only their owner writes them.
///
/// posted     epoch << 40 | beat
/// ended      the last beat posted in the epoch before, in the same form
/// tags       the call that the beat in each slot belongs to
/// cpu        where the owner ran when it posted
/// broken     epoch + 1 in which the owner gave up; blamed: seat + 1 whose fault that was, or 0
/// asleep_on  seat + 1 whose words the owner sleeps on, so that only then a post costs a system call
struct BoardWords {
    alignas(64) std::atomic<std::uint64_t> posted;
    std::array<Tag, kSlots> tags;
    std::atomic<int> cpu;
    alignas(64) std::atomic<std::uint32_t> asleep_on;
    alignas(64) std::atomic<std::uint32_t> broken;
    std::atomic<std::uint32_t> blamed;
    std::atomic<std::uint64_t> ended;
};

inline constexpr std::size_t kBoardHead = 4096;
static_assert(sizeof(BoardWords) <= kBoardHead);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Bytes of one slot in a group of that many seats.
std::uint32_t slot_bytes(std::size_t seats) noexcept;
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
    /// Show the slot.
    void post() noexcept;
    /// That neighbour's slot, once it is posted. Throws Failure: it is gone, or calls another thing.
    const std::byte* see(std::size_t seat);
    /// Nothing more comes from this seat in this epoch.
    void give_up(int blamed) noexcept;

    std::uint32_t slot_bytes() const noexcept { return slot_; }

private:
    std::uint64_t position(std::uint64_t beat) const noexcept { return epoch_ << 40 | beat; }
    bool posted(const BoardWords& words, std::uint64_t beat) const noexcept;
    bool reached(std::size_t seat, std::uint64_t beat) const noexcept;
    void wait(std::size_t seat, std::uint64_t beat);
    bool linger(std::size_t seat, std::uint64_t beat);
    void check(std::size_t seat);
    void sleep(std::size_t seat, std::uint64_t beat);

    const Topology& topology_;
    Ending& ending_;
    const std::uint64_t epoch_;
    const std::uint32_t seat_;
    const std::uint32_t slot_;
    BoardWords* own_ = nullptr;
    std::vector<const BoardWords*> words_;  // by seat; null for those elsewhere
    std::vector<const LifeWord*> lives_;    // likewise
    const int spins_;
    std::uint64_t beat_;
    std::uint64_t stalls_ = 0;
    Tag tag_;
};

/// Sleep while the word's lower half is `seen`, at most that long; a post or `shake` ends it.
void sleep_on(const std::atomic<std::uint64_t>& word, std::uint64_t seen, std::int64_t ns) noexcept;
/// Wake who sleeps on the word, also on a peer's. Returns how many.
int shake(const std::atomic<std::uint64_t>& word) noexcept;

}  // namespace tmc
