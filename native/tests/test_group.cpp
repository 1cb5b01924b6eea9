// SPDX-License-Identifier: Apache-2.0
// Groups whose seats are threads: sums, replacement, abort in the middle, messages.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "base/sockets.hpp"
#include "check.hpp"
#include "team.hpp"

namespace {

const std::vector<std::string> kTeams{"aa", "ab", "aaaa", "abcd", "aabb", "abab", "aab",
                                      "aaabbbccd", "abcabcabc", "abcdefghi"};

float value(std::uint32_t seat, std::size_t index) {
    return static_cast<float>(seat + 1) * 0.1F + static_cast<float>(index % 97) * 0.01F;
}

std::vector<float> contribution(std::uint32_t seat, std::size_t count) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = value(seat, i);
    return data;
}

/// The bits that every seat must get.
std::vector<float> sum(std::uint32_t seats, std::size_t count) {
    auto total = contribution(0, count);
    for (std::uint32_t seat = 1; seat < seats; ++seat)
        for (std::size_t i = 0; i < count; ++i) total[i] += value(seat, i);
    return total;
}

void check_sum(Team& team, std::size_t count, bool background) {
    const auto expected = sum(team.size(), count);
    team.each([&](Rank& rank, std::uint32_t seat) {
        auto data = contribution(seat, count);
        all_reduce(rank, data, background);
        const bool same =
            count == 0 || std::memcmp(data.data(), expected.data(), count * sizeof(float)) == 0;
        CHECK(same, "seat %u", seat);
    });
}

