// SPDX-License-Identifier: Apache-2.0
// Everything at once, with delays at every point and lock, by chance: a seed says what happens, and where
// threads are held up.
//
//   test_schedules [SECONDS [SEED [PATIENCE]]]    seeds one after the other, for that long
//
// Who waits for so many seconds, PATIENCE, is stuck. TRAINMOVER_SCHEDULES_S says SECONDS too.
//
// Processes are threads with an endpoint each. In every epoch each of them makes calls and exchanges
// messages in two groups, and makes ready for the next epoch meanwhile. Half of the epochs end in the
// middle: a seat aborts, closes a group, is closed as a whole, or is left behind, still calling, by the
// others, who have somebody else in its seat; such a seat may stand still, as if it was stopped, until they
// are in the middle of the next epoch. Nobody waits for others to switch over before it begins. In some
// epochs so little is said that nothing but a call can end a wait. What must hold: who gets a result gets that result, bit by
// bit; who does not is told so; nobody waits for ever; an epoch that nobody disturbs works; and when all
// groups are closed no memory is held any more.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <map>
#include <random>
#include <span>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "check.hpp"
#include "collectives/reduce.hpp"
#include "team.hpp"

namespace {

using namespace tmc;
using Memory = std::vector<std::byte>;

constexpr std::uint32_t kGroups = 2;
std::int64_t patience_ns = 120 * kSecond;  // Longer than any round.
constexpr std::array<DType, 3> kTypes{DType::f32, DType::bf16, DType::i64};

class Chance {
public:
    explicit Chance(std::uint64_t seed) : random_(seed) {}
    std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    template <class Choices>
    auto of(const Choices& choices) {
        return *(std::begin(choices) + below(std::size(choices)));
    }

private:
    std::mt19937_64 random_;
};

struct Act {
    Call call;
    std::size_t offset = 0;  // of the inputs, in bytes
    bool background = false;

