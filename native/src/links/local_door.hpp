// SPDX-License-Identifier: Apache-2.0
// Where processes of the same user on the same host come in.
#pragma once

#include <cstdint>
#include <string>

#include "base/sockets.hpp"

namespace tmc {

/// A socket file in a folder that only this user can enter; gone when it is closed.
class LocalDoor {
public:
    /// folder  private to this user; "": one made for this door alone, below the temporary folder
    /// Throws Failure.
    LocalDoor(const std::string& folder, std::uint64_t incarnation);
    ~LocalDoor();
    LocalDoor(const LocalDoor&) = delete;
    LocalDoor& operator=(const LocalDoor&) = delete;

    int fd() const noexcept { return fd_; }
    const std::string& path() const noexcept { return path_; }
    void close() noexcept;

private:
    const Birthplace birthplace_;
    std::string own_folder_;  // "": it was given
    std::string path_;
    int fd_ = -1;
};

}  // namespace tmc
