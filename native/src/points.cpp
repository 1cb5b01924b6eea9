#include "points.hpp"

#include <atomic>
#include <csignal>

namespace tmc {
namespace {

std::atomic<std::uint64_t> passed{0};
std::atomic<std::uint64_t> fatal{0};  // The number of the point that ends the process; 0: none.
std::atomic<int> fatal_signal{0};

}  // namespace

void point() noexcept {
    const auto number = passed.fetch_add(1, std::memory_order_relaxed) + 1;
    if (number == fatal.load(std::memory_order_relaxed)) [[unlikely]]
        std::raise(fatal_signal.load(std::memory_order_relaxed));
}

std::uint64_t points_passed() noexcept { return passed.load(std::memory_order_relaxed); }

void arm_point(std::uint64_t countdown, int signal) noexcept {
    fatal_signal.store(signal, std::memory_order_relaxed);
    fatal.store(countdown == 0 ? 0 : points_passed() + countdown, std::memory_order_relaxed);
}

}  // namespace tmc
