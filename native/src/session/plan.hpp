// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives: how a call is cut, and who speaks to whom.
//
// Numbers in, numbers out: no session, no memory, no clock. All seats of a call come to the same ones.
// Nothing here depends on more than the number of seats, where they are, and the call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/trouble.hpp"

namespace tmc {

// Up to here all inputs of a sum are brought to one seat by a tree; more would cost more in bytes
// than it saves in messages, whatever the number of seats.
inline constexpr std::size_t kTreeBytes = 32 * 1024;
// Up to so many seats everybody speaks to everybody at once: one step, and few messages.
inline constexpr std::size_t kFewSeats = 8;
// Up to so many seats each has a link to each other one from the start.
inline constexpr std::size_t kMeetingSeats = 16;
// What is worked on at once over wires; scratch memory is that large.
inline constexpr std::size_t kWireChunk = 16 * 1024 * 1024;
// A seat's share of a slot is a multiple of it, and never nothing.
inline constexpr std::size_t kShareUnit = 64;

/// A range of elements.
struct Slice {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t count() const noexcept { return last - first; }
};

inline Slice slice_of(std::size_t count, std::size_t index, std::size_t parts) noexcept {
    return {count * index / parts, count * (index + 1) / parts};
}

/// Bytes of one slot of a board in a group of that many seats.
inline std::uint32_t slot_bytes(std::size_t seats) noexcept {
    if (seats <= 4) return 1024 * 1024;
    if (seats <= 8) return 512 * 1024;
    if (seats <= 16) return 256 * 1024;
    return static_cast<std::uint32_t>(std::max<std::size_t>(128 * 1024, seats * kShareUnit));
}

/// Bytes of a slot, or of scratch memory, that are for one of so many seats.
inline std::size_t share_bytes(std::size_t whole, std::size_t seats) noexcept {
    return whole / seats / kShareUnit * kShareUnit;
}

/// Whether a sum of that many bytes a seat goes up a tree: at its root there is room for all.
inline bool fits_tree(std::uint64_t bytes, std::size_t seats) noexcept {
    return bytes <= std::min(kTreeBytes, kWireChunk / seats);
}

/// Into how many chunks `in_chunks` cuts.
inline std::uint64_t chunks_of(std::uint64_t count, std::size_t most) noexcept {
    return std::max<std::uint64_t>((count + most - 1) / most, 1);
}

/// Of a whole that is worked on from `at` on, what one chunk has: nothing behind its end.
inline std::size_t piece_at(std::uint64_t whole, std::uint64_t at, std::size_t most) noexcept {
    return static_cast<std::size_t>(whole > at ? std::min<std::uint64_t>(most, whole - at) : 0);
}

/// Cut `count` into chunks of at most `most`; one empty chunk if there is nothing, so that the seats
/// meet and compare their calls.
template <class Body>
void in_chunks(std::uint64_t count, std::size_t most, Body body) {
    if (most == 0) throw Failure(Why::failed, "a call would be cut into chunks of nothing");
    std::uint64_t at = 0;
    do {
        const auto step = piece_at(count, at, most);
        body(at, step);
        at += step;
    } while (at < count);
}

/// The places 0 to `size - 1` as a tree: place 0 is its root, the parent of p is p without its lowest
/// digit in base `radix`, and the places under p are the `span` from p on. So what p and those under it
/// have lies in a row. The larger the radix, the fewer messages one after the other from the farthest
/// place to the root, and the more of them at each place.
struct Tree {
    std::uint32_t size = 1;
    std::uint32_t radix = 2;

    std::uint32_t parent(std::uint32_t place) const noexcept {
        const auto whole = step(place);
        return place - place / whole % radix * whole;
    }
    std::uint32_t span(std::uint32_t place) const noexcept {
        return std::min(step(place), size - place);
    }
    /// The farthest first: no other has more under it.
    std::vector<std::uint32_t> children(std::uint32_t place) const {
        std::vector<std::uint32_t> result;
        for (auto under = step(place) / radix; under > 0; under /= radix)
            for (auto digit = radix - 1; digit > 0; --digit)
                if (place + digit * under < size) result.push_back(place + digit * under);
        return result;
    }

private:
    /// How many places would be under it in a tree without end; at the root, in one that is full.
    std::uint32_t step(std::uint32_t place) const noexcept {
        std::uint32_t whole = 1;
        while (place == 0 ? whole < size : place % (whole * radix) == 0) whole *= radix;
        return whole;
    }
};

// Of a tree for what is small: each message costs little, and each step one after the other much.
inline constexpr std::uint32_t kFlat = 8;
// Of one for what is large.
inline constexpr std::uint32_t kSteep = 2;

/// Whether so many pieces reach all hosts sooner if each host hands them to one other, in a row: a
/// tree is there sooner, but its root sends each piece to many.
inline bool row_is_faster(std::uint64_t pieces, const Tree& tree) {
    return pieces + tree.size < pieces * tree.children(0).size();
}

}  // namespace tmc
