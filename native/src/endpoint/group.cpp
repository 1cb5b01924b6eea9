// SPDX-License-Identifier: Apache-2.0
#include "endpoint/group.hpp"

#include <algorithm>

#include "base/sockets.hpp"
#include "collectives/reduce.hpp"

namespace tmc {
namespace {

constexpr std::int64_t kTimeoutNs = 1'800'000'000'000;

std::uint64_t mixed(std::uint64_t sum, std::uint64_t value) noexcept {
    sum = (sum ^ value) * 0xff51afd7ed558ccd;
    return sum ^ sum >> 32;
}

}  // namespace

Group::Group(std::shared_ptr<Endpoint> endpoint, std::string name_, std::uint32_t seat_,
             std::uint32_t size_)
    : name(std::move(name_)),
      seat(seat_),
      size(size_),
      endpoint_(std::move(endpoint)),
      nonce_(fresh_number()),
      slot_(slot_bytes(size_)),
      region_(endpoint_->arena().take(board_bytes(slot_))),
      timeout_ns_(kTimeoutNs) {}

Group::~Group() {
    if (endpoint_->inherited()) {
        static_cast<void>(worker_.release());  // The thread exists in the parent only.
        return;
    }
    close();
}

std::shared_ptr<Session> Group::session() {
    const std::lock_guard lock(mutex_);
    return session_;
}

/// The session that calls go to. With the mutex held.
std::shared_ptr<Session> Group::session_for(std::int64_t epoch) {
    endpoint_->check();
    if (closed_) throw Failure(Why::aborted, "group " + name + " was closed");
    if (session_ == nullptr)
        throw Failure(Why::refused, "group " + name + " has no epoch yet: switch over to one");
    if (epoch != kAnyEpoch && epoch != static_cast<std::int64_t>(session_->epoch()))
        throw Failure(Why::aborted, "epoch " + std::to_string(epoch) + " of group " + name + " has ended");
    return session_;
}

std::vector<std::uint64_t> Group::peers() {
    std::vector<std::uint64_t> peers;
    if (const auto current = session())
        for (const auto& card : current->view.cards) peers.push_back(card.incarnation);
    return peers;
}

// Phase 1.

std::vector<std::byte> Group::card() {
    endpoint_->not_in_child();
    Card card;
    card.incarnation = endpoint_->incarnation;
    card.nonce = nonce_;
    card.region = region_;
    card.slot_bytes = slot_;
    card.host = endpoint_->host;
    card.address = endpoint_->address();
    card.path = endpoint_->path();
    const auto current = session();
    card.life = current == nullptr ? 0 : current->view.life;
    return card.encoded();
}

void Group::prepare(std::uint64_t epoch, const std::vector<std::vector<std::byte>>& cards,
                    std::int64_t timeout_ns) {
    endpoint_->not_in_child();
    const auto started = now_ns();
    const auto place = "epoch " + std::to_string(epoch) + " of group " + name;
    auto cancel = std::make_shared<Cancel>();
    {
        const std::lock_guard lock(mutex_);
        endpoint_->check();
        if (closed_ || discarded_.contains(epoch)) throw Failure(Why::aborted, place + " was given up");
        if (prepared_.contains(epoch)) return;
        if (session_ != nullptr && epoch <= session_->epoch())
            throw Failure(Why::refused, place + " is over: it is in epoch " +
                                            std::to_string(session_->epoch()));
        if (!preparing_.emplace(epoch, cancel).second)
            throw Failure(Why::refused, place + " is being prepared by another thread");
    }
    std::optional<Failure> failure;
    std::shared_ptr<Session> next;
    try {
        next = connected(view_of(epoch, cards), *cancel, now_ns() + timeout_ns);
    } catch (const Failure& caught) {
        failure = caught;
    }
    const std::lock_guard lock(mutex_);
    preparing_.erase(epoch);
    if (cancel->cancelled()) {
        if (next != nullptr) endpoint_->drop(next->view.links);
        throw Failure(Why::aborted, place + " was given up");
    }
    if (failure) throw *failure;
    endpoint_->count(next->view);
    next->view.prepare_ns = now_ns() - started;
    prepared_.emplace(epoch, std::move(next));
}

View Group::view_of(std::uint64_t epoch, const std::vector<std::vector<std::byte>>& cards) const {
    if (cards.size() != size)
        throw Failure(Why::refused, "group " + name + " has " + std::to_string(size) +
                                        " seats, but " + std::to_string(cards.size()) +
                                        " cards were given");
    View view;
    view.epoch = epoch;
    view.seat = seat;
    for (const auto& card : cards) view.cards.push_back(Card::decoded(card));
    if (view.cards[seat].incarnation != endpoint_->incarnation || view.cards[seat].nonce != nonce_)
        throw Failure(Why::refused, "seat " + std::to_string(seat) + " of group " + name +
                                        " belongs to another process");
    for (std::uint32_t other = 0; other < size; ++other)
        if (other != seat && view.cards[other].incarnation == endpoint_->incarnation)
            throw Failure(Why::refused, "one process cannot sit in two seats of group " + name);
    view.life = life_of(view);
    return view;
}

/// The number that tells this group from all others, also from an earlier one of the same name:
/// told by those who were in it before, or made of everybody's.
std::uint64_t Group::life_of(const View& view) const {
    std::uint64_t known = 0;
    for (const auto& card : view.cards) {
        if (card.life == 0 || card.life == known) continue;
        if (known != 0)
            throw Failure(Why::refused, "the seats of group " + name + " come from two groups");
        known = card.life;
    }
    if (known != 0) return known;
    std::uint64_t sum = 0x9e3779b97f4a7c15;
    for (const char letter : name) sum = mixed(sum, static_cast<unsigned char>(letter));
    for (const auto& card : view.cards) sum = mixed(mixed(sum, card.incarnation), card.nonce);
    return sum == 0 ? 1 : sum;
}

std::shared_ptr<Session> Group::connected(View view, Cancel& cancel, std::int64_t deadline_ns) {
    const auto current = session();
    const auto* before = current == nullptr ? nullptr : &current->view;
    endpoint_->hold(view, before);
    const auto links = view.links;
    try {
        endpoint_->open(view, seats_to_open(view, before), cancel, deadline_ns);
        show_board(view);
        return std::make_shared<Session>(name, std::move(view), endpoint_->arena().at(region_), slot_,
                                         endpoint_->mutex(), endpoint_->engine());
    } catch (const Failure& failure) {
        endpoint_->drop(links);
        const auto& trouble = failure.trouble();
        if (trouble.seat < 0) throw;
        throw Failure(trouble.why, "seat " + std::to_string(trouble.seat) + " of group " + name + ": " +
                                       trouble.text);
    } catch (...) {
        endpoint_->drop(links);
        throw;
    }
}

/// All that is known to be needed, so that no call has to wait until a link is open: what the group's
/// own ways take, and what this seat has used in the epoch before, be it to who sat there then.
std::vector<std::uint32_t> Group::seats_to_open(const View& view, const View* before) const {
    auto seats = Topology(view).known();
    for (std::uint32_t other = 0; before != nullptr && other < size; ++other)
        if (other != seat && before->links[other]->opened()) seats.push_back(other);
    return seats;
}

void Group::show_board(const View& view) {
    bool shares = false;
    for (std::uint32_t other = 0; other < size; ++other) {
        if (other == seat || !view.local(other)) continue;
        shares = true;
        check_board(view, other);
    }
    if (!shares || populated_) return;
    populated_ = true;
    populate(endpoint_->arena().at(region_), board_bytes(slot_), true);
}

void Group::check_board(const View& view, std::size_t other) const {
    const auto& card = view.cards[other];
    const auto* mapping = view.links[other]->mapping();
    const auto* board =
        mapping == nullptr ? nullptr : mapping->region(card.region, board_bytes(slot_));
    if (board == nullptr || card.slot_bytes != slot_)
        throw Failure(Why::refused, "seat " + std::to_string(other) + " of group " + name +
                                        " shows no board of this size: another version, or host "
                                        "names that do not tell hosts apart");
    populate(board, board_bytes(slot_), false);
}

void Group::discard(std::uint64_t epoch) {
    endpoint_->not_in_child();
    std::shared_ptr<Cancel> cancel;
    std::shared_ptr<Session> given_up;
    {
        const std::lock_guard lock(mutex_);
        discarded_.insert(epoch);
        const auto preparing = preparing_.find(epoch);
        if (preparing != preparing_.end()) cancel = preparing->second;
        const auto ready = prepared_.find(epoch);
        if (ready != prepared_.end()) {
            given_up = std::move(ready->second);
            prepared_.erase(ready);
        }
    }
    if (given_up != nullptr) {
        endpoint_->part(given_up->view);
        endpoint_->drop(given_up->view.links);
    }
    if (cancel != nullptr) endpoint_->interrupt(*cancel);
}

// Phase 2.

Switched Group::switchover(std::uint64_t epoch) {
    endpoint_->not_in_child();
    const std::lock_guard passing(passing_);
    const auto started = now_ns();
    std::shared_ptr<Session> past;
    std::shared_ptr<Session> next;
    std::int64_t patience_ns = 0;
    {
        std::unique_lock lock(mutex_);
        endpoint_->check();
        if (closed_) throw Failure(Why::aborted, "group " + name + " was closed");
        const auto ready = prepared_.find(epoch);
        if (ready == prepared_.end())
            throw Failure(Why::refused,
                          "epoch " + std::to_string(epoch) + " of group " + name + " was not prepared");
        next = std::move(ready->second);
        prepared_.erase(ready);
        patience_ns = timeout_ns_;
        std::erase_if(discarded_, [&](std::uint64_t old) { return old <= epoch; });
        past = session_;
        if (past != nullptr) {
            lock.unlock();
            past->stop({Why::aborted, "epoch " + std::to_string(past->epoch()) + " has ended"}, Tell::nobody);
            lock.lock();
            see_out(lock, *past);
        }
    }
    if (past != nullptr) past->clean();
    Switched result;
    result.opened = next->view.opened;
    result.kept = next->view.kept;
    result.prepare_ns = next->view.prepare_ns;
    next->open(patience_ns);
    result.closed = endpoint_->exchange(past, next);
    {
        const std::lock_guard lock(mutex_);
        session_ = next;
        if (past != nullptr) calls_before_ += past->ending.calls.load();
    }
    result.switchover_ns = now_ns() - started;
    return result;
}

void Group::abort(const std::string& why) {
    endpoint_->not_in_child();
    const auto current = session();
    if (current == nullptr) return;
    current->stop({Why::aborted, "the group was aborted: " + why}, Tell::broken);
    {
        std::unique_lock lock(mutex_);
        see_out(lock, *current);
    }
    current->clean();
}

void Group::close() {
    if (endpoint_->inherited()) return;
    std::vector<std::uint64_t> epochs;
    {
        const std::lock_guard lock(mutex_);
        if (closed_) return;
        closed_ = true;
        for (const auto& [epoch, cancel] : preparing_) epochs.push_back(epoch);
        for (const auto& [epoch, next] : prepared_) epochs.push_back(epoch);
    }
    for (const auto epoch : epochs) discard(epoch);
    const std::lock_guard passing(passing_);
    const auto last = session();
    if (last != nullptr) {
        last->stop({Why::aborted, "group " + name + " was closed"}, Tell::leaving);
        std::unique_lock lock(mutex_);
        see_out(lock, *last);
    }
    changed_.notify_all();
    if (worker_ != nullptr) worker_->join();
    worker_.reset();
    if (last != nullptr) {
        last->clean();
        endpoint_->drop(last->view.links);
    }
    endpoint_->bury(last.get(), region_, board_bytes(slot_));
    endpoint_->forget(this);
    const std::lock_guard lock(mutex_);
    if (last != nullptr) calls_before_ += last->ending.calls.load();
    session_.reset();
}

// Collectives, one after the other.

std::shared_ptr<Ticket> Group::submit(Body body, bool background, std::int64_t epoch) {
    endpoint_->not_in_child();
    std::unique_lock lock(mutex_);
    const auto session = session_for(epoch);
    if (!background && !running_ && queue_.empty()) {
        running_ = true;
        lock.unlock();
        const auto failure = execute(session, body);
        lock.lock();
        running_ = false;
        if (failure) drop_queue(lock, session->ending.trouble());
        const bool tell = waiting_ > 0 || !queue_.empty();
        lock.unlock();
        if (tell) changed_.notify_all();
        if (failure) std::rethrow_exception(failure);
        return nullptr;
    }
    if (session->ending.stopped()) throw Failure(session->ending.trouble());
    // What can fail comes before the call is queued: one that was refused is never made.
    if (background) start_worker();
    auto ticket = std::make_shared<Ticket>(endpoint_->done);
    queue_.push_back({std::move(body), ticket, session});
    lock.unlock();
    if (background) {
        changed_.notify_all();
        return ticket;
    }
    wait(ticket, kForeverNs);
    if (const auto trouble = ticket->trouble()) throw Failure(trouble);
    return nullptr;
}

/// The thread for calls in the background. With the lock held. Throws Failure.
void Group::start_worker() {
    if (worker_ != nullptr) return;
    try {
        worker_ = std::make_unique<std::thread>([this] { work(); });
    } catch (const std::exception& error) {
        throw Failure(Why::failed, "no thread can be made for a call in the background of group " +
                                       name + ": " + error.what());
    }
}

bool Group::wait(const std::shared_ptr<Ticket>& ticket, std::int64_t timeout_ns) {
    endpoint_->not_in_child();
    if (ticket->done()) return true;
    const auto deadline = moment(now_ns() + std::min(timeout_ns, kForeverNs));
    std::unique_lock lock(mutex_);
    // Who carries a call out cannot stop in the middle: with a deadline it is left to the worker.
    const bool helps = timeout_ns >= kForeverNs;
    while (!ticket->done()) {
        if (helps && !running_ && !queue_.empty()) {
            run_front(lock);
            continue;
        }
        ++waiting_;
        const auto woken = changed_.wait_until(lock, deadline);
        --waiting_;
        if (woken == std::cv_status::timeout) return ticket->done();
    }
    return true;
}

/// Execute the oldest job. With the lock held, which is given up meanwhile.
void Group::run_front(std::unique_lock<Mutex>& lock) {
    auto job = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    const auto failure = execute(job.session, job.body);
    job.body = nullptr;
    job.ticket->finish(failure ? job.session->ending.trouble() : Trouble{});
    lock.lock();
    running_ = false;
    if (failure) drop_queue(lock, job.session->ending.trouble());
    changed_.notify_all();
}

/// What it threw, if it did; the session has then ended, and no link touches the caller's buffers.
std::exception_ptr Group::execute(const std::shared_ptr<Session>& session,
                                  const Body& body) noexcept {
    std::exception_ptr failure;
    Trouble trouble;
    try {
        body(*session);
        session->board.verify();
        return nullptr;
    } catch (const Failure& caught) {
        failure = std::current_exception();
        trouble = caught.trouble();
    } catch (const std::exception& caught) {
        failure = std::current_exception();
        trouble = {Why::failed, std::string("a call could not be carried out: ") + caught.what()};
    }
    session->stop(std::move(trouble), Tell::broken);
    session->clean();
    return failure;
}

/// What has not begun never will.
void Group::drop_queue(std::unique_lock<Mutex>& lock, const Trouble& trouble) {
    auto dropped = std::move(queue_);
    queue_.clear();
    lock.unlock();
    for (const auto& job : dropped) job.ticket->finish(trouble);
    lock.lock();
    if (!dropped.empty()) changed_.notify_all();
}

/// The session was stopped: drop what is queued, and wait until nobody is inside any more.
void Group::see_out(std::unique_lock<Mutex>& lock, const Session& stopped) {
    drop_queue(lock, stopped.ending.trouble());
    ++waiting_;
    changed_.wait(lock, [&] { return !running_; });
    --waiting_;
}

void Group::work() {
    pthread_setname_np(pthread_self(), "tmc-group");
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return closed_ || (!running_ && !queue_.empty()); });
        if (closed_) return;
        run_front(lock);
    }
}

