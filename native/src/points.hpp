// Synchronisation points, so that a test can end, stop or delay a process at any one of them.
#pragma once

#include <cstdint>

namespace tmc {

/// Pass a point: right before or after something that another seat, or another thread, can see.
void point() noexcept;

/// Points passed by all threads since the process began.
std::uint64_t points_passed() noexcept;

/// Raise `signal` in the thread that passes the `countdown`-th point from now, 1 = the next one.
/// 0 disarms.
void arm_point(std::uint64_t countdown, int signal) noexcept;

/// From now on a thread that passes a point is held up there, at one of them in four, for up to that
/// long. The seed says for how long at each; 0 microseconds: no more.
void delay_points(std::uint64_t seed, std::uint32_t most_us) noexcept;

}  // namespace tmc
