#include "ticket.hpp"


#include "sockets.hpp"

namespace tmc {
namespace {

std::atomic<std::uint64_t> next_id{1};

}  // namespace

void DoneQueue::push(std::uint64_t id) {
    {
        const std::lock_guard lock(mutex_);
        ids_.push_back(id);
    }
    come_.notify_one();
}

std::vector<std::uint64_t> DoneQueue::take(std::int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    come_.wait_until(lock, moment(now_ns() + timeout_ns), [&] { return closed_ || !ids_.empty(); });
    std::vector<std::uint64_t> taken(ids_.begin(), ids_.end());
    ids_.clear();
    if (taken.empty() && closed_) throw Failure(Why::aborted, "the endpoint was closed");
    return taken;
}

void DoneQueue::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    come_.notify_all();
}

Ticket::Ticket(std::shared_ptr<DoneQueue> queue)
    : queue_(std::move(queue)), id_(next_id.fetch_add(1, std::memory_order_relaxed)) {}

void Ticket::finish(Trouble trouble, int source) {
    bool tell = false;
    {
        const std::lock_guard lock(mutex_);
        if (done()) return;
        trouble_ = std::move(trouble);
        source_ = source;
        tell = subscribed_;
        done_.store(true, std::memory_order_release);
        over_.notify_all();
    }
    if (tell) queue_->push(id_);
}

bool Ticket::wait_until(std::int64_t deadline_ns) {
    if (done()) return true;
    std::unique_lock lock(mutex_);
    return over_.wait_until(lock, moment(deadline_ns), [&] { return done(); });
}

Trouble Ticket::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

int Ticket::source() const {
    const std::lock_guard lock(mutex_);
    return source_;
}

std::uint64_t Ticket::subscribe() {
    bool now = false;
    {
        const std::lock_guard lock(mutex_);
        subscribed_ = true;
        now = done();
    }
    if (now) queue_->push(id_);
    return id_;
}

}  // namespace tmc
