// SPDX-License-Identifier: Apache-2.0
#include "endpoint/endpoint.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/sockets.hpp"
#include "endpoint/group.hpp"

namespace tmc {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{4} << 30;  // Sparse: what is not used costs nothing.
constexpr std::int64_t kCloseNs = 200'000'000;
constexpr std::size_t kBuriedMax = 65536;
constexpr auto kForever = ~std::uint64_t{0};  // As an epoch: later than any other.

}  // namespace

// Opening and closing.

std::shared_ptr<Endpoint> Endpoint::open(Token token, std::string host, const std::string& address,
                                         const std::string& folder, const std::string& libcrypto,
                                         std::size_t strangers_max) {
    std::shared_ptr<Endpoint> endpoint(
        new Endpoint(std::move(token), std::move(host), address, folder, libcrypto, strangers_max));
    endpoint->progress_ = std::make_unique<std::thread>([raw = endpoint.get()] { raw->run(); });
    endpoint->doorman_ = std::make_unique<std::thread>([raw = endpoint.get()] { raw->keep_doors(); });
    return endpoint;
}

Endpoint::Endpoint(Token token, std::string host_, const std::string& address, const std::string& folder,
                   const std::string& libcrypto, std::size_t strangers_max)
    : incarnation(fresh_number()),
      host(std::move(host_)),
      strangers_max_(strangers_max),
      token_(std::move(token)),
      libcrypto_(libcrypto.empty() ? nullptr : Libcrypto::load(libcrypto)),
      arena_(kArenaBytes),
      local_door_(folder, incarnation),
      read_buffer_(kReadBuffer) {
    std::uint16_t port = 0;
    tcp_listener_ = listen_tcp(address, port);
    address_ = (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" +
               std::to_string(port);
    unwaited_ = new_epoll();
    doors_ = new_epoll();
    bell_ = new_event_fd();
    door_bell_ = new_event_fd();
    engine_ = std::make_unique<Engine>(unwaited_, kLinks, [this](std::uint64_t id) { serve_link(id); });
    hang(unwaited_, bell_, kBell, EPOLLIN);
    hang(doors_, tcp_listener_, kTcpListener, EPOLLIN);
    hang(doors_, local_door_.fd(), kLocalListener, EPOLLIN);
    hang(doors_, door_bell_, kBell, EPOLLIN);
}

Endpoint::~Endpoint() {
    if (inherited()) {
        static_cast<void>(progress_.release());  // The threads exist in the parent only.
        static_cast<void>(doorman_.release());
        return;
    }
    close();
}

void Endpoint::not_in_child() const {
    if (inherited())
        throw Failure(Why::refused, "this process was forked from the one that holds the groups");
}

void Endpoint::check() const {
    not_in_child();
    if (closing_.load()) throw Failure(Why::aborted, "the endpoint was closed");
}

void Endpoint::close() {
    if (inherited() || closing_.exchange(true)) return;
    std::vector<std::shared_ptr<Group>> groups;
    {
        const std::lock_guard lock(mutex_);
        for (auto* group : groups_)
            if (auto alive = group->weak_from_this().lock()) groups.push_back(std::move(alive));
    }
    for (const auto& group : groups) group->close();
    std::vector<std::shared_ptr<Link>> links;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [peer, link] : links_) links.push_back(link);
    }
    for (const auto& link : links) link->opened() ? link->retire() : link->kill("this process has closed it", true);
    {
        // Closing before the peer has read would destroy what it has not read yet.
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::nanoseconds(kCloseNs), [&] { return links_.empty(); });
        links.clear();
        for (const auto& [peer, link] : links_) links.push_back(link);
    }
    for (const auto& link : links) link->kill("this process has closed it", true);
    stopping_.store(true);
    ring(bell_);
    ring(door_bell_);
    for (auto* thread : {&doorman_, &progress_}) {
        if (*thread != nullptr) (*thread)->join();
        thread->reset();
    }
    done->close();
    for (const int fd : {tcp_listener_, doors_, door_bell_, unwaited_, bell_}) close_fd(fd);
    local_door_.close();
    hellos_.clear();
    openings_.clear();
}

std::shared_ptr<Group> Endpoint::group(const std::string& name, std::uint32_t seat,
                                       std::uint32_t size) {
    check();
    auto group = std::make_shared<Group>(shared_from_this(), name, seat, size);
    const std::lock_guard lock(mutex_);
    groups_.insert(group.get());
    return group;
}

