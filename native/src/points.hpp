// Synchronisation points, so that a test can end a process at any one of them.
#pragma once

#include <cstdint>

namespace tmc {

/// Pass a point: right before or after something that another seat can see.
void point() noexcept;

/// Points passed by all threads since the process began.
std::uint64_t points_passed() noexcept;

/// Raise `signal` in the thread that passes the `countdown`-th point from now, 1 = the next one.
/// 0 disarms.
void arm_point(std::uint64_t countdown, int signal) noexcept;

}  // namespace tmc
