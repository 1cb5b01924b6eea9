#include "topology.hpp"

#include <algorithm>
#include <string>

namespace tmc {

Topology::Topology(const View& view)
    : seat(view.seat), size(static_cast<std::uint32_t>(view.size())), host_of(size), index_of(size) {
    std::vector<std::string> names;
    for (std::uint32_t other = 0; other < size; ++other) {
        const auto& name = view.cards[other].host;
        const auto found = std::find(names.begin(), names.end(), name);
        const auto number = static_cast<std::uint32_t>(found - names.begin());
        if (found == names.end()) {
            names.push_back(name);
            hosts.emplace_back();
        }
        if (!hosts[number].empty() && hosts[number].back() + 1 != other) contiguous = false;
        host_of[other] = number;
        index_of[other] = static_cast<std::uint32_t>(hosts[number].size());
        hosts[number].push_back(other);
    }
    for (const auto& there : hosts) fullest = std::max(fullest, there.size());
    host = host_of[seat];
    index = index_of[seat];
    for (std::uint32_t other = 0; other < size; ++other)
        if (other != seat) (near(other) ? neighbours : distant).push_back(other);
}

}  // namespace tmc
