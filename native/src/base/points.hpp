// SPDX-License-Identifier: Apache-2.0
// Synchronisation points: where what one thread does, another one, or another seat, can see. A test can
// end, stop or delay a process there.
//
// They are in builds for tests only (TRAINMOVER_POINTS, which an editable install has); elsewhere a point
// is nothing, and a Mutex the library's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tmc {

#ifdef TRAINMOVER_POINTS

/// Pass a point: right before or after something that another seat, or another thread, can see.
void point() noexcept;

/// Pass between a look and what follows from it: a thread may be held up there, but not ended.
void gap() noexcept;

/// Points passed by all threads since the process began.
std::uint64_t points_passed() noexcept;

/// Raise `signal` in the thread that passes the `countdown`-th point from now, 1 = the next one.
/// 0 disarms.
void arm_point(std::uint64_t countdown, int signal) noexcept;

/// From now on threads are held up, for up to that long, at points and where they take or give back a
/// lock: at some of these places often, at all others now and then. The seed says at which, and how long
/// each time. 0 microseconds: no more.
void delay_points(std::uint64_t seed, std::uint32_t most_us) noexcept;
/// Whether they are: then no wait looks again by itself whether it was called, so that a call that is lost
/// is found, and not slept over.
bool points_delayed() noexcept;

/// The calling thread stands still at points and locks while that is true, as if its process was stopped.
/// It must live as long as the thread.
void stand_still_while(const std::atomic<bool>* it) noexcept;

/// Make and check the code of each frame so many times more, for who measures what one costs.
void repeat_codes(std::uint32_t more) noexcept;
std::uint32_t codes_repeated() noexcept;

/// Whoever takes or gives it back may be held up there.
class Mutex {
public:
    void lock();
    bool try_lock() { return mutex_.try_lock(); }
    void unlock();

private:
    std::mutex mutex_;
};
using Condition = std::condition_variable_any;

#else

inline void point() noexcept {}
inline void gap() noexcept {}
inline bool points_delayed() noexcept { return false; }
inline std::uint32_t codes_repeated() noexcept { return 0; }
using Mutex = std::mutex;
using Condition = std::condition_variable;

#endif

}  // namespace tmc
