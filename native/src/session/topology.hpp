// SPDX-License-Identifier: Apache-2.0
// Which seats share a host. Algorithms are chosen by this alone, so all seats choose alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "session/view.hpp"

namespace tmc {

/// hosts       seats by host; hosts in the order of their first seat
/// host_of     by seat
/// host        this seat's; index: its place among the seats there
/// neighbours  the other seats on this host
/// distant     the seats elsewhere
/// contiguous  the seats of every host are consecutive
/// fullest     seats of the host that has most
/// thinnest    seats of the host that has fewest
/// kept        by seat of this host: the distant seats whose blocks it keeps for its neighbours
/// kept_most   of the seats of all hosts: how many the one keeps that keeps most
struct Topology {
    explicit Topology(const View& view);

    std::uint32_t seat;
    std::uint32_t size;
    std::vector<std::vector<std::uint32_t>> hosts;
    std::vector<std::uint32_t> host_of;
    std::vector<std::uint32_t> index_of;
    std::uint32_t host = 0;
    std::uint32_t index = 0;
    std::vector<std::uint32_t> neighbours;
    std::vector<std::uint32_t> distant;
    bool contiguous = true;
    std::size_t fullest = 0;
    std::size_t thinnest = 0;
    std::vector<std::vector<std::uint32_t>> kept;
    std::size_t kept_most = 0;

    bool near(std::uint32_t other) const noexcept { return host_of[other] == host; }
    /// Both kinds of transport occur in the group: somebody has a neighbour, and not all are.
    bool mixed() const noexcept { return hosts.size() > 1 && hosts.size() < size; }
    /// Who on a host gets the block of a seat elsewhere, for all seats there.
    std::uint32_t keeper(std::uint32_t other, std::size_t on) const noexcept {
        return hosts[on][index_of[other] % hosts[on].size()];
    }
    const std::vector<std::uint32_t>& here() const noexcept { return hosts[host]; }

    /// The other seats that this one is known to need a link to, whatever the calls: neighbours, whose
    /// memory it brings; of a small group all; of a larger one those that are next to it in the tree of
    /// hosts from seat 0 and in the row of hosts. It is in theirs whenever they are in its own.
    std::vector<std::uint32_t> known() const;
};

}  // namespace tmc