// Messages.

bool Group::wait_for_message(Ticket& ticket, std::int64_t timeout_ns) {
    endpoint_->not_in_child();
    return ticket.wait_until(now_ns() + std::min(timeout_ns, kForeverNs), endpoint_->engine());
}

std::shared_ptr<Ticket> Group::send(const std::byte* at, std::uint64_t count, DType dtype,
                                    std::uint32_t to, std::uint32_t tag, std::int64_t epoch) {
    endpoint_->not_in_child();
    auto ticket = std::make_shared<Ticket>(endpoint_->done);
    std::shared_ptr<Session> current;
    {
        const std::lock_guard lock(mutex_);
        current = session_for(epoch);
    }
    const auto call = packed({Kind::message, dtype, Op::sum, tag, count});
    current->mail.send(ticket, to, at, count * size_of(dtype), call);
    return ticket;
}

std::shared_ptr<Ticket> Group::receive(std::byte* at, std::uint64_t count, DType dtype, int from,
                                       std::uint32_t tag, std::int64_t epoch) {
    endpoint_->not_in_child();
    auto ticket = std::make_shared<Ticket>(endpoint_->done);
    std::shared_ptr<Session> current;
    {
        const std::lock_guard lock(mutex_);
        current = session_for(epoch);
    }
    const auto call = packed({Kind::message, dtype, Op::sum, tag, count});
    current->mail.receive(ticket, from, at, count * size_of(dtype), call);
    if (ticket->done() && ticket->trouble().why == Why::order) {
        current->stop(ticket->trouble(), Tell::broken);
        current->clean();
    }
    return ticket;
}

void Group::set_timeout(std::int64_t ns) {
    endpoint_->not_in_child();
    const std::lock_guard lock(mutex_);
    timeout_ns_ = ns;
    if (session_ != nullptr) session_->ending.set_timeout(ns);
}

std::int64_t Group::epoch() {
    endpoint_->not_in_child();
    const auto current = session();
    return current == nullptr ? -1 : static_cast<std::int64_t>(current->epoch());
}

Trouble Group::broken() {
    endpoint_->not_in_child();
    const auto current = session();
    return current == nullptr ? Trouble{} : current->ending.trouble();
}

std::uint64_t Group::calls() {
    endpoint_->not_in_child();
    const std::lock_guard lock(mutex_);
    return calls_before_ + (session_ == nullptr ? 0 : session_->ending.calls.load());
}

}  // namespace tmc
