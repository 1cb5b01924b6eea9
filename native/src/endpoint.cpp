#include "endpoint.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "group.hpp"
#include "sockets.hpp"

namespace tmc {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{4} << 30;  // Sparse: what is not used costs nothing.
constexpr std::int64_t kHelloNs = 10'000'000'000;
constexpr std::int64_t kCloseNs = 200'000'000;
constexpr std::size_t kHellosMax = 512;
constexpr std::size_t kEarlyMax = 4096;
constexpr std::size_t kBuriedMax = 65536;
constexpr int kTickMs = 50;
constexpr int kDials = 3;
// Two processes that both want a link: the one with the lower number dials, the other a little later,
// in case that one does not want it.
constexpr std::int64_t kHeadStartNs = 5'000'000;
// What the other one dials instead of this one is here within that time, or this one dials again.
constexpr std::int64_t kAgainNs = 50'000'000;
// A door that has no room for one more is tried again so soon.
constexpr std::int64_t kFullNs = 1'000'000;
constexpr int kAcceptsAtOnce = 4;

constexpr std::uint64_t kTcpListener = 1;
constexpr std::uint64_t kLocalListener = 2;
constexpr std::uint64_t kBell = 3;
constexpr std::uint64_t kLinks = 4;

/// Words of a peer, which may be anything, as text.
std::string readable(const Landing& landing, std::size_t length) {
    std::string text(reinterpret_cast<const char*>(landing.own.get()), length);
    for (auto& letter : text)
        if (letter < ' ' || letter > '~') letter = '?';
    return text;
}

}  // namespace

// Opening and closing.

std::shared_ptr<Endpoint> Endpoint::open(Token token, std::string host, const std::string& address,
                                         const std::string& folder, const std::string& libcrypto) {
    std::shared_ptr<Endpoint> endpoint(
        new Endpoint(std::move(token), std::move(host), address, folder, libcrypto));
    endpoint->progress_ = std::make_unique<std::thread>([raw = endpoint.get()] { raw->run(); });
    return endpoint;
}

