// SPDX-License-Identifier: Apache-2.0
// A word in shared memory that tells, at once, when its owner is killed.
//
// A socket tells too, but only after the kernel has taken down the victim's memory: 10 ms for a small
// training process, more for a large one. The list of robust futexes is walked before that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tmc {

/// Lies at the beginning of an arena; what is not the word is read by the kernel alone.
struct LifeWord {
    void* next = nullptr;
    std::atomic<std::uint32_t> word{0};

    /// Have the calling thread hold the word for as long as it lives. Once per thread.
    void hold() noexcept;
    /// The thread ends in good order.
    void release() noexcept;
    /// True once the holder has died without that.
    bool died() const noexcept;
};

inline constexpr std::size_t kLifeBytes = 4096;

}  // namespace tmc
