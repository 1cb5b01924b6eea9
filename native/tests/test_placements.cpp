// SPDX-License-Identifier: Apache-2.0
// One result everywhere: the bits of a sum follow from the number of seats and the call alone, wherever
// the seats are, and whatever was moved before.
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "collectives/reduce.hpp"
#include "session/plan.hpp"
#include "team.hpp"

namespace {

using namespace tmc;
using Memory = std::vector<std::byte>;

constexpr std::uint32_t kSeats = 12;
// One host, none shared, in a row, in turns, uneven and crossed, one that is alone.
const std::vector<std::string> kPlacements{"aaaaaaaaaaaa", "abcdefghijkl", "aaabbbcccddd",
                                           "abcabcabcabc", "aaaabcbbbcca", "abbbbbbbbbbb"};

struct Sum {
    Kind kind;
    DType dtype;
    Op op;
    std::size_t count;
    int root = 0;

    std::size_t bytes() const { return count * size_of(dtype); }
};

/// A sanitizer for threads makes this slow, and needs only some of them.
constexpr std::size_t kOneIn = std::string_view(TRAINMOVER_SANITIZER) == "thread" ? 17 : 1;

std::vector<Sum> sums() {
    std::vector<Sum> all;
    for (int type = 0; type <= static_cast<int>(DType::byte1); ++type)
        for (int op = 0; op <= static_cast<int>(Op::bxor); ++op)
            if (supported(static_cast<DType>(type), static_cast<Op>(op)))
                for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter})
                    all.push_back({kind, static_cast<DType>(type), static_cast<Op>(op), 37, type % 12});
    for (const auto type : {DType::f32, DType::bf16, DType::c128})
        for (const std::size_t count : {0UL, 1UL, 683UL, 2731UL, 8193UL, 16385UL, 50'001UL})
            for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter})
                all.push_back({kind, type, Op::avg, count, 7});
    std::vector<Sum> chosen;
    for (std::size_t i = 0; i < all.size(); i += kOneIn) chosen.push_back(all[i]);
    for (const auto type : {DType::f32, DType::f16})  // many pieces, one behind the other
        chosen.push_back({Kind::all_reduce, type, Op::sum, 700'001});
    return chosen;
}

/// What a seat has in a call, any bits: a stretch of a row of its own.
ConstBytes input(std::uint32_t seat, std::uint32_t part = 0) {
    static const auto rows = [] {
        std::vector<std::vector<std::uint64_t>> all;
        for (std::uint32_t owner = 0; owner < kSeats; ++owner) {
            std::mt19937_64 random(owner);
            all.emplace_back(400'000);
            for (auto& word : all.back()) word = random();
        }
        return all;
    }();
    return reinterpret_cast<ConstBytes>(rows[seat].data() + part * 13);
}

bool same(const Memory& data, ConstBytes right) {
    return data.empty() || std::memcmp(data.data(), right, data.size()) == 0;
}

Memory copied(ConstBytes from, std::size_t bytes) { return {from, from + bytes}; }

/// In the order of the seats, in one place.
Memory expected(const Sum& sum, std::uint32_t part = 0) {
    std::vector<const void*> at;
    for (std::uint32_t seat = 0; seat < kSeats; ++seat) at.push_back(input(seat, part));
    Memory result(sum.bytes());
    reduce(at, result.data(), sum.count, sum.dtype, sum.op, kSeats);
    return result;
}

Memory called(Rank& rank, const Sum& sum, std::uint32_t seat) {
    std::vector<ConstBytes> from;
    for (std::uint32_t part = 0; part < kSeats; ++part) from.push_back(input(seat, part));
    auto data = copied(from[0], sum.bytes());
    rank.group->submit(
        [&](Session& s) {
            if (sum.kind == Kind::reduce_scatter)
                reduce_scatter(s, from, data.data(), sum.count, sum.dtype, sum.op);
            else
                reduce_to(s, data.data(), sum.count, sum.dtype, sum.op,
                          sum.kind == Kind::reduce ? sum.root : kEverywhere);
        },
        false);
    return data;
}

/// By call and, where each seat gets another result, by seat.
std::vector<std::vector<Memory>> all_expected(const std::vector<Sum>& calls) {
    std::vector<std::vector<Memory>> results;
    for (const auto& sum : calls) {
        results.emplace_back();
        const auto parts = sum.kind == Kind::reduce_scatter ? kSeats : 1;
        for (std::uint32_t part = 0; part < parts; ++part) results.back().push_back(expected(sum, part));
    }
    return results;
}

void check_sums(Team& team, const std::vector<Sum>& calls, const std::vector<std::vector<Memory>>& results) {
    team.each([&](Rank& rank, std::uint32_t seat) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const auto& sum = calls[i];
            const auto data = called(rank, sum, seat);
            const bool untouched = sum.kind == Kind::reduce && static_cast<int>(seat) != sum.root;
            const auto* right = untouched ? input(seat) : results[i][seat % results[i].size()].data();
            CHECK(same(data, right),
                  "seat %u, kind %d, type %d, op %d, %zu elements", seat, static_cast<int>(sum.kind),
                  static_cast<int>(sum.dtype), static_cast<int>(sum.op), sum.count);
        }
    });
}

/// The rest of what goes by trees and rows: what everybody has reaches everybody.
void check_moves(Team& team) {
    for (const std::size_t bytes : {0UL, 1UL, 700UL, 2731UL, 300'000UL, 2'900'001UL}) {
        team.each([&](Rank& rank, std::uint32_t seat) {
            const auto root = static_cast<std::uint32_t>(bytes % kSeats);
            auto data = copied(input(seat), bytes);
            rank.group->submit(
                [&](Session& s) { broadcast(s, data.data(), bytes, DType::u8, root); }, false);
            CHECK(same(data, input(root)), "%zu bytes at seat %u", bytes, seat);
            std::vector<Memory> come(kSeats, Memory(bytes));
            std::vector<Bytes> to;
            for (auto& block : come) to.push_back(block.data());
            rank.group->submit(
                [&](Session& s) { all_gather(s, input(seat), to, bytes, DType::u8); }, false);
            for (std::uint32_t other = 0; other < kSeats; ++other)
                CHECK(same(come[other], input(other)),
                      "%zu bytes of %u at %u", bytes, other, seat);
            rank.group->submit([](Session& s) { barrier(s); }, false);
        });
    }
}

}  // namespace

int main() {
    const auto calls = sums();
    const auto results = all_expected(calls);
    for (std::size_t i = 0; i < kPlacements.size(); ++i) {
        std::fprintf(stderr, "%s\n", kPlacements[i].c_str());
        Team team(kPlacements[i]);
        team.enter(1);
        check_sums(team, calls, results);
        check_moves(team);
        // Every other seat to where it is in the next placement.
        const auto& next = kPlacements[(i + 1) % kPlacements.size()];
        for (std::uint32_t seat = 0; seat < kSeats; seat += 2) team.move(seat, next[seat]);
        team.enter(2);
        check_sums(team, calls, results);
    }
}