    std::size_t bytes() const { return call.count * size_of(call.dtype); }
};

struct Note {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t tag = 0;
    std::size_t bytes = 0;
    std::size_t offset = 0;
    bool from_anybody = false;
};

/// at_once    notes that are begun before any of them is waited for
/// readers_us who gets notes begins so much later
struct Script {
    std::vector<Act> acts;
    std::vector<Note> notes;
    std::size_t at_once = 1000;
    std::uint32_t readers_us = 0;
};

Script script_of(Chance& chance, std::uint32_t seats) {
    constexpr std::array counts{0, 1, 37, 1500, 9000, 60'000};
    constexpr std::array sizes{0, 10, 5000, 70'000, 1'500'000};
    Script script;
    for (std::uint32_t i = 0; i < 5; ++i) {
        const auto kind = static_cast<Kind>(chance.below(static_cast<int>(Kind::barrier) + 1));
        // Now and then more than a stream's window.
        const auto count = static_cast<std::uint64_t>(chance.one_in(16) ? 600'000 : chance.of(counts));
        const auto root = static_cast<std::uint32_t>(chance.below(seats));
        script.acts.push_back({{kind, chance.of(kTypes), Op::sum, root, count}, chance.below(100) * 8,
                               chance.one_in(2)});
    }
    for (std::uint32_t i = 0; i < 6; ++i) {
        const auto from = static_cast<std::uint32_t>(chance.below(seats));
        const auto to = static_cast<std::uint32_t>((from + 1 + chance.below(seats - 1)) % seats);
        const bool from_anybody = chance.one_in(4);
        // What may come from anybody has a tag of its own, so that it is known what comes.
        const auto tag = from_anybody ? 100 + i : i % 2;
        script.notes.push_back({from, to, tag, static_cast<std::size_t>(chance.of(sizes)),
                                chance.below(100) * 8, from_anybody});
    }
    return script;
}

/// So little that nothing but a call ends a wait: one operation, or turns of two messages, this way and that.
/// Or more small messages than may be on their way.
Script few_words(Chance& chance, std::uint32_t seats, bool any) {
    auto script = script_of(chance, seats);
    script.acts.resize(any && chance.one_in(3) ? 1 : 0);
    script.notes.clear();
    if (!any || !script.acts.empty()) return script;
    const auto from = static_cast<std::uint32_t>(chance.below(seats));
    const auto to = static_cast<std::uint32_t>((from + 1 + chance.below(seats - 1)) % seats);
    if (chance.one_in(4)) {
        script.notes.assign(100, {from, to, 0, 15'000, 0, false});
        script.readers_us = 20'000;
        return script;
    }
    constexpr std::array sizes{32, 300'000, 1'500'000, 4'500'000};
    script.at_once = 2;
    for (int turn = 0; turn < 8; ++turn) {
        const auto [a, b] = turn % 2 == 0 ? std::pair{from, to} : std::pair{to, from};
        script.notes.push_back({a, b, 0, static_cast<std::size_t>(chance.of(sizes)), 0, false});
        script.notes.push_back({a, b, 0, 32, 0, false});
    }
    return script;
}

/// What a seat has for another one, any bits.
ConstBytes input(std::uint32_t seat, std::uint32_t part, std::size_t offset) {
    static const auto words = [] {
        std::mt19937_64 random(1);
        std::vector<std::uint64_t> all(700'000);
        for (auto& word : all) word = random();
        return all;
    }();
    return reinterpret_cast<ConstBytes>(words.data() + (seat * 8 + part) * 1000) + offset;
}

Memory copied(ConstBytes from, std::size_t bytes) { return {from, from + bytes}; }

/// The memory of one seat in one call, and what must be in it afterwards.
class Part {
public:
    Part(const Act& act, std::uint32_t seat, std::uint32_t size) : act_(act), seat_(seat), size_(size) {
        const auto bytes = act.bytes();
        for (std::uint32_t other = 0; other < size; ++other) {
            inputs_.push_back(input(seat, other, act.offset));
            blocks_.emplace_back(bytes);
            counts_.push_back(act.call.count);
        }
        for (auto& block : blocks_) outputs_.push_back(block.data());
        data_ = copied(inputs_[0], bytes);
    }

    void call(Session& s) {
        const auto& [kind, dtype, op, root, count] = act_.call;
        switch (kind) {
            case Kind::all_reduce: return reduce_to(s, data_.data(), count, dtype, op, kEverywhere);
            case Kind::reduce: return reduce_to(s, data_.data(), count, dtype, op, static_cast<int>(root));
            case Kind::broadcast: return broadcast(s, data_.data(), count, dtype, root);
            case Kind::all_gather: return all_gather(s, inputs_[0], outputs_, count, dtype);
            case Kind::reduce_scatter: return reduce_scatter(s, inputs_, data_.data(), count, dtype, op);
            case Kind::all_to_all: return all_to_all(s, inputs_, counts_, outputs_, counts_, dtype);
            case Kind::gather: return gather(s, inputs_[0], outputs_, count, dtype, root);
            case Kind::scatter: return scatter(s, inputs_, data_.data(), count, dtype, root);
            default: return barrier(s);
        }
    }

    void check() const {
        const auto& call = act_.call;
        const auto at = act_.offset;
        switch (call.kind) {
            case Kind::all_reduce: return same(data_, summed(0).data());
            case Kind::reduce: return call.root == seat_ ? same(data_, summed(0).data()) : void();
            case Kind::broadcast: return same(data_, input(call.root, 0, at));
            case Kind::reduce_scatter: return same(data_, summed(seat_).data());
            case Kind::scatter: return same(data_, input(call.root, seat_, at));
            case Kind::gather:
                if (call.root != seat_) return;
                [[fallthrough]];
            case Kind::all_gather:
                for (std::uint32_t seat = 0; seat < size_; ++seat) same(blocks_[seat], input(seat, 0, at));
                return;
            case Kind::all_to_all:
                for (std::uint32_t seat = 0; seat < size_; ++seat) same(blocks_[seat], input(seat, seat_, at));
                return;
            default: return;
        }
    }

private:
    Memory summed(std::uint32_t part) const {
        std::vector<const void*> all;
        for (std::uint32_t seat = 0; seat < size_; ++seat) all.push_back(input(seat, part, act_.offset));
        Memory result(act_.bytes() + 1);
        reduce(all, result.data(), act_.call.count, act_.call.dtype, act_.call.op, size_);
        return result;
    }
    void same(const Memory& data, ConstBytes right) const {
        CHECK(data.empty() || std::memcmp(data.data(), right, data.size()) == 0, "seat %u has wrong bits: %s",
              seat_, described(packed(act_.call)).c_str());
    }

    const Act act_;
    const std::uint32_t seat_;
    const std::uint32_t size_;
    std::vector<ConstBytes> inputs_;
    std::vector<std::uint64_t> counts_;
    std::vector<Memory> blocks_;
    std::vector<Bytes> outputs_;
    Memory data_;
};

/// One process: an endpoint, and a seat in each group.
struct Process {
    Process(char host, std::uint32_t seat_, std::uint32_t size_)
        : seat(seat_),
          size(size_),
          endpoint(Endpoint::open(Token(32, std::byte{7}), std::string(1, host), "127.0.0.1")) {
        for (std::uint32_t g = 0; g < kGroups; ++g) sit_down(g);
    }
    ~Process() {
        for (const auto& group : groups) group->close();
        endpoint->close();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void sit_down(std::uint32_t g) {
        if (groups.size() <= g) groups.resize(g + 1);
        groups[g] = endpoint->group("group " + std::to_string(g), seat, size);
        groups[g]->set_timeout(patience_ns);
    }

    const std::uint32_t seat;
    const std::uint32_t size;
    const std::shared_ptr<Endpoint> endpoint;
    std::vector<std::shared_ptr<Group>> groups;
};

/// Threads that are joined at the end of their scope.
class Threads {
public:
    ~Threads() { join(); }
    void add(std::function<void()> body) { all_.emplace_back(std::move(body)); }
    void join() {
        for (auto& thread : all_) thread.join();
        all_.clear();
    }

private:
    std::vector<std::thread> all_;
};

/// Whether the call was carried out. It must be, in an epoch that nobody disturbs.
bool done(bool calm, const std::function<void()>& call) {
    try {
        call();
        return true;
    } catch (const Failure& failure) {
        const auto why = failure.trouble().why;
        CHECK(!calm, "nobody disturbed it: %s", failure.what());
        CHECK(why == Why::aborted || why == Why::peer_lost || why == Why::refused, "%s", failure.what());
        return false;
    }
}

void wait_for(Group& group, const std::shared_ptr<Ticket>& ticket, bool message) {
    CHECK(message ? group.wait_for_message(*ticket, patience_ns) : group.wait(ticket, patience_ns),
          "it waits for ever");
    if (const auto trouble = ticket->trouble()) throw Failure(trouble);
}

/// Calls in the background overlap with the next one.
void make_calls(Group& group, const Script& script, std::uint32_t seat, std::uint32_t size, bool calm) {
    std::vector<std::pair<std::unique_ptr<Part>, std::shared_ptr<Ticket>>> made;
    for (const auto& act : script.acts) {
        auto part = std::make_unique<Part>(act, seat, size);
        std::shared_ptr<Ticket> ticket;
        const bool went = done(calm, [&] {
            ticket = group.submit([raw = part.get()](Session& s) { raw->call(s); }, act.background);
        });
        if (!went) break;
        if (ticket == nullptr) part->check();
        made.emplace_back(std::move(part), std::move(ticket));
    }
    for (const auto& [part, ticket] : made)
        if (ticket != nullptr && done(calm, [&, t = ticket] { wait_for(group, t, false); })) part->check();
}

/// False: there will be no more.
bool exchange_some(Group& group, std::span<const Note> notes, std::uint32_t seat, bool calm) {
    struct Sent {
        const Note* note;
        Memory data;
        std::shared_ptr<Ticket> ticket;
    };
    std::vector<Sent> all;
    all.reserve(notes.size());
    bool good = true;
    for (const auto& note : notes) {
        if (note.from != seat && note.to != seat) continue;
        const bool sends = note.from == seat;
        all.push_back({&note, sends ? copied(input(seat, 0, note.offset), note.bytes) : Memory(note.bytes), {}});
        auto& last = all.back();
        const auto from = note.from_anybody ? Mail::kAnybody : static_cast<int>(note.from);
        good = done(calm, [&] {
            last.ticket = sends ? group.send(last.data.data(), note.bytes, DType::u8, note.to, note.tag)
                                : group.receive(last.data.data(), note.bytes, DType::u8, from, note.tag);
        });
        if (!good) break;
    }
    bool turned_away = false;
    for (const auto& sent : all) {
        if (sent.ticket == nullptr || !done(calm, [&] { wait_for(group, sent.ticket, true); })) {
            good = false;
            turned_away |= sent.note->to == seat && sent.note->from_anybody;
            continue;
        }
        const auto* right = input(sent.note->from, 0, sent.note->offset);
        CHECK(sent.data.empty() || std::memcmp(sent.data.data(), right, sent.data.size()) == 0,
              "a message of %zu bytes to seat %u is wrong", sent.data.size(), sent.note->to);
    }
    // Its sender may be there, and has to hear that nobody will take it.
    if (turned_away) group.abort("a test");
    return good;
}

void exchange_notes(Group& group, const Script& script, std::uint32_t seat, bool calm) {
    const std::span notes(script.notes);
    const bool reads = !notes.empty() && notes[0].to == seat;
    if (reads) std::this_thread::sleep_for(std::chrono::microseconds(script.readers_us));
    for (std::size_t at = 0; at < notes.size(); at += script.at_once)
        if (!exchange_some(group, notes.subspan(at, std::min(script.at_once, notes.size() - at)), seat, calm)) return;
}

/// One that leaves in good order ends no wait for anybody, as long as others are there: who waits for what
/// it has not sent must say so.
void name_the_sender(Script& script, std::uint32_t seat) {
    for (auto& note : script.notes) note.from_anybody = note.from_anybody && note.from != seat;
}

enum class End { calm, abort, close_group, close_process, leave_behind };

class Play {
public:
    explicit Play(std::uint64_t seed) : chance_(seed) {
        constexpr std::array most_us{30, 200, 1500};
        delay_points(seed, static_cast<std::uint32_t>(chance_.of(most_us)));
        const auto size = 2 + chance_.below(4);
        for (std::uint32_t seat = 0; seat < size; ++seat) hosts_ += host();
        for (std::uint32_t seat = 0; seat < size; ++seat) seats_.push_back(come(seat));
        std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed), hosts_.c_str());
    }
    ~Play() { delay_points(0, 0); }

    void run() {
        enter();
        for (int i = 0; i < 4; ++i) epoch();
        if (chance_.one_in(2)) switch_over();
        await_stray();
        for (auto& process : seats_) leave(std::move(process));
        close_all();
        close_beside_switchovers();
    }

private:
    using Cards = std::vector<std::vector<std::byte>>;
    /// Who was left behind, in the epoch after that one.
    struct Stray {
        std::unique_ptr<Process> process;  // null until somebody else sits in its seat
        std::atomic<bool> still{false};
        Threads threads;
    };

    char host() { return "aabc"[chance_.below(4)]; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(hosts_.size()); }
    std::unique_ptr<Process> come(std::uint32_t seat) {
        return std::make_unique<Process>(hosts_[seat], seat, size());
    }
    void leave(std::unique_ptr<Process> process) { gone_.push_back(std::move(process)); }

    Cards cards(std::uint32_t g, const std::vector<Process*>& members) {
        Cards all;
        for (auto* process : members) all.push_back(process->groups[g]->card());
        return all;
    }
    std::vector<Process*> members() {
        std::vector<Process*> all;
        for (const auto& process : seats_) all.push_back(process.get());
        return all;
    }

    /// Phase 1 of all members at once, in threads of the caller.
    void prepare(Threads& threads, std::uint64_t epoch, const std::vector<Process*>& members) {
        for (std::uint32_t g = 0; g < kGroups; ++g) {
            const auto shared = std::make_shared<Cards>(cards(g, members));
            for (auto* process : members)
                threads.add([=] { process->groups[g]->prepare(epoch, *shared, patience_ns); });
        }
    }

    /// Now and then an epoch that was prepared does not come.
    void enter() {
        if (chance_.one_in(4)) {
            Threads threads;
            prepare(threads, ++epoch_, members());
            threads.join();
            for (auto* process : members())
                for (const auto& group : process->groups) group->discard(epoch_);
        }
        Threads threads;
        prepare(threads, ++epoch_, members());
    }

    void switch_over() {
        Threads threads;
        for (auto* process : members())
            threads.add([this, process] {
                for (const auto& group : process->groups) group->switchover(epoch_);
            });
    }

    void epoch() {
        const auto end = chance_.one_in(2) ? End::calm : static_cast<End>(1 + chance_.below(4));
        const auto victim = static_cast<std::uint32_t>(chance_.below(size()));
        const auto group = static_cast<std::uint32_t>(chance_.below(kGroups));
        const auto delay = std::chrono::microseconds(chance_.below(chance_.one_in(2) ? 500 : 20'000));
        std::vector<Script> scripts;
        const bool sparse = chance_.one_in(4);
        for (std::uint32_t g = 0; g < kGroups; ++g)
            scripts.push_back(sparse ? few_words(chance_, size(), g == 0) : script_of(chance_, size()));
        if (size() > 2 && (end == End::close_group || end == End::close_process))
            for (auto& script : scripts) name_the_sender(script, victim);
        auto left_behind = std::make_unique<Stray>();
        std::unique_ptr<Process> newcomer;
        {
            Threads threads;
            const auto all_are_in = std::make_shared<std::latch>(size());
            for (auto* process : members()) {
                const bool stays = process->seat == victim && end == End::leave_behind;
                begin(stays ? left_behind->threads : threads, *process, scripts, end == End::calm, all_are_in,
                      stays ? &left_behind->still : nullptr);
            }
            all_are_in->wait();
            if (end == End::calm)
                newcomer = get_ready(threads, victim);
            else
                std::this_thread::sleep_for(delay);
            if (stray_ != nullptr) stray_->still = false;
            left_behind->still = end == End::leave_behind && !chance_.one_in(4);
            disturb(end, victim, group);
        }
        await_stray();
        if (end == End::calm) {
            if (newcomer != nullptr) replace(victim, std::move(newcomer));
            return leave_some();
        }
        if (end == End::leave_behind) stray_ = std::move(left_behind);
        go_on_after(end, victim, group);
        leave_some();
    }

    /// The epoch of one process: it switches over, says that it has, and plays.
    void begin(Threads& threads, Process& process, const std::vector<Script>& scripts, bool calm,
               const std::shared_ptr<std::latch>& all_are_in, const std::atomic<bool>* still) const {
        threads.add([=, &process, epoch = epoch_] {
            for (const auto& group : process.groups) group->switchover(epoch);
            all_are_in->count_down();
            Threads plays;
            for (std::uint32_t g = 0; g < kGroups; ++g) {
                plays.add([=, &process, &script = scripts[g]] {
                    stand_still_while(still);
                    make_calls(*process.groups[g], script, process.seat, process.size, calm);
                });
                plays.add([=, &process, &script = scripts[g]] {
                    stand_still_while(still);
                    exchange_notes(*process.groups[g], script, process.seat, calm);
                });
            }
        });
    }

    /// Who was left behind goes on, and ends.
    void await_stray() {
        if (stray_ == nullptr) return;
        stray_->still = false;
        stray_->threads.join();
        leave(std::move(stray_->process));
        stray_.reset();
    }

    /// The next epoch is prepared while this one works: with the same members, or with a new one.
    std::unique_ptr<Process> get_ready(Threads& threads, std::uint32_t victim) {
        std::unique_ptr<Process> newcomer;
        auto all = members();
        if (chance_.one_in(2)) {
            hosts_[victim] = host();
            newcomer = come(victim);
            all[victim] = newcomer.get();
        }
        prepare(threads, ++epoch_, all);
        return newcomer;
    }

    void replace(std::uint32_t seat, std::unique_ptr<Process> newcomer) {
        auto former = std::exchange(seats_[seat], std::move(newcomer));
        if (stray_ != nullptr && stray_->process == nullptr)
            stray_->process = std::move(former);
        else
            leave(std::move(former));
    }

    void disturb(End end, std::uint32_t victim, std::uint32_t group) {
        auto& process = *seats_[victim];
        if (end == End::abort) process.groups[group]->abort("a test");
        if (end == End::close_group) process.groups[group]->close();
        if (end == End::close_process) process.endpoint->close();
        // Those who wait for one that has ended get out by themselves, the others when they are through.
        const bool all = end == End::leave_behind || chance_.one_in(2);
        if (end != End::calm && all) abort_all(victim);
    }

    void abort_all(std::uint32_t but) {
        Threads threads;
        for (auto* process : members())
            for (std::uint32_t g = 0; g < kGroups && process->seat != but; ++g)
                threads.add([=] { process->groups[g]->abort("the next epoch comes"); });
    }

    void go_on_after(End end, std::uint32_t victim, std::uint32_t group) {
        if (end == End::close_process || end == End::leave_behind) {
            hosts_[victim] = host();
            replace(victim, come(victim));
        }
        if (end == End::close_group && chance_.one_in(2)) close_meanwhile(victim, group);
        if (end == End::close_group)
            for (auto* process : members()) {
                process->groups[group]->close();
                process->sit_down(group);
            }
        enter();
    }

    /// A group is closed in the same moment in which its next epoch begins.
    void close_meanwhile(std::uint32_t victim, std::uint32_t group) {
        for (auto* process : members())
            for (auto& one : process->groups) one->abort("the next epoch comes");
        for (auto* process : members()) {
            process->groups[group]->close();
            process->sit_down(group);
        }
        Threads threads;
        prepare(threads, ++epoch_, members());
        threads.join();
        threads.add([=, this] { seats_[victim]->groups[group]->close(); });
        for (auto* process : members())
            threads.add([=, this] {
                for (const auto& one : process->groups)
                    done(process->seat != victim, [&] { one->switchover(epoch_); });
            });
    }

    /// A group has no epoch any more when it is closed, whatever it was in the middle of.
    void close_beside_switchovers() {
        auto process = std::make_unique<Process>('a', 0, 1);
        for (int i = 0; i < 10; ++i) {
            const auto group = process->groups[0];
            group->prepare(1, {group->card()}, patience_ns);
            {
                Threads threads;
                threads.add([=] { group->close(); });
                threads.add([=] { done(false, [&] { group->switchover(1); }); });
            }
            CHECK(group->epoch() < 0, "a closed group is in an epoch");
            process->sit_down(0);
        }
    }

    /// Who has left goes at once, or stands about for a while.
    void leave_some() {
        std::erase_if(gone_, [&](const auto&) { return chance_.one_in(2); });
    }

    static bool closed(const Process& process) {
        try {
            process.endpoint->check();
            return false;
        } catch (const Failure&) {
            return true;
        }
    }

    /// All groups at once; then nobody's memory is in use any more.
    void close_all() {
        {
            Threads threads;
            for (const auto& process : gone_)
                for (const auto& group : process->groups) threads.add([=] { group->close(); });
        }
        const auto deadline = now_ns() + patience_ns;
        for (const auto& process : gone_)
            while (!closed(*process) && process->endpoint->facts().arena_bytes > 0) {
                CHECK(now_ns() < deadline, "memory of a closed group is held");
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        gone_.clear();
    }

    Chance chance_;
    std::string hosts_;
    std::vector<std::unique_ptr<Process>> seats_;
    std::vector<std::unique_ptr<Process>> gone_;
    std::unique_ptr<Stray> stray_;
    std::uint64_t epoch_ = 0;
};

/// Ends the process if a round takes so long that somebody must be stuck.
class Watch {
public:
    Watch() : thread_([this] { look(); }) {}
    ~Watch() {
        over_ = true;
        thread_.join();
    }
    void begin() { begun_ns_ = now_ns(); }

private:
    void look() {
        while (!over_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            CHECK(now_ns() - begun_ns_ < patience_ns, "somebody waits for ever");
        }
    }

    std::atomic<bool> over_{false};
    std::atomic<std::int64_t> begun_ns_{now_ns()};
    std::thread thread_;
};

}  // namespace

int main(int count, char** words) {
    const char* told = std::getenv("TRAINMOVER_SCHEDULES_S");
    const auto seconds = std::atof(count > 1 ? words[1] : told != nullptr ? told : "5");
    auto seed = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1;
    if (count > 3) patience_ns = std::atoll(words[3]) * kSecond;
    const auto until = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    Watch watch;
    std::uint64_t rounds = 0;
    for (; rounds == 0 || now_ns() < until; ++rounds, ++seed) {
        watch.begin();
        Play(seed).run();
    }
    std::printf("%llu seeds\n", static_cast<unsigned long long>(rounds));
}
