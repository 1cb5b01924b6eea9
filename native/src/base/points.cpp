// SPDX-License-Identifier: Apache-2.0
#include "base/points.hpp"

#ifdef TRAINMOVER_POINTS

#include <sched.h>
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
std::atomic<std::uint64_t> threads{0};
std::atomic<std::uint32_t> codes_more{0};

constexpr std::uint64_t kBusyPlaces = 8;  // One in so many places is one where many are held up:
constexpr std::uint64_t kOftenOf = 4;     // there one in so many,
constexpr std::uint64_t kSeldomOf = 32;   // and so many elsewhere.
constexpr std::uint64_t kYieldOf = 4;
constexpr std::uint64_t kLongOf = 16;    // One in so many is
constexpr std::uint32_t kLonger = 10;    // so much longer.

thread_local const std::atomic<bool>* still_while = nullptr;

std::uint64_t mixed(std::uint64_t sum, std::uint64_t value) noexcept {
    sum = (sum ^ value) * 0xff51afd7ed558ccd;
    return sum ^ sum >> 32;
}

/// What chance says to this thread: a row of its own, by the order in which threads came.
std::uint64_t drawn(std::uint64_t seed) noexcept {
    thread_local const auto thread = threads.fetch_add(1, std::memory_order_relaxed);
    thread_local std::uint64_t turn = 0;
    return mixed(mixed(seed, thread + 1), ++turn * 0x9e3779b97f4a7c15);
}

/// place  an address in the code that came by, the same in every run of one build
void hold_up(std::uint64_t place) noexcept {
    while (still_while != nullptr && still_while->load()) usleep(100);
    const auto most_us = delay_most_us.load(std::memory_order_relaxed);
    if (most_us == 0) [[likely]] return;
    const auto seed = delay_seed.load(std::memory_order_relaxed);
    const auto chance = drawn(seed);
    const bool often = mixed(mixed(seed, place), 0x9e3779b97f4a7c15) % kBusyPlaces == 0;
    if (chance % (often ? kOftenOf : kSeldomOf) == 0)
        usleep(static_cast<useconds_t>((chance >> 40) % most_us) * ((chance >> 16) % kLongOf == 0 ? kLonger : 1));
    else if ((chance >> 20) % kYieldOf == 0)
        sched_yield();
}

std::uint64_t place_of(const void* caller) noexcept {
    return reinterpret_cast<std::uint64_t>(caller) - reinterpret_cast<std::uint64_t>(&hold_up);
}

}  // namespace

[[gnu::noinline]] void point() noexcept {
    const auto number = passed.fetch_add(1, std::memory_order_relaxed) + 1;
    if (number == fatal.load(std::memory_order_relaxed)) [[unlikely]]
        std::raise(fatal_signal.load(std::memory_order_relaxed));
    hold_up(place_of(__builtin_return_address(0)));
}

[[gnu::noinline]] void gap() noexcept { hold_up(place_of(__builtin_return_address(0))); }

std::uint64_t points_passed() noexcept { return passed.load(std::memory_order_relaxed); }

void arm_point(std::uint64_t countdown, int signal) noexcept {
    fatal_signal.store(signal, std::memory_order_relaxed);
    fatal.store(countdown == 0 ? 0 : points_passed() + countdown, std::memory_order_relaxed);
}

void delay_points(std::uint64_t seed, std::uint32_t most_us) noexcept {
    delay_seed.store(seed, std::memory_order_relaxed);
    delay_most_us.store(most_us, std::memory_order_relaxed);
}

bool points_delayed() noexcept { return delay_most_us.load(std::memory_order_relaxed) > 0; }

void stand_still_while(const std::atomic<bool>* it) noexcept { still_while = it; }

void repeat_codes(std::uint32_t more) noexcept { codes_more.store(more, std::memory_order_relaxed); }

std::uint32_t codes_repeated() noexcept { return codes_more.load(std::memory_order_relaxed); }

[[gnu::noinline]] void Mutex::lock() {
    hold_up(place_of(__builtin_return_address(0)));
    mutex_.lock();
}

[[gnu::noinline]] void Mutex::unlock() {
    mutex_.unlock();
    hold_up(place_of(__builtin_return_address(0)));
}

}  // namespace tmc

#endif
