#include "points.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace tmc {
namespace {

std::atomic<std::uint64_t> passed{0};
std::atomic<std::uint64_t> fatal{0};  // The number of the point that ends the process; 0: none.
std::atomic<int> fatal_signal{0};
std::atomic<std::uint64_t> delay_seed{0};
std::atomic<std::uint32_t> delay_most_us{0};

constexpr std::uint64_t kDelayedOf = 4;

void hold_up(std::uint64_t number, std::uint32_t most_us) noexcept {
    auto chance = (number + delay_seed.load(std::memory_order_relaxed)) * 0x9e3779b97f4a7c15;
    chance = (chance ^ chance >> 32) * 0xff51afd7ed558ccd;
    if (chance >> 33 & (kDelayedOf - 1)) return;
    usleep(static_cast<useconds_t>((chance >> 40) % most_us));
}

}  // namespace

void point() noexcept {
    const auto number = passed.fetch_add(1, std::memory_order_relaxed) + 1;
    if (number == fatal.load(std::memory_order_relaxed)) [[unlikely]]
        std::raise(fatal_signal.load(std::memory_order_relaxed));
    const auto most_us = delay_most_us.load(std::memory_order_relaxed);
    if (most_us != 0) [[unlikely]] hold_up(number, most_us);
}

std::uint64_t points_passed() noexcept { return passed.load(std::memory_order_relaxed); }

void arm_point(std::uint64_t countdown, int signal) noexcept {
    fatal_signal.store(signal, std::memory_order_relaxed);
    fatal.store(countdown == 0 ? 0 : points_passed() + countdown, std::memory_order_relaxed);
}

void delay_points(std::uint64_t seed, std::uint32_t most_us) noexcept {
    delay_seed.store(seed, std::memory_order_relaxed);
    delay_most_us.store(most_us, std::memory_order_relaxed);
}

}  // namespace tmc
