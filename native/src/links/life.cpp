// SPDX-License-Identifier: Apache-2.0
#include "links/life.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tmc {
namespace {

/// The list that the kernel walks when the thread ends, with the one word on it.
thread_local robust_list_head held{};

}  // namespace

void LifeWord::hold() noexcept {
    next = &held.list;
    word.store(static_cast<std::uint32_t>(syscall(SYS_gettid)), std::memory_order_release);
    held.list.next = reinterpret_cast<robust_list*>(&next);
    held.futex_offset = static_cast<long>(offsetof(LifeWord, word));
    held.list_op_pending = nullptr;
    // The thread is ours and holds no robust mutex of the C library.
    syscall(SYS_set_robust_list, &held, sizeof held);
}

void LifeWord::release() noexcept {
    held.list.next = &held.list;
    word.store(0, std::memory_order_release);
}

bool LifeWord::died() const noexcept {
    return (word.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

}  // namespace tmc
