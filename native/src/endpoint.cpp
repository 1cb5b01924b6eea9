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

Cancel::Cancel() : fd_(new_event_fd()) {}
Cancel::~Cancel() {
    if (birthplace_.here()) close_fd(fd_);
}

void Cancel::cancel() noexcept {
    cancelled_.store(true);
    ring(fd_);
}

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
    watch(tcp_listener_, kTcpListener);
    watch(local_door_.fd(), kLocalListener);
    watch(bell_, kBell);
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
    for (const auto& link : links) link->retire();
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
        result.push_back({peer, link->mapping != nullptr, link->opened_ns, link->inode, link->sent(),
                          link->received()});
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

std::shared_ptr<Link> Endpoint::connect(const Card& card, Cancel& cancel,
                                        std::int64_t deadline_ns) {
    const auto peer = card.incarnation;
    std::unique_lock lock(mutex_);
    for (;;) {
        if (cancel.cancelled()) throw Failure(Why::aborted, "connecting was given up");
        check();
        const auto found = links_.find(peer);
        if (found != links_.end() && found->second->alive()) return found->second;
        // Of two processes the one with the lower number dials, so that they do not dial at once.
        if (incarnation < peer && !dialling_.contains(peer)) break;
        const auto left = deadline_ns - now_ns();
        if (left <= 0) throw Failure(Why::timed_out, "it did not connect in time");
        changed_.wait_for(lock, std::chrono::nanoseconds(std::min<std::int64_t>(left, 100'000'000)));
    }
    dialling_.insert(peer);
    lock.unlock();
    std::shared_ptr<Link> link;
    std::optional<Failure> failure;
    try {
        link = dial(card, cancel, deadline_ns);
    } catch (const Failure& caught) {
        failure = caught;
    }
    lock.lock();
    dialling_.erase(peer);
    lock.unlock();
    changed_.notify_all();
    if (failure) throw *failure;
    return link;
}

void Endpoint::interrupt(Cancel& cancel) {
    cancel.cancel();
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
}

std::shared_ptr<Link> Endpoint::dial(const Card& card, Cancel& cancel, std::int64_t deadline_ns) {
    const bool local = card.host == host;
    const Target target{card.incarnation, local ? card.path : card.address, local};
    for (int attempt = 1;; ++attempt) {
        const auto left_ms = std::max<std::int64_t>((deadline_ns - now_ns()) / 1'000'000, 1);
        const int fd = local ? dial_local(target.address)
                             : dial_tcp(target.address, cancel.fd(),
                                        static_cast<int>(std::min<std::int64_t>(left_ms, 3'600'000)));
        try {
            return admit(greet(fd, self(), target, cancel.fd(), deadline_ns), card.incarnation);
        } catch (const Failure& failure) {
            // Whoever listens lives, and may only have been too busy to hear this one out.
            if (failure.trouble().why != Why::peer_lost || attempt == kDials) throw;
        }
    }
}

/// Make a link of a connection whose peer has proved itself.
std::shared_ptr<Link> Endpoint::admit(Peer peer, std::uint64_t from) {
    auto link = std::make_shared<Link>(peer.fd, from, std::move(peer.mapping), std::move(peer.keys), *this);
    std::shared_ptr<Link> older;
    std::uint64_t id = 0;
    {
        const std::lock_guard lock(mutex_);
        auto& place = links_[from];
        older = std::exchange(place, link);
        id = next_id_++;
        watched_[id] = link;
        ++facts_.links_opened;
    }
    if (older != nullptr) older->kill("the same process connected again", false);
    link->attach(engine_->links(), id);
    changed_.notify_all();
    return link;
}

void Endpoint::hold(View& view) {
    const std::lock_guard lock(mutex_);
    for (const auto& link : view.links) {
        if (link == nullptr) continue;
        ++link->references;
        if (!std::exchange(link->accounted, true)) ++view.opened;
    }
}

void Endpoint::drop(const View& view) {
    const std::lock_guard lock(mutex_);
    for (const auto& link : view.links)
        if (link != nullptr && --link->references == 0) link->accounted = false;
}

void Endpoint::lost(Link& link, const std::string& why, bool orderly) {
    link.detach();
    std::vector<std::shared_ptr<Session>> bereaved;
    {
        const std::lock_guard lock(mutex_);
        const auto found = links_.find(link.peer);
        const bool current = found != links_.end() && found->second.get() == &link;
        ++facts_.links_closed;
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
        if (current) mourn(link.peer);
    }
    for (const auto& session : bereaved) session->ending.wake();
    changed_.notify_all();
    ring(bell_);
}

// Groups.

int Endpoint::exchange(const std::shared_ptr<Session>& past, const std::shared_ptr<Session>& next) {
    std::vector<std::shared_ptr<Link>> replaced;
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
                if (--link->references == 0) ++unused;
                if (next->seat_of(link->peer) >= 0) continue;
                Outgoing frame;
                frame.header.kind = Frame::replaced;
                frame.header.group = life;
                frame.header.epoch = next->epoch();
                link->enqueue(std::move(frame));
                replaced.push_back(link);
            }
        }
    }
    if (past == nullptr) return 0;
    // What costs time is left to the endpoint's thread: the switchover is on the step's path.
    later([past, replaced] {
        for (const auto& link : replaced) link->push();
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
    return {nullptr, -1, early({header.group, header.epoch, link.peer})};
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
            if (session != nullptr) {
                trouble = take(header, landing, to);
                answers = header.kind != Frame::broken && link.wants_to_write();
            } else if (to.early != nullptr) {
                take_early(header, landing, *to.early);
            }
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

void Endpoint::watch(int fd, std::uint64_t id) {
    epoll_event event{};
    event.events = EPOLLIN;
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
        const int n = epoll_wait(doors_, events, 64, hellos_.empty() ? -1 : kTickMs);
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
        std::uint64_t id = 0;
        {
            const std::lock_guard lock(mutex_);
            id = next_id_++;
        }
        hellos_[id] = std::make_unique<Hello>(fd, local, local ? local_door_.path() : address_,
                                              now_ns() + kHelloNs);
        watch(fd, id);
    }
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
    const auto now = now_ns();
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

}  // namespace tmc