void Endpoint::forget(Group* group) {
    const std::lock_guard lock(mutex_);
    groups_.erase(group);
}

std::vector<LinkFacts> Endpoint::links() {
    not_in_child();
    const std::lock_guard lock(mutex_);
    std::vector<LinkFacts> result;
    for (const auto& [peer, link] : links_)
        if (link->opened())
            result.push_back({peer, link->mapping() != nullptr, link->opened_ns(), link->inode(),
                              link->sent(), link->received()});
    return result;
}

EndpointFacts Endpoint::facts() {
    not_in_child();
    const std::lock_guard lock(mutex_);
    auto facts = facts_;
    facts.arena_bytes = arena_.taken();
    facts.groups = groups_.size();
    const std::lock_guard left(left_mutex_);
    facts.links_refused = refused_;
    facts.last_close_reason = last_end_;
    return facts;
}

// Links come and go.

/// The link to a process, not open yet if there is none. With the mutex held.
std::shared_ptr<Link> Endpoint::link_to(std::uint64_t peer, Reach reach) {
    auto& place = links_[peer];
    if (place == nullptr || !place->alive()) place = std::make_shared<Link>(peer, std::move(reach), *this);
    return place;
}

void Endpoint::hold(View& view, const View* before) {
    const std::lock_guard lock(mutex_);
    for (std::size_t seat = 0; before != nullptr && seat < view.size(); ++seat)
        if (seat != view.seat && before->links[seat]->opened()) before->links[seat]->accounted = true;
    view.links.resize(view.size());
    for (std::size_t seat = 0; seat < view.size(); ++seat) {
        if (seat == view.seat) continue;
        const auto& card = view.cards[seat];
        const bool local = view.local(seat);
        view.links[seat] = link_to(card.incarnation, {local, local ? card.path : card.address});
        ++view.links[seat]->references;
    }
}

void Endpoint::drop(const std::vector<std::shared_ptr<Link>>& links) {
    std::vector<std::shared_ptr<Link>> unwanted;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& link : links) {
            if (link == nullptr) continue;
            if (link->references == 1) link->accounted = false;
            release(link, unwanted);
        }
    }
    for (const auto& link : unwanted) link->kill("nobody wants it any more", true);
}

/// One view fewer holds it. One that is open stays. With the mutex held.
void Endpoint::release(const std::shared_ptr<Link>& link, std::vector<std::shared_ptr<Link>>& unwanted) {
    if (--link->references > 0 || link->opened()) return;
    const auto found = links_.find(link->peer);
    if (found != links_.end() && found->second == link) links_.erase(found);
    unwanted.push_back(link);
}

void Endpoint::open(const View& view, const std::vector<std::uint32_t>& seats, Cancel& cancel,
                    std::int64_t deadline_ns) {
    for (const auto seat : seats) view.links[seat]->want();
    std::unique_lock lock(mutex_);
    for (const auto seat : seats) {
        const auto& link = view.links[seat];
        const auto failed = [&](Why why, const std::string& text) {
            return Failure({why, text, static_cast<int>(seat)});
        };
        for (;;) {
            if (cancel.cancelled()) throw failed(Why::aborted, "connecting was given up");
            check();
            if (link->trouble) throw failed(link->trouble.why, link->trouble.text);
            if (!link->alive()) throw failed(Why::peer_lost, "it was lost while others connected");
            if (link->opened()) break;
            const auto left = deadline_ns - now_ns();
            if (left <= 0) throw failed(Why::timed_out, "it did not connect in time");
            changed_.wait_for(lock, std::chrono::nanoseconds(std::min<std::int64_t>(left, 100'000'000)));
        }
    }
}

void Endpoint::interrupt(Cancel& cancel) {
    cancel.cancel();
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
}

void Endpoint::count(View& view) {
    const std::lock_guard lock(mutex_);
    for (const auto& link : view.links)
        if (link != nullptr && link->opened())
            ++(std::exchange(link->accounted, true) ? view.kept : view.opened);
}

/// Make a connection whose peer has proved itself the link to that process.
void Endpoint::admit(Peer peer, std::uint64_t from) {
    const auto id = fresh_id();
    std::shared_ptr<Link> link;
    do {  // Again if nobody wants that link any more, just now.
        std::shared_ptr<Link> older;
        {
            const std::lock_guard lock(mutex_);
            link = link_to(from, {});
            if (link->opened()) {
                older = std::move(link);
                links_.erase(from);
                link = link_to(from, {});
            }
            watched_[id] = link;
        }
        if (older != nullptr) older->kill("the same process connected again", false);
    } while (!link->open(peer, engine_->links(), id));
    {
        const std::lock_guard lock(mutex_);
        ++facts_.links_opened;
        for (const auto& [life, session] : sessions_) {
            const int seat = session->seat_of(from);
            if (seat < 0 || session->view.links[static_cast<std::size_t>(seat)] != link) continue;
            session->count_on(static_cast<std::size_t>(seat));
        }
    }
    link->push();
    changed_.notify_all();
}