Endpoint::Endpoint(Token token, std::string host_, const std::string& address, const std::string& folder,
                   const std::string& libcrypto)
    : incarnation(fresh_number()),
      host(std::move(host_)),
      token_(std::move(token)),
      libcrypto_(libcrypto.empty() ? nullptr : Libcrypto::load(libcrypto)),
      arena_(kArenaBytes),
      local_door_(folder, incarnation),
      read_buffer_(kReadBuffer) {
    std::uint16_t port = 0;
    tcp_listener_ = listen_tcp(address, port);
    address_ = (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" +
               std::to_string(port);
    doors_ = epoll_create1(EPOLL_CLOEXEC);
    fork_closes(doors_);
    engine_ = std::make_unique<Engine>(doors_, kLinks, [this](std::uint64_t id) { serve_link(id); });
    bell_ = new_event_fd();
    watch(tcp_listener_, kTcpListener, EPOLLIN);
    watch(local_door_.fd(), kLocalListener, EPOLLIN);
    watch(bell_, kBell, EPOLLIN);
}

Endpoint::~Endpoint() {
    if (inherited()) {
        static_cast<void>(progress_.release());  // The thread exists in the parent only.
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
    if (progress_ != nullptr) progress_->join();
    progress_.reset();
    done->close();
    for (const int fd : {tcp_listener_, doors_, bell_}) close_fd(fd);
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
        facts_.last_close_reason = why;
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
        if (kept != nullptr) tasks_.push_back([kept] {});
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
            if (!link->alive()) {
                next->ending.lose(seat, "it was lost before the epoch began");
                continue;
            }
            const auto found = early_.find({life, next->epoch(), link->peer});
            if (found == early_.end()) continue;
            next->wires.adopt(seat, std::move(found->second.inflow));
            next->mail.adopt(seat, std::move(found->second.letters));
            if (!found->second.broken.empty()) next->ending.lose(seat, found->second.broken);
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
            Grave grave{life, region, bytes, {}};
            for (std::size_t seat = 0; seat < last->view.size(); ++seat) {
                const auto& link = last->view.links[seat];
                if (link == nullptr || !link->alive() || !last->view.local(seat)) continue;
                Outgoing frame;
                frame.header.kind = Frame::farewell;
                frame.header.group = life;
                link->enqueue(std::move(frame));
                told.push_back(link);
                if (farewells_.erase({life, link->peer}) == 0) grave.readers.insert(link->peer);
            }
            std::erase_if(farewells_, [&](const auto& entry) { return entry.first == life; });
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

/// A neighbour reads nothing of that life any more.
void Endpoint::farewell(std::uint64_t life, std::uint64_t peer) {
    for (auto it = graves_.begin(); it != graves_.end(); ++it) {
        if (it->life != life) continue;
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
    farewells_.insert({life, peer});
}

/// A process reads nothing at all any more, unless it is this one that closes the link.
void Endpoint::mourn(std::uint64_t peer) {
    if (closing_.load()) return;
    std::erase_if(farewells_, [&](const auto& entry) { return entry.second == peer; });
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

// Frames.

/// Whose frame it is: a session's, or one that waits for its session, or nobody's.
Endpoint::Addressee Endpoint::addressee(const Link& link, const Header& header) {
    const auto found = sessions_.find(header.group);
    if (found != sessions_.end()) {
        const auto& session = found->second;
        if (header.epoch < session->epoch()) return {};
        if (header.epoch == session->epoch()) {
            const int seat = session->seat_of(link.peer);
            if (seat < 0 || session->ending.stopped()) return {};
            return {session, seat, nullptr};
        }
    } else if (buried_.contains(header.group)) {
        return {};
    }
    const bool kept = header.kind == Frame::data || header.kind == Frame::letter || header.kind == Frame::broken;
    return {nullptr, -1, kept ? early({header.group, header.epoch, link.peer}) : nullptr};
}

Early* Endpoint::early(const EarlyKey& key) {
    const auto found = early_.find(key);
    if (found != early_.end()) return &found->second;
    if (early_.size() >= kEarlyMax) throw Failure(Why::peer_lost, "it talks to too many unknown groups");
    return &early_[key];
}

Landing Endpoint::arrive(Link& link, const Header& header) {
    const auto own = [&] {
        Landing landing;
        landing.own = std::make_unique<std::byte[]>(header.length + std::size_t{1});
        landing.at = landing.own.get();
        return landing;
    };
    const std::lock_guard lock(mutex_);
    switch (header.kind) {
        case Frame::data:
        case Frame::letter:
        case Frame::body: {
            const auto to = addressee(link, header);
            const auto seat = static_cast<std::size_t>(std::max(to.seat, 0));
            if (to.session != nullptr) {
                if (header.kind == Frame::data) return to.session->wires.arrive(seat, header);
                if (header.kind == Frame::letter) return to.session->mail.arrive_letter(seat, header);
                return to.session->mail.arrive_body(seat, header);
            }
            if (to.early == nullptr || header.kind == Frame::body) {
                ++facts_.frames_dropped;
                return {};
            }
            auto& held = header.kind == Frame::data ? to.early->inflow.held : to.early->letters.held;
            held += header.length;
            if (held > kWindow) throw Failure(Why::peer_lost, "it sends more than its window");
            return header.length == 0 && header.kind == Frame::letter ? Landing{} : own();
        }
        case Frame::broken:
        case Frame::replaced: return own();
        default: return {};
    }
}

void Endpoint::take_early(const Header& header, Landing& landing, Early& early) {
    if (header.kind == Frame::data && landing.own != nullptr) {
        early.inflow.pieces.push_back({std::move(landing.own), header.length, header.tag});
    } else if (header.kind == Frame::letter && (header.length == 0 || landing.own != nullptr)) {
        if (early.letters.letters.size() >= kLettersMax)
            throw Failure(Why::peer_lost, "it sends more messages than it may");
        early.letters.letters.push_back(
            {header.a, header.b, header.tag, std::move(landing.own), 0});
    } else if (header.kind == Frame::broken) {
        early.broken = "it gave up: " + readable(landing, header.length);
    }
}

std::optional<Trouble> Endpoint::take(const Header& header, Landing& landing, const Addressee& to) {
    auto& session = *to.session;
    const auto seat = static_cast<std::size_t>(to.seat);
    switch (header.kind) {
        case Frame::data: {
            auto trouble = session.wires.landed(seat, header, landing);
            session.wires.give_credit(seat);
            return trouble;
        }
        case Frame::credit: session.wires.credit(seat, header.a); return std::nullopt;
        case Frame::letter: return session.mail.landed_letter(seat, header, landing);
        case Frame::clear: session.mail.clear(seat, header.a); return std::nullopt;
        case Frame::body:
            if (landing.owner != nullptr) session.mail.landed_body(seat, header);
            return std::nullopt;
        case Frame::read: session.mail.read(seat, header.a); return std::nullopt;
        case Frame::waiting: return session.compare(seat, header.a, header.tag);
        case Frame::broken: {
            session.ending.lose(seat, "it gave up: " + readable(landing, header.length));
            session.mail.lose(seat, header.a == 1, true);
            return std::nullopt;
        }
        default: return std::nullopt;
    }
}

/// The others have gone on without this process. What they said before still counts, so a call that
/// runs may end well; none can begin. Each of them says so: what is on its way from another than the
/// `speaker` may be landing just now, and ends when that one says it.
void Endpoint::outdate(Session& session, std::uint64_t epoch, std::size_t speaker) {
    const auto text =
        "this process's seat was given to another one in epoch " + std::to_string(epoch);
    session.ending.outdate({Why::refused, text});
    for (std::size_t seat = 0; seat < session.view.size(); ++seat) {
        if (seat == session.view.seat) continue;
        session.ending.lose(seat, text);
        if (seat == speaker)
            session.mail.lose(seat, false, true);
        else
            session.mail.part(seat, false);
    }
}

/// A peer counts on this process in an epoch that is over here, and may not know: there was no link to
/// tell it by. With the mutex held.
void Endpoint::answer_late(Link& link, const Header& header) {
    if (header.kind != Frame::data && header.kind != Frame::letter && header.kind != Frame::waiting) return;
    const auto found = sessions_.find(header.group);
    if (found == sessions_.end()) {
        if (buried_.contains(header.group))
            link.enqueue(broken_frame(header.group, header.epoch, "it has closed the group", true));
        return;
    }
    auto& session = *found->second;
    const int seat = session.seat_of(link.peer);
    if (session.epoch() == header.epoch && seat >= 0) session.tell_late(static_cast<std::size_t>(seat));
    if (session.epoch() > header.epoch && seat < 0)
        link.enqueue(replaced_frame(header.group, session.epoch()));
}

void Endpoint::landed(Link& link, const Header& header, Landing landing) {
    std::optional<Trouble> trouble;
    std::shared_ptr<Session> session;
    bool answers = false;
    {
        const std::lock_guard lock(mutex_);
        if (header.kind == Frame::leaving) return;
        if (header.kind == Frame::farewell) return farewell(header.group, link.peer);
        if (header.kind == Frame::replaced) {
            const auto found = sessions_.find(header.group);
            if (found == sessions_.end() || found->second->epoch() >= header.epoch) return;
            const auto seat = found->second->seat_of(link.peer);
            if (seat < 0) return;
            session = found->second;
            outdate(*session, header.epoch, static_cast<std::size_t>(seat));
        } else {
            auto to = addressee(link, header);
            session = to.session;
            if (session != nullptr)
                trouble = take(header, landing, to);
            else if (to.early != nullptr)
                take_early(header, landing, *to.early);
            else
                answer_late(link, header);
            answers = header.kind != Frame::broken && link.wants_to_write();
        }
    }
    const bool loses = header.kind == Frame::broken || header.kind == Frame::replaced;
    if (session != nullptr && loses) session->ending.wake();
    if (answers) link.push();
    if (!trouble) return;
    // This thread reads the link, so it cannot also have it forget the session's buffers.
    later([session, reason = *trouble] {
        session->stop(reason, Tell::broken);
        session->clean();
    });
}

// The endpoint's thread.

void Endpoint::watch(int fd, std::uint64_t id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    epoll_ctl(doors_, EPOLL_CTL_ADD, fd, &event);
}

void Endpoint::later(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    ring(bell_);
}

void Endpoint::run() {
    pthread_setname_np(pthread_self(), "tmc-progress");
    arena_.life().hold();
    epoll_event events[64];
    while (!stopping_.load()) {
        const int n = epoll_wait(doors_, events, 64, patience_ms());
        for (int i = 0; i < n; ++i) serve(events[i].data.u64);
        tick();
    }
    arena_.life().release();
}

void Endpoint::serve(std::uint64_t id) {
    if (id == kTcpListener) return accept_all(tcp_listener_, false);
    if (id == kLocalListener) return accept_all(local_door_.fd(), true);
    if (id == kBell) return drain_event(bell_);
    if (id == kLinks) return engine_->serve_unwaited();
    if (hellos_.contains(id)) advance(id);
    if (openings_.contains(id)) go_on(id);
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

void Endpoint::accept_all(int listener, bool local) {
    // A few at a time: a crowd at the door must not hold up those who are inside.
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
        const int fd = accept_from(listener);
        if (fd < 0) return;
        if (local && !same_user(fd)) {
            close_stranger(fd);
            refused("another user's process");
            continue;
        }
        if (!local) tune_tcp(fd);
        if (hellos_.size() >= kHellosMax) make_room();
        const auto id = fresh_id();
        hellos_[id] = std::make_unique<Hello>(fd, local, local ? local_door_.path() : address_,
                                              now_ns() + kHelloNs);
        watch(fd, id, EPOLLIN);
    }
}

std::uint64_t Endpoint::fresh_id() {
    const std::lock_guard lock(mutex_);
    return next_id_++;
}

/// A crowd that only stands at the door keeps nobody out: peers greet at once, so whoever has said
/// nothing for longest goes.
void Endpoint::make_room() {
    auto oldest = hellos_.begin();
    for (auto it = hellos_.begin(); it != hellos_.end(); ++it) {
        const bool quieter = !it->second->greeted() && oldest->second->greeted();
        const bool older = it->first < oldest->first;
        if (quieter || (older && it->second->greeted() == oldest->second->greeted())) oldest = it;
    }
    epoll_ctl(doors_, EPOLL_CTL_DEL, oldest->second->fd(), nullptr);
    hellos_.erase(oldest);
    refused("too many connections at once");
}

void Endpoint::advance(std::uint64_t id) {
    auto& hello = *hellos_.at(id);
    const auto state = hello.advance(self());
    if (state == Hello::State::waiting) return;
    epoll_ctl(doors_, EPOLL_CTL_DEL, hello.fd(), nullptr);
    const std::string reason = hello.reason();
    if (state == Hello::State::accepted && !closing_.load()) admit(hello.take(), hello.from());
    hellos_.erase(id);
    if (!reason.empty()) refused(reason);
}

void Endpoint::refused(const std::string& why) {
    const std::lock_guard lock(mutex_);
    ++facts_.links_refused;
    facts_.last_close_reason = why;
}

/// What has a deadline, and what other threads left to be done.
void Endpoint::tick() {
    begin_openings();
    const auto now = now_ns();
    tend_openings(now);
    std::vector<std::function<void()>> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    for (auto it = hellos_.begin(); it != hellos_.end();) {
        if (it->second->deadline_ns() > now) {
            ++it;
            continue;
        }
        epoll_ctl(doors_, EPOLL_CTL_DEL, it->second->fd(), nullptr);
        it = hellos_.erase(it);
        refused("a peer did not finish its hello in time");
    }
}

/// How long the endpoint's thread may sleep.
int Endpoint::patience_ms() const noexcept {
    std::int64_t ms = hellos_.empty() ? -1 : kTickMs;
    for (const auto& [id, opening] : openings_) {
        if (opening.dial != nullptr) continue;
        const auto left = std::max<std::int64_t>(opening.dial_at_ns - now_ns(), 0) / 1'000'000 + 1;
        ms = ms < 0 ? left : std::min(ms, left);
    }
    return static_cast<int>(ms);
}

// Links that are wanted. All of it in the endpoint's thread, which no wait of anybody holds up: so a
// process that is itself about to wait for a link always answers who dials it.

void Endpoint::wanted(Link& link) {
    {
        const std::lock_guard lock(asked_mutex_);
        asked_.push_back(link.shared_from_this());
    }
    ring(bell_);
}

void Endpoint::begin_openings() {
    std::vector<std::shared_ptr<Link>> asked;
    {
        const std::lock_guard lock(asked_mutex_);
        asked.swap(asked_);
    }
    for (auto& link : asked) {
        const auto head_start = incarnation < link->peer ? 0 : kHeadStartNs;
        openings_[fresh_id()] = {std::move(link), now_ns() + head_start, 0, nullptr};
    }
}

void Endpoint::tend_openings(std::int64_t now) {
    for (auto it = openings_.begin(); it != openings_.end();) {
        auto& [id, opening] = *it;
        if (opening.link->opened() || !opening.link->alive()) {
            hang_up(opening, 0);
            it = openings_.erase(it);
            continue;
        }
        if (opening.dial == nullptr && opening.dial_at_ns <= now) dial(id, opening);
        ++it;
    }
}

void Endpoint::dial(std::uint64_t id, Opening& opening) {
    const auto& link = *opening.link;
    const bool comes = std::any_of(hellos_.begin(), hellos_.end(), [&](const auto& entry) {
        return entry.second->proved() && entry.second->from() == link.peer;
    });
    if (comes) return hang_up(opening, now_ns() + kAgainNs);
    try {
        opening.dial = std::make_unique<Dial>(self(), link.peer, link.reach);
    } catch (const Failure& failure) {
        return dialled_in_vain(opening, failure);
    }
    if (opening.dial->fd() < 0) return hang_up(opening, now_ns() + kFullNs);
    ++opening.dials;
    watch(opening.dial->fd(), id, EPOLLOUT);
}

void Endpoint::go_on(std::uint64_t id) {
    auto& opening = openings_.at(id);
    const auto link = opening.link;
    if (opening.dial == nullptr) return;
    auto& dial = *opening.dial;
    const bool connects = dial.connecting();
    try {
        switch (dial.advance(self())) {
            case Dial::State::waiting: {
                epoll_event event{};
                event.events = EPOLLIN;
                event.data.u64 = id;
                if (connects) epoll_ctl(doors_, EPOLL_CTL_MOD, dial.fd(), &event);
                return;
            }
            case Dial::State::crossed: return hang_up(opening, now_ns() + kAgainNs);
            case Dial::State::accepted: break;
        }
    } catch (const Failure& failure) {
        return dialled_in_vain(opening, failure);
    }
    epoll_ctl(doors_, EPOLL_CTL_DEL, dial.fd(), nullptr);
    auto peer = dial.take();
    openings_.erase(id);
    if (closing_.load()) return close_fd(peer.fd);
    admit(std::move(peer), link->peer);
}

void Endpoint::dialled_in_vain(Opening& opening, const Failure& failure) {
    const auto link = opening.link;
    hang_up(opening, now_ns());
    // Whoever listens lives, and may only have been too busy to hear this one out.
    if (failure.trouble().why == Why::peer_lost && opening.dials > 0 && opening.dials < kDials) return;
    {
        const std::lock_guard lock(mutex_);
        link->trouble = failure.trouble();
    }
    link->kill(std::string("it could not be reached: ") + failure.what(), false);
}

void Endpoint::hang_up(Opening& opening, std::int64_t dial_at_ns) {
    if (opening.dial != nullptr && opening.dial->fd() >= 0)
        epoll_ctl(doors_, EPOLL_CTL_DEL, opening.dial->fd(), nullptr);
    opening.dial.reset();
    opening.dial_at_ns = dial_at_ns;
}

/// Of two processes that dial each other the one with the lower number decides; see hello.hpp.
bool Endpoint::prefers_another(std::uint64_t from) {
    if (from < incarnation) return false;
    const bool dials = std::any_of(openings_.begin(), openings_.end(), [&](const auto& entry) {
        return entry.second.dial != nullptr && entry.second.link->peer == from;
    });
    if (dials) return true;
    const std::lock_guard lock(mutex_);
    const auto found = links_.find(from);
    return found != links_.end() && found->second->opened() && found->second->alive();
}

}  // namespace tmc
