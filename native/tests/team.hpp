// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, each with an endpoint of its own: what a sanitizer can watch.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/trouble.hpp"
#include "collectives/collectives.hpp"
#include "endpoint/endpoint.hpp"
#include "endpoint/group.hpp"

inline constexpr std::int64_t kSecond = 1'000'000'000;

/// One process of a job: its endpoint, and its seat in one group.
struct Rank {
    Rank(const std::string& host, std::uint32_t seat, std::uint32_t size, const std::string& libcrypto)
        : endpoint(tmc::Endpoint::open(tmc::Token(32, std::byte{7}), host, "127.0.0.1", "", libcrypto)),
          group(endpoint->group("team", seat, size)) {}
    Rank(Rank&&) = default;
    Rank& operator=(Rank&&) = default;
    ~Rank() {
        if (group != nullptr) group->close();
        if (endpoint != nullptr) endpoint->close();
    }

    std::shared_ptr<tmc::Endpoint> endpoint;
    std::shared_ptr<tmc::Group> group;
};

/// Hosts by seat, one letter each: "aabb" are two hosts of two ranks.
class Team {
public:
    /// libcrypto  "": links are not encrypted
    explicit Team(std::string hosts, std::string libcrypto = "")
        : hosts_(std::move(hosts)), libcrypto_(std::move(libcrypto)) {
        for (std::uint32_t seat = 0; seat < size(); ++seat) ranks_.push_back(fresh(seat));
    }

    std::uint32_t size() const { return static_cast<std::uint32_t>(hosts_.size()); }
    Rank& operator[](std::uint32_t seat) { return *ranks_[seat]; }

    /// Run on every rank at once, and pass on what the first failing one threw.
    void each(const std::function<void(Rank&, std::uint32_t)>& body) {
        std::vector<std::thread> threads;
        std::vector<std::exception_ptr> failures(size());
        for (std::uint32_t seat = 0; seat < size(); ++seat)
            threads.emplace_back([&, seat] {
                try {
                    body(*ranks_[seat], seat);
                } catch (...) {
                    failures[seat] = std::current_exception();
                }
            });
        for (auto& thread : threads) thread.join();
        for (const auto& failure : failures)
            if (failure) std::rethrow_exception(failure);
    }

    /// Phase 1 on all, then phase 2 on all.
    void enter(std::uint32_t epoch) {
        prepare(epoch);
        switched.assign(size(), {});
        each([&](Rank& rank, std::uint32_t seat) { switched[seat] = rank.group->switchover(epoch); });
    }

    void prepare(std::uint32_t epoch) {
        std::vector<std::vector<std::byte>> cards;
        for (const auto& rank : ranks_) cards.push_back(rank->group->card());
        each([&](Rank& rank, std::uint32_t) { rank.group->prepare(epoch, cards, 30 * kSecond); });
    }

    /// Another process sits down there; the old one is gone without a word, or stays as `stale`.
    std::unique_ptr<Rank> replace(std::uint32_t seat) {
        auto stale = std::move(ranks_[seat]);
        ranks_[seat] = fresh(seat);
        return stale;
    }

    /// The same on another host.
    std::unique_ptr<Rank> move(std::uint32_t seat, char host) {
        hosts_[seat] = host;
        return replace(seat);
    }

    std::vector<tmc::Switched> switched;

private:
    std::unique_ptr<Rank> fresh(std::uint32_t seat) const {
        return std::make_unique<Rank>(std::string(1, hosts_[seat]), seat, size(), libcrypto_);
    }

    std::string hosts_;
    std::string libcrypto_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

inline void all_reduce(Rank& rank, std::vector<float>& data, bool background = false) {
    auto* at = reinterpret_cast<std::byte*>(data.data());
    const auto count = data.size();
    auto ticket = rank.group->submit(
        [at, count](tmc::Session& s) {
            tmc::reduce_to(s, at, count, tmc::DType::f32, tmc::Op::sum, tmc::kEverywhere);
        },
        background);
    if (ticket == nullptr) return;
    rank.group->wait(ticket, 60 * kSecond);
    if (const auto trouble = ticket->trouble()) throw tmc::Failure(trouble);
}