void Endpoint::lost(Link& link, const std::string& why, bool orderly) {
    link.detach();
    std::vector<std::shared_ptr<Session>> bereaved;
    {
        const std::lock_guard lock(mutex_);
        const auto found = links_.find(link.peer);
        const bool current = found != links_.end() && found->second.get() == &link;
        if (link.opened()) ++facts_.links_closed;
        link.over = orderly;
        // The thread that reads the link still uses it: its last reference goes to the bell.
        std::shared_ptr<Link> kept;
        for (auto it = watched_.begin(); it != watched_.end();) {
            if (it->second.get() == &link) {
                kept = it->second;
                it = watched_.erase(it);
            } else {
                ++it;
            }
        }
        {
            const std::lock_guard left(left_mutex_);
            last_end_ = why;
            if (kept != nullptr) tasks_.push_back([kept] {});
        }
        if (current) links_.erase(found);
        for (const auto& [life, session] : sessions_) {
            const int seat = session->seat_of(link.peer);
            if (seat < 0 || session->view.links[static_cast<std::size_t>(seat)].get() != &link)
                continue;
            session->ending.lose(static_cast<std::size_t>(seat), why);
            session->mail.lose(static_cast<std::size_t>(seat), orderly, false);
            bereaved.push_back(session);
        }
        if (current && link.opened()) mourn(link.peer);
    }
    for (const auto& session : bereaved) session->ending.wake();
    changed_.notify_all();
    ring(bell_);
    if (!link.opened()) ring(door_bell_);  // Nobody wants it, so it need not be dialled.
}

// The endpoint's thread: links that nobody waits for, and what costs time that others must not spend.

void Endpoint::run() {
    pthread_setname_np(pthread_self(), "tmc-progress");
    arena_.life().hold();
    epoll_event events[2];
    while (!stopping_.load()) {
        const int n = epoll_wait(unwaited_, events, 2, -1);
        for (int i = 0; i < n; ++i)
            events[i].data.u64 == kBell ? drain_event(bell_) : engine_->serve_unwaited();
        do_tasks();
    }
    arena_.life().release();
}

void Endpoint::serve_link(std::uint64_t id) {
    std::shared_ptr<Link> link;
    {
        const std::lock_guard lock(mutex_);
        const auto found = watched_.find(id);
        if (found == watched_.end()) return;
        link = found->second;
    }
    link->pump(read_buffer_);
    link->push();
}

void Endpoint::later(std::function<void()> task) {
    {
        const std::lock_guard left(left_mutex_);
        tasks_.push_back(std::move(task));
    }
    ring(bell_);
}

