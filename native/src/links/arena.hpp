// SPDX-License-Identifier: Apache-2.0
// Memory that one process writes and its peers on the same host read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/points.hpp"
#include "base/sockets.hpp"
#include "links/life.hpp"

namespace tmc {

/// This process's own shared memory: one sealed memfd, without a name, gone with its last user.
///
/// Peers get a descriptor that can only be read and mapped for reading, so every word in it has one
/// writer. It is large and
/// sparse: pages exist from the first write until their region is given back. Its first page tells
/// whether the process lives.
class Arena {
public:
    /// Throws Failure when the system gives no such memory.
    explicit Arena(std::size_t bytes);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// What peers get.
    int fd() const noexcept { return shown_fd_; }
    LifeWord& life() const noexcept { return *reinterpret_cast<LifeWord*>(base_); }
    std::byte* at(std::uint64_t offset) const noexcept { return base_ + offset; }

    /// Offset of `bytes` of zeroed memory. Throws Failure when the arena is full.
    std::uint64_t take(std::size_t bytes);
    /// Give a region back; its pages return to the system.
    void give(std::uint64_t offset, std::size_t bytes) noexcept;
    std::size_t taken() const noexcept;

private:
    const Birthplace birthplace_;
    int fd_ = -1;
    int shown_fd_ = -1;
    std::byte* base_ = nullptr;
    std::size_t size_;
    std::size_t taken_ = 0;
    mutable Mutex mutex_;
    std::map<std::uint64_t, std::size_t> free_;  // offset -> bytes, neighbours merged
};

/// A peer's arena as seen from here.
class Mapping {
public:
    /// Takes the descriptor and closes it. Throws Failure unless it is memory that cannot shrink:
    /// one that could would kill its readers.
    explicit Mapping(int fd);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    const LifeWord& life() const noexcept { return *reinterpret_cast<const LifeWord*>(base_); }
    /// Null when the region does not lie inside.
    const std::byte* region(std::uint64_t offset, std::size_t bytes) const noexcept;

private:
    const Birthplace birthplace_;
    const std::byte* base_ = nullptr;
    std::size_t size_ = 0;
};

/// Have the pages of a region in place before they are needed.
void populate(const std::byte* at, std::size_t bytes, bool writing) noexcept;

}  // namespace tmc
