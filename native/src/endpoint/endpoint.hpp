// SPDX-License-Identifier: Apache-2.0
// What a process has once, for all its groups: its links, its listeners, its memory for neighbours, a
// thread for links that nobody waits for, and one for the doors.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/engine.hpp"
#include "base/points.hpp"
#include "base/ticket.hpp"
#include "links/arena.hpp"
#include "links/hello.hpp"
#include "links/link.hpp"
#include "links/local_door.hpp"
#include "session/session.hpp"

namespace tmc {

class Group;

/// A wait that another thread can end.
class Cancel {
public:
    void cancel() noexcept { cancelled_.store(true); }
    bool cancelled() const noexcept { return cancelled_.load(); }

private:
    std::atomic<bool> cancelled_{false};
};

struct LinkFacts {
    std::uint64_t peer = 0;
    bool local = false;
    std::int64_t opened_ns = 0;
    std::uint64_t inode = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
};

struct EndpointFacts {
    std::uint64_t links_opened = 0;
    std::uint64_t links_closed = 0;
    std::uint64_t links_refused = 0;
    std::uint64_t frames_dropped = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t groups = 0;
    std::string last_close_reason;
};

constexpr std::size_t kStrangersMax = 512;

class Endpoint : public Receiver, public Doorkeeper, public std::enable_shared_from_this<Endpoint> {
public:
    /// Listens from now on. host: processes with equal names share memory.
    /// folder: private to this user, for the socket of neighbours; "": one of its own. libcrypto:
    /// path of the library that encrypts links to other hosts; "": they are not encrypted.
    /// strangers_max: connections that have proved nothing, at both listeners together.
    static std::shared_ptr<Endpoint> open(Token token, std::string host, const std::string& address,
                                          const std::string& folder = "",
                                          const std::string& libcrypto = "",
                                          std::size_t strangers_max = kStrangersMax);
    ~Endpoint() override;
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    std::shared_ptr<Group> group(const std::string& name, std::uint32_t seat, std::uint32_t size);
    void close();
    /// Throws Failure once closed, and in a forked child.
    void check() const;

    const std::uint64_t incarnation;
    const std::string host;
    const std::string& address() const noexcept { return address_; }
    const std::string& path() const noexcept { return local_door_.path(); }
    std::vector<LinkFacts> links();
    EndpointFacts facts();
    const std::shared_ptr<DoneQueue> done = std::make_shared<DoneQueue>();

    // For groups.
    bool inherited() const noexcept { return !birthplace_.here(); }
    /// Throws Failure in a forked child: before any lock, since who held one does not exist there.
    void not_in_child() const;
    Arena& arena() noexcept { return arena_; }
    Mutex& mutex() noexcept { return mutex_; }
    Engine& engine() noexcept { return *engine_; }
    /// The view gets its links, open or not, and holds them until `drop`. What is open of the epoch
    /// before, if there is one, was opened for that.
    void hold(View& view, const View* before);
    void drop(const std::vector<std::shared_ptr<Link>>& links);
    /// Have the links to these seats open. Blocks. Throws Failure, which names the seat.
    void open(const View& view, const std::vector<std::uint32_t>& seats, Cancel& cancel,
              std::int64_t deadline_ns);
    void interrupt(Cancel& cancel);
    /// Of the view's links, those that are open: which no view has counted before, and the others.
    void count(View& view);
    /// Frames of this life go to `next` from now on; `past` ended before. Returns how many links no
    /// group uses any more. They stay open as long as their process lives: it may come back, and a
    /// link that one side closes while the other counts on it would be worse than an idle one.
    int exchange(const std::shared_ptr<Session>& past, const std::shared_ptr<Session>& next);
    /// This process reads no memory of the view's seats any more that they use in its epoch. It may have
    /// known of that epoch what they have begun, though it never began here.
    void part(const View& view);
    /// The group is closed. Its board is free once no neighbour reads it any more.
    void bury(const Session* last, std::uint64_t region, std::size_t bytes);
    void forget(Group* group);

    Landing arrive(Link& link, const Header& header) override;
    void landed(Link& link, const Header& header, Landing landing) override;
    void wanted(Link& link) override;
    void lost(Link& link, const std::string& why, bool orderly) override;
    bool prefers_another(std::uint64_t from) override;

private:
    // By what number a thread is told of what it watches; connections have larger ones.
    static constexpr std::uint64_t kTcpListener = 1;
    static constexpr std::uint64_t kLocalListener = 2;
    static constexpr std::uint64_t kBell = 3;
    static constexpr std::uint64_t kLinks = 4;
    static constexpr std::uint64_t kFirstConnection = 16;
    static constexpr std::size_t kEarlyMax = 4096;