void Endpoint::do_tasks() {
    std::vector<std::function<void()>> tasks;
    {
        const std::lock_guard left(left_mutex_);
        tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
}

// Groups.

int Endpoint::exchange(const std::shared_ptr<Session>& past, const std::shared_ptr<Session>& next) {
    std::vector<std::shared_ptr<Link>> replaced;
    std::vector<std::shared_ptr<Link>> unwanted;
    int unused = 0;
    {
        const std::lock_guard lock(mutex_);
        const auto life = next->view.life;
        sessions_[life] = next;
        for (std::size_t seat = 0; seat < next->view.size(); ++seat) {
            const auto& link = next->view.links[seat];
            if (link == nullptr) continue;
            const auto lose = [&](const std::string& why, bool orderly) {
                next->ending.lose(seat, why);
                next->mail.part(seat, orderly);
            };
            const auto found = early_.find({life, next->epoch(), link->peer});
            if (found != early_.end()) {
                auto& early = found->second;
                next->wires.adopt(seat, std::move(early.inflow));
                next->mail.adopt(seat, std::move(early.letters));
                if (!early.broken.empty()) lose(early.broken, early.orderly);
            }
            // One that is just dying says so to `lost`, which waits for the mutex.
            if (link->over) lose("it was lost before the epoch began", *link->over);
        }
        std::erase_if(early_, [&](const auto& entry) {
            return std::get<0>(entry.first) == life && std::get<1>(entry.first) <= next->epoch();
        });
        if (past != nullptr) {
            for (const auto& link : past->view.links) {
                if (link == nullptr) continue;
                release(link, unwanted);
                if (link->references == 0 && link->opened()) ++unused;
                if (next->seat_of(link->peer) >= 0) continue;
                link->enqueue(replaced_frame(life, next->epoch()));
                replaced.push_back(link);
            }
        }
    }
    if (past == nullptr) return 0;
    // What costs time is left to the endpoint's thread: the switchover is on the step's path.
    later([past, replaced, unwanted] {
        for (const auto& link : replaced) link->push();
        for (const auto& link : unwanted) link->kill("nobody wants it any more", true);
    });
    return unused;
}

void Endpoint::bury(const Session* last, std::uint64_t region, std::size_t bytes) {
    std::vector<std::shared_ptr<Link>> told;
    bool free = true;
    {
        const std::lock_guard lock(mutex_);
        if (last != nullptr) {
            const auto life = last->view.life;
            sessions_.erase(life);
            buried_.insert(life);
            buried_order_.push_back(life);
            if (buried_order_.size() > kBuriedMax) {
                buried_.erase(buried_order_.front());
                buried_order_.pop_front();
            }
            Grave grave{life, last->epoch(), region, bytes, {}};
            say_farewell(last->view, kForever, told);
            for (const auto& link : told) {
                const auto said = farewells_.find({life, link->peer});
                if (said == farewells_.end() || said->second < grave.epoch) grave.readers.insert(link->peer);
            }
            std::erase_if(farewells_, [&](const auto& entry) { return entry.first.first == life; });
            std::erase_if(early_, [&](const auto& entry) { return std::get<0>(entry.first) == life; });
            free = grave.readers.empty();
            if (!free) graves_.push_back(std::move(grave));
        }
    }
    for (const auto& link : told) link->push();
    if (free) free_board(region, bytes);
}

/// Nobody should read it any more. Who does so all the same sees that it is nobody's.
void Endpoint::free_board(std::uint64_t region, std::size_t bytes) noexcept {
    Board::disown(arena_.at(region));
    arena_.give(region, bytes);
}

void Endpoint::part(const View& view) {
    std::vector<std::shared_ptr<Link>> told;
    {
        const std::lock_guard lock(mutex_);
        say_farewell(view, view.epoch, told);
    }
    for (const auto& link : told) link->push();
}

/// To all neighbours; they go into `told`, which the caller pushes. With the mutex held.
void Endpoint::say_farewell(const View& view, std::uint64_t epoch, std::vector<std::shared_ptr<Link>>& told) {
    for (std::size_t seat = 0; seat < view.size(); ++seat) {
        const auto& link = view.links[seat];
        if (link == nullptr || !link->alive() || !view.local(seat)) continue;
        Outgoing frame;
        frame.header.kind = Frame::farewell;
        frame.header.group = view.life;
        frame.header.epoch = epoch;
        link->enqueue(std::move(frame));
        told.push_back(link);
    }
}

/// A neighbour reads nothing of that life any more that belongs to this epoch or an earlier one.
void Endpoint::farewell(std::uint64_t life, std::uint64_t peer, std::uint64_t epoch) {
    for (auto it = graves_.begin(); it != graves_.end(); ++it) {
        if (it->life != life) continue;
        if (epoch < it->epoch) return;
        it->readers.erase(peer);
        if (!it->readers.empty()) return;
        free_board(it->region, it->bytes);
        graves_.erase(it);
        return;
    }
    // It may be early: this process has yet to switch over to what the other has left again.
    if (buried_.contains(life)) return;
    // Of those that never come the oldest make room: at worst some memory is freed later.
    if (farewells_.size() >= kEarlyMax) farewells_.erase(farewells_.begin());
    auto& until = farewells_[{life, peer}];
    until = std::max(until, epoch);
}

/// A process reads nothing at all any more, unless it is this one that closes the link.
void Endpoint::mourn(std::uint64_t peer) {
    if (closing_.load()) return;
    std::erase_if(farewells_, [&](const auto& entry) { return entry.first.second == peer; });
    for (auto it = graves_.begin(); it != graves_.end();) {
        it->readers.erase(peer);
        if (!it->readers.empty()) {
            ++it;
            continue;
        }
        free_board(it->region, it->bytes);
        it = graves_.erase(it);
    }
}

}  // namespace tmc
