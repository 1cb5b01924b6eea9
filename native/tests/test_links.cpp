// SPDX-License-Identifier: Apache-2.0
// Links that are opened when they are needed: which are there from the start, that the others come by
// whatever way they are first used, and that whoever waits hears of every end, with a link or without.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "check.hpp"
#include "session/topology.hpp"
#include "team.hpp"

namespace {

using namespace tmc;

constexpr std::uint32_t kSeats = 20;  // More than are all linked from the start.
const std::string kApart = "abcdefghijklmnopqrst";
const std::string kPairs = "aabbccddeeffgghhiijj";

View view_of(const std::vector<std::string>& hosts, std::uint32_t seat) {
    View view;
    view.seat = seat;
    for (const auto& host : hosts) {
        view.cards.emplace_back();
        view.cards.back().host = host;
    }
    return view;
}

/// Both ends of a link know it, a seat knows its neighbours, everybody reaches everybody, and it is few.
void what_is_known_is_known_on_both_sides() {
    std::mt19937 random(3);
    for (const std::uint32_t size : {1U, 2U, 16U, 17U, 40U, 65U, 200U})
        for (const std::uint32_t per_host : {1U, 3U, 16U, 200U}) {
            std::vector<std::string> hosts;
            for (std::uint32_t seat = 0; seat < size; ++seat) hosts.push_back(std::to_string(seat / per_host));
            if (size % 2 == 1) std::shuffle(hosts.begin(), hosts.end(), random);
            std::vector<std::vector<std::uint32_t>> known;
            auto view = view_of(hosts, 0);
            for (std::uint32_t seat = 0; seat < size; ++seat) {
                view.seat = seat;
                const Topology topology(view);
                known.push_back(topology.known());
                for (const auto other : topology.neighbours)
                    CHECK(std::count(known[seat].begin(), known[seat].end(), other) == 1);
                CHECK(size > kMeetingSeats || known[seat].size() == size - 1);
                CHECK(known[seat].size() < topology.neighbours.size() + 60);
            }
            std::vector<bool> reached(size);
            std::vector<std::uint32_t> next{0};
            while (!next.empty()) {
                const auto seat = next.back();
                next.pop_back();
                if (reached[seat]) continue;
                reached[seat] = true;
                for (const auto other : known[seat]) {
                    CHECK(other != seat);
                    CHECK(std::count(known[other].begin(), known[other].end(), seat) == 1,
                          "%u knows %u", seat, other);
                    next.push_back(other);
                }
            }
            CHECK(std::count(reached.begin(), reached.end(), true) == size);
        }
}

/// The most that anybody keeps, counted one by one.
void who_keeps_most_is_known() {
    std::mt19937 random(4);
    for (int turn = 0; turn < 200; ++turn) {
        std::vector<std::string> hosts;
        const auto count = 2 + random() % 7;
        for (std::size_t seat = 0; seat < 3 + random() % 30; ++seat)
            hosts.push_back(std::to_string(random() % count));
        const Topology t(view_of(hosts, 0));
        std::size_t most = 0;
        for (std::size_t host = 0; host < t.hosts.size(); ++host) {
            std::vector<std::size_t> shares(t.size, 0);
            for (std::uint32_t seat = 0; seat < t.size; ++seat)
                if (t.host_of[seat] != host) most = std::max(most, ++shares[t.keeper(seat, host)]);
        }
        CHECK(t.kept_most == most, "%zu instead of %zu", t.kept_most, most);
        std::size_t kept = 0;
        for (const auto& there : t.kept) kept += there.size();
        CHECK(kept == t.distant.size());
    }
}

std::size_t open_links(Rank& rank) { return rank.endpoint->links().size(); }

std::size_t known_links(const std::string& hosts, std::uint32_t seat) {
    std::vector<std::string> names;
    for (const char host : hosts) names.emplace_back(1, host);
    return Topology(view_of(names, seat)).known().size();
}

void sum(Team& team, std::size_t count) {
    team.each([&](Rank& rank, std::uint32_t seat) {
        std::vector<float> data(count, static_cast<float>(seat));
        all_reduce(rank, data);
        for (const float value : data) CHECK(value == kSeats * (kSeats - 1) / 2);
    });
}

/// Everybody gives everybody something.
void scatter_all(Rank& rank, std::uint32_t seat) {
    std::vector<float> data(kSeats, static_cast<float>(seat));
    float result = 0;
    std::vector<ConstBytes> inputs;
    for (const auto& value : data) inputs.push_back(reinterpret_cast<ConstBytes>(&value));
    rank.group->submit(
        [&](Session& s) {
            reduce_scatter(s, inputs, reinterpret_cast<Bytes>(&result), 1, DType::f32, Op::sum);
        },
        false);
    CHECK(result == kSeats * (kSeats - 1) / 2);
}

void no_link_was_lost(Team& team) {
    team.each([](Rank& rank, std::uint32_t) {
        const auto facts = rank.endpoint->facts();
        CHECK(facts.links_closed == 0, "%s", facts.last_close_reason.c_str());
        CHECK(facts.links_opened == open_links(rank));
    });
}

void only_known_links_are_there_from_the_start(const std::string& hosts) {
    Team team(hosts);
    team.enter(1);
    const auto as_known = [&] {
        for (std::uint32_t seat = 0; seat < kSeats; ++seat)
            CHECK(open_links(team[seat]) == known_links(hosts, seat), "seat %u: %zu", seat,
                  open_links(team[seat]));
    };
    as_known();
    for (int i = 0; i < 3; ++i) sum(team, 100);
    as_known();
    team.each(scatter_all);
    for (std::uint32_t seat = 0; seat < kSeats; ++seat) CHECK(open_links(team[seat]) == kSeats - 1);
    sum(team, 400'000);
    no_link_was_lost(team);
}

/// Who takes a seat over has links to all with whom that seat had used one, before the epoch begins.
void a_newcomer_finds_the_links_that_its_seat_had() {
    Team team(kApart);
    team.enter(1);
    team.each(scatter_all);
    const auto stale = team.replace(13);
    team.enter(2);
    for (std::uint32_t seat = 0; seat < kSeats; ++seat) {
        CHECK(seat == 13 || (team.switched[seat].opened == 1 && team.switched[seat].kept == kSeats - 2));
        CHECK(open_links(team[seat]) == (seat == 13 ? kSeats - 1 : kSeats), "seat %u", seat);
    }
    team.each(scatter_all);
    for (std::uint32_t seat = 0; seat < kSeats; ++seat)
        CHECK(open_links(team[seat]) == (seat == 13 ? kSeats - 1 : kSeats));
}

struct Parcel {
    std::shared_ptr<Group> group;
    std::vector<float> data;
    std::shared_ptr<Ticket> ticket;
};

Parcel receive(Rank& rank, int from, std::uint32_t tag, std::size_t count = 1) {
    Parcel parcel{rank.group, std::vector<float>(count), nullptr};
    parcel.ticket = rank.group->receive(reinterpret_cast<Bytes>(parcel.data.data()), count, DType::f32, from, tag);
    return parcel;
}

Parcel send(Rank& rank, std::uint32_t to, std::uint32_t tag, float value, std::size_t count = 1) {
    Parcel parcel{rank.group, std::vector<float>(count, value), nullptr};
    parcel.ticket = rank.group->send(reinterpret_cast<ConstBytes>(parcel.data.data()), count, DType::f32, to, tag);
    return parcel;
}

Trouble end_of(const Parcel& parcel) {
    CHECK(parcel.group->wait_for_message(*parcel.ticket, 60 * kSecond), "it waits for ever");
    return parcel.ticket->trouble();
}

/// All pairs at once, so that most of them dial each other at the same time; small and large.
void messages_open_links(std::uint64_t seed) {
    delay_points(seed, 300);
    Team team(kApart);
    team.enter(1);
    team.each([&](Rank& rank, std::uint32_t seat) {
        std::vector<Parcel> come(kSeats), gone;
        std::vector<std::uint32_t> others;
        for (std::uint32_t other = 0; other < kSeats; ++other)
            if (other != seat) others.push_back(other);
        std::mt19937 random(static_cast<std::uint32_t>(seed) + seat);
        std::shuffle(others.begin(), others.end(), random);
        for (const auto other : others) {
            const auto size = [](std::uint32_t from) { return from % 2 == 0 ? 3U : 60'000U; };
            if ((seat + seed) % 3 != 0) come[other] = receive(rank, static_cast<int>(other), 1, size(other));
            gone.push_back(send(rank, other, 1, static_cast<float>(seat), size(seat)));
            if (come[other].ticket == nullptr) come[other] = receive(rank, static_cast<int>(other), 1, size(other));
        }
        for (const auto other : others) {
            CHECK(!end_of(come[other]), "%s", come[other].ticket->trouble().text.c_str());
            for (const float value : come[other].data) CHECK(value == static_cast<float>(other));
        }
        for (const auto& parcel : gone) CHECK(!end_of(parcel));
    });
    delay_points(0, 0);
    for (std::uint32_t seat = 0; seat < kSeats; ++seat) CHECK(open_links(team[seat]) == kSeats - 1);
    no_link_was_lost(team);
}

/// A message for who receives from anybody: he knows of no link to open, so all of them are.
void anybody_is_everybody() {
    Team team(kApart);
    team.enter(1);
    const auto come = receive(team[6], Mail::kAnybody, 4);
    const auto gone = send(team[19], 6, 4, 8.0F);
    CHECK(!end_of(gone) && !end_of(come) && come.data[0] == 8.0F);
    const auto never = receive(team[6], Mail::kAnybody, 4);
    team[19].group->abort("a test");
    CHECK(end_of(never).why == Why::peer_lost);
}

/// Nor does it matter whether he begins to wait before the others have left, or afterwards.
void nobody_is_left_to_send(bool begins_before, bool orderly) {
    Team team("abc");
    team.enter(1);
    const auto first = send(team[2], 0, 4, 8.0F);
    CHECK(!end_of(first));
    Parcel before;
    if (begins_before) before = receive(team[0], Mail::kAnybody, 5);
    for (const std::uint32_t seat : {1U, 2U})
        orderly ? team[seat].group->close() : team[seat].group->abort("a test");
    if (!begins_before) {
        for (const std::uint32_t seat : {1U, 2U})  // Once these are over it has heard of both.
            CHECK(end_of(receive(team[0], static_cast<int>(seat), 6)).why == Why::peer_lost);
        const auto kept = receive(team[0], Mail::kAnybody, 4);
        CHECK(!end_of(kept) && kept.data[0] == 8.0F);
        before = receive(team[0], Mail::kAnybody, 5);
    }
    CHECK(end_of(before).why == Why::peer_lost);
}

constexpr std::uint32_t kEnded = 13;
constexpr std::uint32_t kWaits = 6;

/// There is no link between the two; then one has ended, and the other counts on it.
void an_end_is_heard_of_later(const std::function<void(Rank&)>& end, const char* words, bool sends) {
    Team team(kApart);
    team.enter(1);
    end(team[kEnded]);
    auto& rank = team[kWaits];
    const auto parcel = sends ? send(rank, kEnded, 1, 1.0F, 60'000) : receive(rank, kEnded, 1);
    const auto trouble = end_of(parcel);
    CHECK(trouble.why == Why::peer_lost && trouble.text.find(words) != std::string::npos, "%s",
          trouble.text.c_str());
}

/// The same in a collective: everybody gets out, whoever it is that they wait for.
void nobody_waits_for_who_has_ended(const std::function<void(Rank&)>& end, bool by_tree) {
    Team team(kApart);
    team.enter(1);
    end(team[kEnded]);
    std::atomic<int> out{0};
    team.each([&](Rank& rank, std::uint32_t seat) {
        if (seat == kEnded) return;
        rank.group->set_timeout(60 * kSecond);
        try {
            if (!by_tree) return scatter_all(rank, seat);
            std::vector<float> data(10, 1.0F);
            all_reduce(rank, data);
        } catch (const Failure& failure) {
            CHECK(failure.trouble().why == Why::peer_lost, "seat %u: %s", seat, failure.what());
            ++out;
        }
    });
    CHECK(out == kSeats - 1, "%d", out.load());
}

void a_seat_given_away_is_told_when_it_asks() {
    Team team(kApart);
    team.enter(1);
    const auto stale = team.replace(kEnded);
    team.enter(2);
    const auto come = receive(*stale, kWaits, 1);
    CHECK(end_of(come).text.find("given to another one") != std::string::npos, "%s",
          come.ticket->trouble().text.c_str());
    sum(team, 100);
}

/// What was asked for and is not there yet is left alone when the epoch ends.
void an_abort_takes_back_what_waits_for_a_link() {
    Team team(kApart);
    team.enter(1);
    for (std::uint32_t epoch = 2; epoch < 8; ++epoch) {
        delay_points(epoch, 500);
        team.each([&](Rank& rank, std::uint32_t seat) {
            if (seat % 5 == epoch % 5) return rank.group->abort("a test");
            try {
                scatter_all(rank, seat);
            } catch (const Failure& failure) {
                CHECK(failure.trouble().why == Why::peer_lost, "%s", failure.what());
            }
        });
        delay_points(0, 0);
        team.each([](Rank& rank, std::uint32_t) { rank.group->abort("a test"); });
        team.enter(epoch);
        team.each(scatter_all);
    }
    no_link_was_lost(team);
}

/// A second group of a team, by which it is known that what was said before has come.
class Beside {
public:
    explicit Beside(Team& team) : team_(team) {
        std::vector<std::vector<std::byte>> cards;
        for (std::uint32_t seat = 0; seat < team.size(); ++seat) {
            groups_.push_back(team[seat].endpoint->group("beside", seat, team.size()));
            cards.push_back(groups_.back()->card());
        }
        team.each([&](Rank&, std::uint32_t seat) {
            groups_[seat]->prepare(1, cards, 30 * kSecond);
            groups_[seat]->switchover(1);
        });
    }

    /// Seat 0 has heard all that this seat said until now.
    void hear(std::uint32_t seat) {
        std::byte word{};
        if (groups_[seat]->epoch() < 0) return await_loss(team_[seat].endpoint->incarnation);
        const auto come = groups_[0]->receive(&word, 1, DType::u8, static_cast<int>(seat), 1);
        groups_[seat]->send(&word, 1, DType::u8, 0, 1);
        CHECK(groups_[0]->wait_for_message(*come, 60 * kSecond) && !come->trouble());
    }

private:
    void await_loss(std::uint64_t process) {
        const auto there = [&] {
            const auto links = team_[0].endpoint->links();
            return std::any_of(links.begin(), links.end(), [&](const auto& link) { return link.peer == process; });
        };
        while (there()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    Team& team_;
    std::vector<std::shared_ptr<Group>> groups_;
};

enum class Enters { before, after };

/// What a receive comes to that begins when its sender has ended: what had begun before comes to the same.
void a_wait_that_begins_after_an_end(const std::string& hosts, const std::function<void(Rank&)>& end, bool fails,
                                     Enters enters) {
    Team team(hosts);
    Beside beside(team);
    team.prepare(1);
    for (const std::uint32_t seat : {0U, 1U, 2U})
        if (seat > 0 || enters == Enters::before) team[seat].group->switchover(1);
    send(team[1], 0, 7, 3.0F);
    end(team[1]);
    beside.hear(1);
    if (enters == Enters::after) team[0].group->switchover(1);
    const auto said = receive(team[0], Mail::kAnybody, 7);
    CHECK(!end_of(said) && said.data[0] == 3.0F);
    CHECK(end_of(receive(team[0], 1, 7)).why == Why::peer_lost);
    const auto open = receive(team[0], Mail::kAnybody, 8);
    if (fails) {
        CHECK(end_of(open).why == Why::peer_lost);
        return;
    }
    CHECK(!open.ticket->done(), "it may come from another one: %s", open.ticket->trouble().text.c_str());
    send(team[2], 0, 8, 4.0F);
    CHECK(!end_of(open) && open.data[0] == 4.0F);
    const auto begun_before = receive(team[0], Mail::kAnybody, 9);
    end(team[2]);
    CHECK(end_of(begun_before).why == Why::peer_lost);
    beside.hear(2);
    CHECK(end_of(receive(team[0], Mail::kAnybody, 9)).why == Why::peer_lost);
}

/// Who is known to be gone by another way than the link may have sent something before.
void a_parcel_may_come_after_its_sender_has_gone() {
    for (const int from : {1, Mail::kAnybody}) {
        Team team("aa");
        team.enter(1);
        team[0].group->submit([](Session& s) { s.ending.lose(1, "a test"); }, false);
        const auto come = receive(team[0], from, 1);
        CHECK(!come.ticket->done(), "%s", come.ticket->trouble().text.c_str());
        send(team[1], 0, 1, 5.0F);
        team[1].group->close();
        CHECK(!end_of(come) && come.data[0] == 5.0F);
        CHECK(end_of(receive(team[0], from, 1)).why == Why::peer_lost);
    }
}

}  // namespace

int main() {
    what_is_known_is_known_on_both_sides();
    who_keeps_most_is_known();
    only_known_links_are_there_from_the_start(kApart);
    only_known_links_are_there_from_the_start(kPairs);
    a_newcomer_finds_the_links_that_its_seat_had();
    for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) messages_open_links(seed);
    anybody_is_everybody();
    for (const bool before : {true, false})
        for (const bool orderly : {true, false}) nobody_is_left_to_send(before, orderly);
    const std::vector<std::pair<std::function<void(Rank&)>, const char*>> ends{
        {[](Rank& rank) { rank.group->abort("a test"); }, "it gave up"},
        {[](Rank& rank) { rank.group->close(); }, "closed"},
        {[](Rank& rank) { rank.endpoint->close(); }, "could not be reached"},
    };
    for (const auto& [end, words] : ends)
        for (const bool way : {false, true}) {
            an_end_is_heard_of_later(end, words, way);
            nobody_waits_for_who_has_ended(end, way);
        }
    for (const char* hosts : {"abc", "aaa"})
        for (const auto enters : {Enters::before, Enters::after}) {
            a_wait_that_begins_after_an_end(hosts, ends[0].first, true, enters);
            a_wait_that_begins_after_an_end(hosts, ends[1].first, false, enters);
            a_wait_that_begins_after_an_end(hosts, ends[2].first, false, enters);
        }
    a_parcel_may_come_after_its_sender_has_gone();
    a_seat_given_away_is_told_when_it_asks();
    an_abort_takes_back_what_waits_for_a_link();
}