    using EarlyKey = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // life, epoch, peer
    struct Addressee {
        std::shared_ptr<Session> session;
        int seat = -1;
        Early* early = nullptr;
    };
    /// A link that somebody wants, until it is open.
    struct Opening {
        std::shared_ptr<Link> link;
        std::int64_t dial_at_ns = 0;
        int dials = 0;
        std::unique_ptr<Dial> dial;  // null before that moment
    };
    struct Grave {
        std::uint64_t life = 0;
        std::uint64_t epoch = 0;
        std::uint64_t region = 0;
        std::size_t bytes = 0;
        std::set<std::uint64_t> readers;
    };

    Endpoint(Token token, std::string host, const std::string& address, const std::string& folder,
             const std::string& libcrypto, std::size_t strangers_max);

    // Whoever leads, and the endpoint's thread.
    void serve_link(std::uint64_t id);
    void run();
    void later(std::function<void()> task);
    void do_tasks();

    // The doors' thread.
    void keep_doors();
    void serve(std::uint64_t id);
    void accept_all(int listener, bool local);
    void rest();
    void watch_listeners(std::uint32_t events) noexcept;
    void make_room();
    void advance(std::uint64_t id);
    void tick();
    int patience_ms() const noexcept;
    std::uint64_t fresh_id();
    void begin_openings();
    void tend_openings(std::int64_t now);
    void dial(std::uint64_t id, Opening& opening);
    void go_on(std::uint64_t id);
    void dialled_in_vain(Opening& opening, const Failure& failure);
    void hang_up(Opening& opening, std::int64_t dial_at_ns);

    void admit(Peer peer, std::uint64_t from);
    std::shared_ptr<Link> link_to(std::uint64_t peer, Reach reach);
    void release(const std::shared_ptr<Link>& link, std::vector<std::shared_ptr<Link>>& unwanted);
    Self self() noexcept { return {token_, incarnation, arena_.fd(), libcrypto_, *this}; }
    void refused(const std::string& why);
    Addressee addressee(const Link& link, const Header& header);
    Early* early(const EarlyKey& key);
    std::optional<Trouble> take(const Header& header, Landing& landing, const Addressee& to);
    void outdate(Session& session, std::uint64_t epoch, std::size_t speaker);
    void take_early(const Header& header, Landing& landing, Early& early);
    void answer_late(Link& link, const Header& header);
    void say_farewell(const View& view, std::uint64_t epoch, std::vector<std::shared_ptr<Link>>& told);
    void farewell(std::uint64_t life, std::uint64_t peer, std::uint64_t epoch);
    void mourn(std::uint64_t peer);
    void free_board(std::uint64_t region, std::size_t bytes) noexcept;

    const Birthplace birthplace_;
    const std::size_t strangers_max_;
    const Token token_;
    const std::shared_ptr<const Libcrypto> libcrypto_;
    Arena arena_;
    LocalDoor local_door_;
    std::string address_;
    int tcp_listener_ = -1;
    int unwaited_ = -1;  // epoll: what the endpoint's thread waits for
    int doors_ = -1;     // epoll: what the doors' thread waits for
    std::unique_ptr<Engine> engine_;
    std::vector<std::byte> read_buffer_;  // for whoever reads a link: one at a time
    int bell_ = -1;
    int door_bell_ = -1;
    std::unique_ptr<std::thread> progress_;
    std::unique_ptr<std::thread> doorman_;
    std::atomic<bool> closing_{false};
    std::atomic<bool> stopping_{false};

    // The doors' thread only.
    std::map<std::uint64_t, std::unique_ptr<Hello>> hellos_;  // the oldest first
    std::unordered_map<std::uint64_t, Opening> openings_;
    std::int64_t look_at_ns_ = 0;  // whether a deadline has passed
    std::int64_t listeners_rest_until_ns_ = 0;  // 0: they do not rest

    std::atomic<std::uint64_t> next_id_{kFirstConnection};

    // What is left to the two threads, and what there is to say of the doors. It may be taken under any
    // other lock. A stranger has the doors' thread take this one only, which no message waits for.
    Mutex left_mutex_;
    std::vector<std::shared_ptr<Link>> asked_;
    std::vector<std::function<void()>> tasks_;
    std::uint64_t refused_ = 0;
    std::string last_end_;

    Mutex mutex_;
    Condition changed_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Link>> links_;      // by incarnation
    std::unordered_map<std::uint64_t, std::shared_ptr<Link>> watched_;    // by id
    std::map<std::uint64_t, std::shared_ptr<Session>> sessions_;          // by life
    std::map<EarlyKey, Early> early_;
    std::deque<std::uint64_t> buried_order_;
    std::set<std::uint64_t> buried_;
    std::list<Grave> graves_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> farewells_;  // (life, peer) -> epoch
    std::set<Group*> groups_;
    EndpointFacts facts_;
};

}  // namespace tmc
