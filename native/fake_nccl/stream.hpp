// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Streams and events in host memory: a thread that does one thing after the other, and a count.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fake {

using Job = std::function<void()>;

/// Jobs are done in the order in which they were given, by a thread of its own. Never destroyed: a
/// job may wait for a process that is gone.
class Stream {
public:
    Stream() {
        std::thread([this] { serve(); }).detach();
        std::lock_guard lock(made_mutex);
        made.push_back(this);
    }

    /// Those of this process so far.
    static std::vector<Stream*> all() {
        std::lock_guard lock(made_mutex);
        return made;
    }

    void push(Job job) {
        {
            std::lock_guard lock(mutex_);
            jobs_.push_back(std::move(job));
            ++left_;
        }
        changed_.notify_all();
    }

    bool empty() {
        std::lock_guard lock(mutex_);
        return left_ == 0;
    }

    bool await_empty(std::chrono::microseconds patience) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [this] { return left_ == 0; });
    }

private:
    void serve() {
        for (;;) {
            Job job;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return !jobs_.empty(); });
                job = std::move(jobs_.front());
                jobs_.pop_front();
            }
            job();
            {
                std::lock_guard lock(mutex_);
                --left_;
            }
            changed_.notify_all();
        }
    }

    static inline std::mutex made_mutex;
    static inline auto& made = *new std::vector<Stream*>;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    size_t left_ = 0;  // With the one under way.
};

/// Comes when the stream has done all that it was given before. A newer record takes its place.
class Event {
public:
    void record(const std::shared_ptr<Event>& self, Stream& stream) {
        uint64_t number;
        {
            std::lock_guard lock(mutex_);
            number = ++recorded_;
        }
        stream.push([self, number] { self->arrive(number); });
    }

    uint64_t newest() {
        std::lock_guard lock(mutex_);
        return recorded_;
    }

    bool has_come() {
        std::lock_guard lock(mutex_);
        return come_ >= recorded_;
    }

    void await(uint64_t number) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return come_ >= number; });
    }

    bool await_newest(std::chrono::microseconds patience) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&, number = recorded_] { return come_ >= number; });
    }

private:
    void arrive(uint64_t number) {
        {
            std::lock_guard lock(mutex_);
            come_ = std::max(come_, number);
        }
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t recorded_ = 0;
    uint64_t come_ = 0;
};

}  // namespace fake
