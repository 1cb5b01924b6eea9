// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives, for every number of seats that may ever come: no cut of nothing, no
// loop without an end, trees that reach everybody once.
#include "session/plan.hpp"

#include <set>
#include <vector>

#include "check.hpp"

namespace {

using namespace tmc;

constexpr std::size_t kSeatsMost = 16384;
constexpr std::size_t kWidths[] = {1, 2, 4, 8, 16};
constexpr std::size_t kChunksMost = 1 << 22;

/// How many chunks a call is cut into; stops counting where it would never end.
std::uint64_t cut(std::uint64_t count, std::size_t most) {
    std::uint64_t chunks = 0;
    std::uint64_t next = 0;
    in_chunks(count, most, [&](std::uint64_t at, std::size_t step) {
        CHECK(at == next && step <= most);
        CHECK(step > 0 || count == 0, "an empty chunk at %lu of %lu", at, count);
        next = at + step;
        CHECK(++chunks <= kChunksMost, "no end in %lu", count);
    });
    CHECK(next == count);
    return chunks;
}

/// Bytes that each collective cuts by, with so many seats of which at most `here` share a host.
std::vector<std::size_t> cuts(std::size_t seats, std::size_t here) {
    const std::size_t slot = slot_bytes(seats);
    return {slot, share_bytes(slot, here), share_bytes(slot, seats), share_bytes(kWireChunk, seats),
            share_bytes(kWireChunk, here), slot / seats, kWireChunk / seats, kWireChunk};
}

void every_call_is_cut_into_something(std::size_t seats) {
    CHECK(slot_bytes(seats) >= seats * sizeof(std::uint64_t), "no room for %zu amounts", seats);
    CHECK(fits_tree(0, seats) && fits_tree(64, seats), "%zu seats", seats);
    for (const auto here : {std::size_t{1}, (seats + 1) / 2, seats})
        for (const auto most : cuts(seats, here))
            for (const auto width : kWidths)
                CHECK(most / width > 0, "%zu seats, %zu here, %zu bytes", seats, here, most);
}

void chunks_are_counted_as_they_are_cut(std::size_t seats) {
    for (const auto most : cuts(seats, seats))
        for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{most - 1},
                                          std::uint64_t{most}, std::uint64_t{3 * most + 1}})
            CHECK(cut(count, most) == chunks_of(count, most), "%lu by %zu", count, most);
}

void slices_lie_in_a_row(std::size_t seats) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, seats - 1, seats + 1, kWireChunk}) {
        std::size_t next = 0;
        for (std::size_t seat = 0; seat < seats; ++seat) {
            const auto slice = slice_of(count, seat, seats);
            CHECK(slice.first == next && slice.last >= slice.first);
            CHECK(slice.count() <= count / seats + 1);
            next = slice.last;
        }
        CHECK(next == count);
    }
}

void a_tree_reaches_everybody_once(std::uint32_t size, std::uint32_t radix) {
    const Tree tree{size, radix};
    auto depth = 0U;
    for (std::uint64_t full = 1; full < size; full *= radix) ++depth;
    std::vector<int> reached(size, 0);
    reached[0] = 1;
    for (std::uint32_t place = 0; place < size; ++place) {
        auto under = 1U;
        auto end = place + tree.span(place);
        for (const auto child : tree.children(place)) {
            CHECK(tree.parent(child) == place, "%u under %u of %u", child, place, size);
            CHECK(child + tree.span(child) == end, "a gap behind %u of %u", child, size);
            end = child;
            under += tree.span(child);
            ++reached[child];
        }
        CHECK(end == place + 1 && under == tree.span(place), "place %u of %u", place, size);
        auto hops = 0U;
        for (auto up = place; up != 0; up = tree.parent(up)) ++hops;
        CHECK(hops <= depth);
    }
    for (const int times : reached) CHECK(times == 1);
    CHECK(tree.children(0).size() <= (radix - 1) * depth);
}

void a_cut_of_nothing_is_refused() {
    try {
        in_chunks(1, 0, [](std::uint64_t, std::size_t) {});
        CHECK(false, "a chunk of nothing");
    } catch (const Failure& failure) {
        CHECK(failure.trouble().why == Why::failed);
    }
}

}  // namespace

int main() {
    for (std::size_t seats = 1; seats <= kSeatsMost; ++seats) {
        every_call_is_cut_into_something(seats);
        const bool chosen = seats <= 70 || seats % 997 == 0 || seats == kSeatsMost;
        if (chosen) chunks_are_counted_as_they_are_cut(seats);
        if (chosen) slices_lie_in_a_row(seats);
        if (!chosen && (seats & (seats - 1)) != 0) continue;
        for (const auto radix : {kSteep, kFlat})
            a_tree_reaches_everybody_once(static_cast<std::uint32_t>(seats), radix);
    }
    a_cut_of_nothing_is_refused();
}
