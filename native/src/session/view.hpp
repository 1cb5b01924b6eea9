// SPDX-License-Identifier: Apache-2.0
// One group in one epoch: who sits where, and how each is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "links/link.hpp"

namespace tmc {

/// What a seat publishes about itself.
///
/// incarnation  number of the process
/// nonce        number of this process's group object
/// life         number of the group, 0 from a seat that does not know it yet
struct Card {
    std::uint64_t incarnation = 0;
    std::uint64_t nonce = 0;
    std::uint64_t life = 0;
    std::uint64_t region = 0;  // offset of its board in its arena
    std::uint32_t slot_bytes = 0;
    std::string host;
    std::string address;  // for processes on other hosts
    std::string path;     // and for those on this one

    std::vector<std::byte> encoded() const;
    /// Throws Failure for bytes that are no card.
    static Card decoded(std::span<const std::byte> bytes);
};

/// links  by seat; null for the own one. Not all are open: see `Topology::known`
/// local  by seat: shares the host, and with it memory, with this one
struct View {
    std::uint64_t epoch = 0;
    std::uint64_t life = 0;
    std::uint32_t seat = 0;
    std::vector<Card> cards;
    std::vector<std::shared_ptr<Link>> links;
    int opened = 0;  // Links that were not open before this view was prepared,
    int kept = 0;    // and those that were.
    std::int64_t prepare_ns = 0;

    std::size_t size() const noexcept { return cards.size(); }
    bool local(std::size_t seat_) const noexcept { return cards[seat_].host == cards[seat].host; }
};

}  // namespace tmc
