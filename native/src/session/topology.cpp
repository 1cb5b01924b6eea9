// SPDX-License-Identifier: Apache-2.0
#include "session/topology.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "session/plan.hpp"

namespace tmc {

Topology::Topology(const View& view)
    : seat(view.seat), size(static_cast<std::uint32_t>(view.size())), host_of(size), index_of(size) {
    std::unordered_map<std::string, std::uint32_t> numbers;
    for (std::uint32_t other = 0; other < size; ++other) {
        const auto next = static_cast<std::uint32_t>(hosts.size());
        const auto number = numbers.emplace(view.cards[other].host, next).first->second;
        if (number == next) hosts.emplace_back();
        if (!hosts[number].empty() && hosts[number].back() + 1 != other) contiguous = false;
        host_of[other] = number;
        index_of[other] = static_cast<std::uint32_t>(hosts[number].size());
        hosts[number].push_back(other);
    }
    thinnest = size;
    for (const auto& there : hosts) {
        fullest = std::max(fullest, there.size());
        thinnest = std::min(thinnest, there.size());
    }
    host = host_of[seat];
    index = index_of[seat];
    for (std::uint32_t other = 0; other < size; ++other)
        if (other != seat) (near(other) ? neighbours : distant).push_back(other);
    kept.resize(size);
    for (const auto other : distant) kept[keeper(other, host)].push_back(other);
    // Where the fewest share the work: of each host, its own too, the first of them has that many.
    for (const auto& there : hosts) kept_most += (there.size() + thinnest - 1) / thinnest;
    --kept_most;
}

std::vector<std::uint32_t> Topology::known() const {
    auto seats = neighbours;
    if (size <= kMeetingSeats) {
        seats.insert(seats.end(), distant.begin(), distant.end());
        return seats;
    }
    const auto count = static_cast<std::uint32_t>(hosts.size());
    if (index == 0)  // It speaks for its host, as the first seats of all others do.
        for (const auto radix : {kFlat, kSteep}) {
            const Tree tree{count, radix};
            if (host != 0) seats.push_back(hosts[tree.parent(host)].front());
            for (const auto child : tree.children(host)) seats.push_back(hosts[child].front());
        }
    if (index < thinnest) {
        if (host > 0) seats.push_back(hosts[host - 1][index]);
        if (host + 1 < count) seats.push_back(hosts[host + 1][index]);
    }
    std::sort(seats.begin(), seats.end());
    seats.erase(std::unique(seats.begin(), seats.end()), seats.end());
    return seats;
}

}  // namespace tmc
