// SPDX-License-Identifier: Apache-2.0
#include "links/arena.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "base/sockets.hpp"
#include "base/trouble.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace tmc {
namespace {

constexpr std::size_t kGrain = 4096;

std::size_t rounded(std::size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

[[noreturn]] void refuse(const std::string& what) {
    throw Failure(Why::refused, what + ": " + std::strerror(errno));
}

}  // namespace

Arena::Arena(std::size_t bytes) : size_(rounded(bytes)) {
    fd_ = memfd_create("trainmover", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0) refuse("no shared memory");
    const bool sealed = ftruncate(fd_, static_cast<off_t>(size_)) == 0 &&
                        fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    // Not the seal against future writing: no page could be given back any more.
    const auto self = "/proc/self/fd/" + std::to_string(fd_);
    shown_fd_ = sealed ? open(self.c_str(), O_RDONLY | O_CLOEXEC) : -1;
    if (shown_fd_ < 0) {
        const int error = errno;
        close(fd_);
        errno = error;
        refuse("cannot seal shared memory");
    }
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (at == MAP_FAILED) {
        close(fd_);
        close(shown_fd_);
        refuse("cannot map shared memory");
    }
    madvise(at, size_, MADV_DONTFORK);
    base_ = static_cast<std::byte*>(at);
    new (base_) LifeWord;
    free_[kLifeBytes] = size_ - kLifeBytes;
    fork_closes(fd_);
    fork_closes(shown_fd_);
}

Arena::~Arena() {
    if (!birthplace_.here()) return;
    munmap(base_, size_);
    close_fd(fd_);
    close_fd(shown_fd_);
}

std::uint64_t Arena::take(std::size_t bytes) {
    bytes = rounded(bytes);
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        if (it->second < bytes) continue;
        const auto offset = it->first;
        const auto left = it->second - bytes;
        free_.erase(it);
        if (left > 0) free_[offset + bytes] = left;
        taken_ += bytes;
        return offset;
    }
    throw Failure(Why::refused, "shared memory of this process is full: " + std::to_string(taken_) +
                                    " bytes are in use by its groups; destroy groups not needed");
}

void Arena::give(std::uint64_t offset, std::size_t bytes) noexcept {
    bytes = rounded(bytes);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
    const std::lock_guard lock(mutex_);
    taken_ -= bytes;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    free_[offset] = bytes;
}

std::size_t Arena::taken() const noexcept {
    const std::lock_guard lock(mutex_);
    return taken_;
}

Mapping::Mapping(int fd) {
    struct stat facts {};
    const int seals = fcntl(fd, F_GET_SEALS);
    const bool good = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &facts) == 0;
    if (!good || facts.st_size < static_cast<off_t>(kLifeBytes)) {
        close(fd);
        throw Failure(Why::refused, "a peer offered memory that is not sealed");
    }
    size_ = static_cast<std::size_t>(facts.st_size);
    void* at = mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (at == MAP_FAILED) refuse("cannot map a peer's memory");
    madvise(at, size_, MADV_DONTFORK);
    base_ = static_cast<const std::byte*>(at);
}

Mapping::~Mapping() {
    if (birthplace_.here()) munmap(const_cast<std::byte*>(base_), size_);
}

const std::byte* Mapping::region(std::uint64_t offset, std::size_t bytes) const noexcept {
    if (offset % kGrain != 0 || offset > size_ || bytes > size_ - offset) return nullptr;
    return base_ + offset;
}

void populate(const std::byte* at, std::size_t bytes, bool writing) noexcept {
    // Older kernels do not know this; the pages then come one by one at the first use.
    madvise(const_cast<std::byte*>(at), rounded(bytes),
            writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

}  // namespace tmc