void sums_are_in_seat_order(const std::string& hosts) {
    Team team(hosts);
    team.enter(1);
    for (const std::size_t count : {0UL, 1UL, 7UL, 1000UL, 20'000UL, 131'073UL, 600'001UL}) {
        check_sum(team, count, false);
        check_sum(team, count, true);
    }
}

/// Who has left holds nothing for those who have gone on without it, as soon as it closes the group.
void memory_comes_back(Rank& left) {
    left.group->close();
    const auto deadline = tmc::now_ns() + 60 * kSecond;
    while (left.endpoint->facts().arena_bytes > 0) {
        CHECK(tmc::now_ns() < deadline, "it holds memory for who reads it no more");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void a_seat_is_replaced(const std::string& hosts) {
    Team team(hosts);
    team.enter(1);
    for (std::uint32_t epoch = 2; epoch < 7; ++epoch) {
        const auto seat = epoch % team.size();
        const auto stale = team.replace(seat);
        team.enter(epoch);
        for (std::uint32_t other = 0; other < team.size(); ++other) {
            if (other == seat) continue;
            CHECK(team.switched[other].opened == 1, "seat %u: %d", other, team.switched[other].opened);
            CHECK(team.switched[other].kept == static_cast<int>(team.size()) - 2);
        }
        check_sum(team, 50'000, false);
        memory_comes_back(*stale);
    }
}

/// Aborts fall anywhere in a row of large sums; the next epoch is right on the same links.
void aborts_anywhere(const std::string& hosts) {
    std::mt19937 random(11);
    Team team(hosts);
    team.enter(1);
    for (std::uint32_t epoch = 2; epoch < 12; ++epoch) {
        const auto delay = std::chrono::microseconds(random() % 3000);
        std::thread teller([&] {
            std::this_thread::sleep_for(delay);
            for (std::uint32_t seat = 0; seat < team.size(); ++seat) team[seat].group->abort("a test");
        });
        team.each([&](Rank& rank, std::uint32_t seat) {
            auto data = contribution(seat, 400'000);
            try {
                for (;;) all_reduce(rank, data, seat % 2 == 1);
            } catch (const tmc::Failure& failure) {
                const auto why = failure.trouble().why;
                CHECK(why == tmc::Why::aborted || why == tmc::Why::peer_lost, "%s", failure.what());
            }
        });
        teller.join();
        team.enter(epoch);
        for (const auto& done : team.switched) CHECK(done.opened == 0 && done.closed == 0);
        check_sum(team, 100'000, false);
    }
}

/// Memory of every small size, as an allocator hands it out again that has just got some back.
class Reused {
public:
    Reused() {
        for (std::size_t bytes = 24; bytes < 256; bytes += 16)
            for (int i = 0; i < 8; ++i) pieces_.emplace_back(bytes, kPaint);
    }
    bool untouched() const {
        const auto is_paint = [](std::byte byte) { return byte == kPaint; };
        return std::all_of(pieces_.begin(), pieces_.end(), [&](const auto& piece) {
            return std::all_of(piece.begin(), piece.end(), is_paint);
        });
    }

private:
    static constexpr std::byte kPaint{0xA5};
    std::vector<std::vector<std::byte>> pieces_;
};

/// What a call asked the links for may come after it has failed, until its session is cleaned up:
/// so it must not lie in memory that the call gives back.
void what_a_failed_call_gives_back_is_left_alone(
    const std::function<void(tmc::Session&, std::uint32_t)>& call) {
    Team team("abc");
    team.enter(1);
    std::atomic<bool> failed{false};
    const auto run = [&](tmc::Session& s, std::uint32_t seat) {
        while (seat == 2 && !failed) std::this_thread::yield();
        try {
            call(s, seat);
        } catch (const tmc::Failure&) {
            if (seat == 2) throw;
            const Reused reused;
            failed = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            CHECK(reused.untouched());
            throw;
        }
    };
    team.each([&](Rank& rank, std::uint32_t seat) {
        if (seat == 1) return rank.group->abort("a test");
        try {
            rank.group->submit([&](tmc::Session& s) { run(s, seat); }, false);
            CHECK(false, "seat %u did not hear of the abort", seat);
        } catch (const tmc::Failure& failure) {
            CHECK(failure.trouble().why == tmc::Why::peer_lost, "%s", failure.what());
        }
    });
}

void exchange(tmc::Session& s, std::uint32_t seat) {
    std::vector<std::byte> out(30, static_cast<std::byte>(seat)), in(30);
    const std::vector<std::uint64_t> counts{10, 10, 10};
    std::vector<tmc::ConstBytes> from;
    std::vector<tmc::Bytes> to;
    for (std::size_t other = 0; other < 3; ++other) {
        from.push_back(out.data() + 10 * other);
        to.push_back(in.data() + 10 * other);
    }
    tmc::all_to_all(s, from, counts, to, counts, tmc::DType::u8);
}

void different_calls_are_told(const std::string& hosts) {
    Team team(hosts);
    team.enter(1);
    std::atomic<int> told{0};
    team.each([&](Rank& rank, std::uint32_t seat) {
        auto data = contribution(seat, seat == 1 ? 10 : 20);
        try {
            all_reduce(rank, data);
            all_reduce(rank, data);
            CHECK(false, "nobody noticed");
        } catch (const tmc::Failure& failure) {
            const std::string text = failure.what();
            told += text.find("f32[10]") != text.npos && text.find("f32[20]") != text.npos;
        }
    });
    CHECK(told > 0);
}

void messages_cross(const std::string& hosts) {
    Team team(hosts);
    team.enter(1);
    team.each([&](Rank& rank, std::uint32_t seat) {
        const auto next = (seat + 1) % team.size();
        for (const std::size_t count : {0UL, 3UL, 4000UL, 300'000UL}) {
            const auto out = contribution(seat, count);
            std::vector<float> in(count);
            const auto sent = rank.group->send(reinterpret_cast<const std::byte*>(out.data()), count,
                                               tmc::DType::f32, next, 5);
            const auto come = rank.group->receive(reinterpret_cast<std::byte*>(in.data()), count,
                                                  tmc::DType::f32, -1, 5);
            CHECK(rank.group->wait_for_message(*sent, 60 * kSecond) && !sent->trouble());
            CHECK(rank.group->wait_for_message(*come, 60 * kSecond) && !come->trouble());
            CHECK(in == contribution((seat + team.size() - 1) % team.size(), count));
        }
    });
}

}  // namespace

int main() {
    for (const auto& hosts : kTeams) {
        std::fprintf(stderr, "%s\n", hosts.c_str());
        sums_are_in_seat_order(hosts);
        a_seat_is_replaced(hosts);
        aborts_anywhere(hosts);
        different_calls_are_told(hosts);
        messages_cross(hosts);
    }
    what_a_failed_call_gives_back_is_left_alone(exchange);
    what_a_failed_call_gives_back_is_left_alone(
        [](tmc::Session& s, std::uint32_t) { tmc::barrier(s); });
}
