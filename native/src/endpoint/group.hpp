// SPDX-License-Identifier: Apache-2.0
// Numbered seats, and who sits there from epoch to epoch.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/points.hpp"
#include "base/ticket.hpp"
#include "endpoint/endpoint.hpp"
#include "session/session.hpp"

namespace tmc {

/// What a switchover did. Links are counted from this seat.
///
/// opened  made for the new epoch; links are shared, so only the first group that needs one counts
/// closed  no group uses them any more; they go when their process goes
struct Switched {
    int opened = 0;
    int kept = 0;
    int closed = 0;
    std::int64_t prepare_ns = 0;
    std::int64_t switchover_ns = 0;
};

class Group : public std::enable_shared_from_this<Group> {
public:
    using Body = std::function<void(Session&)>;
    static constexpr std::int64_t kAnyEpoch = -1;
    static constexpr std::int64_t kForeverNs = std::int64_t{1} << 60;

    Group(std::shared_ptr<Endpoint> endpoint, std::string name, std::uint32_t seat,
          std::uint32_t size);
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    const std::string name;
    const std::uint32_t seat;
    const std::uint32_t size;

    /// What this seat publishes for the epochs to come.
    std::vector<std::byte> card();

    /// Phase 1: have links to those seats of the coming epoch that calls will need first; see
    /// `seats_to_open`. The current one keeps working.
    /// cards  by seat. Idempotent per epoch. Throws Failure.
    void prepare(std::uint64_t epoch, const std::vector<std::vector<std::byte>>& cards,
                 std::int64_t timeout_ns);
    /// The epoch will not come.
    void discard(std::uint64_t epoch);
    /// Phase 2: the prepared epoch begins. Local; touches only links to seats that were replaced.
    Switched switchover(std::uint64_t epoch);
    /// End the current epoch. When this returns, no thread touches a caller's buffer any more.
    void abort(const std::string& why);
    void close();

    // A call may name the epoch it was made for: in any other it is refused, so that a thread that
    // was held up over a switchover cannot call into the next epoch.

    /// Run a collective after all that were submitted before it. In the background: its ticket.
    /// Otherwise null, once it is done; throws Failure.
    std::shared_ptr<Ticket> submit(Body body, bool background, std::int64_t epoch = kAnyEpoch);
    /// Wait for a ticket of `submit`; for ever: running what is queued if nobody else does.
    /// False: not done in time.
    bool wait(const std::shared_ptr<Ticket>& ticket, std::int64_t timeout_ns);
    /// The same for a ticket of `send` or `receive`.
    bool wait_for_message(Ticket& ticket, std::int64_t timeout_ns);
    std::shared_ptr<Ticket> send(const std::byte* at, std::uint64_t count, DType dtype,
                                 std::uint32_t to, std::uint32_t tag,
                                 std::int64_t epoch = kAnyEpoch);
    std::shared_ptr<Ticket> receive(std::byte* at, std::uint64_t count, DType dtype, int from,
                                    std::uint32_t tag, std::int64_t epoch = kAnyEpoch);

    void set_timeout(std::int64_t ns);
    /// -1 before the first epoch.
    std::int64_t epoch();
    /// Why the current epoch is over; nothing while it works.
    Trouble broken();
    std::uint64_t calls();
    /// By seat the number of the process that sits there; none before the first epoch.
    std::vector<std::uint64_t> peers();

private:
    struct Job {
        Body body;
        std::shared_ptr<Ticket> ticket;
        std::shared_ptr<Session> session;
    };

    View view_of(std::uint64_t epoch, const std::vector<std::vector<std::byte>>& cards) const;
    std::shared_ptr<Session> connected(View view, Cancel& cancel, std::int64_t deadline_ns);
    std::vector<std::uint32_t> seats_to_open(const View& view, const View* before) const;
    void show_board(const View& view);
    void check_board(const View& view, std::size_t other) const;
    std::uint64_t life_of(const View& view) const;
    std::exception_ptr execute(const std::shared_ptr<Session>& session, const Body& body) noexcept;
    void run_front(std::unique_lock<Mutex>& lock);
    void drop_queue(std::unique_lock<Mutex>& lock, const Trouble& trouble);
    void see_out(std::unique_lock<Mutex>& lock, const Session& stopped);
    void start_worker();
    void work();
    std::shared_ptr<Session> session();
    std::shared_ptr<Session> session_for(std::int64_t epoch);

    const std::shared_ptr<Endpoint> endpoint_;
    const std::uint64_t nonce_;
    const std::uint32_t slot_;
    const std::uint64_t region_;
    std::int64_t timeout_ns_;

    Mutex passing_;  // Held over a switchover, and where the group ends: one or the other.
    Mutex mutex_;
    Condition changed_;
    std::deque<Job> queue_;
    bool running_ = false;  // Somebody executes a collective.
    int waiting_ = 0;       // Threads that must hear of every change.
    bool closed_ = false;
    bool populated_ = false;
    std::unique_ptr<std::thread> worker_;
    std::shared_ptr<Session> session_;
    std::uint64_t calls_before_ = 0;  // Of earlier epochs.
    std::map<std::uint64_t, std::shared_ptr<Cancel>> preparing_;
    std::map<std::uint64_t, std::shared_ptr<Session>> prepared_;
    std::set<std::uint64_t> discarded_;
};

}  // namespace tmc
