// SPDX-License-Identifier: Apache-2.0
#include "links/local_door.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/trouble.hpp"

namespace tmc {
namespace {

constexpr const char* kTemporary = "/tmp";

std::string name_of(std::uint64_t incarnation) {
    std::string name(16, '0');
    for (auto at = name.rbegin(); at != name.rend(); ++at, incarnation >>= 4)
        *at = "0123456789abcdef"[incarnation & 15];
    return name;
}

std::string template_below(const char* folder) { return std::string(folder) + "/trainmover-XXXXXX"; }

/// A folder of this door alone. Of a temporary folder with too long a name no use is made.
std::string made_folder(const std::string& name) {
    const char* given = std::getenv("TMPDIR");
    auto folder = template_below(given == nullptr || *given != '/' ? kTemporary : given);
    if (folder.size() + 1 + name.size() > kSocketPathMax) folder = template_below(kTemporary);
    if (mkdtemp(folder.data()) == nullptr)
        throw Failure(Why::refused, "no folder for a local socket: " + folder + ": " + std::strerror(errno));
    return folder;
}

void check_private(const std::string& folder) {
    struct stat facts {};
    if (stat(folder.c_str(), &facts) != 0)
        throw Failure(Why::refused, "no folder for a local socket: " + folder + ": " + std::strerror(errno));
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 077) != 0)
        throw Failure(Why::refused, "local sockets may not lie in " + folder +
                                        ": it is no folder that only this user can enter (mode 0700)");
}

}  // namespace

LocalDoor::LocalDoor(const std::string& folder, std::uint64_t incarnation) {
    const auto name = name_of(incarnation);
    if (folder.empty())
        own_folder_ = made_folder(name);
    else
        check_private(folder);
    path_ = (folder.empty() ? own_folder_ : folder) + "/" + name;
    try {
        fd_ = listen_local(path_);
    } catch (const Failure&) {
        close();
        throw;
    }
}

LocalDoor::~LocalDoor() {
    if (birthplace_.here()) close();
}

void LocalDoor::close() noexcept {
    if (fd_ >= 0) unlink(path_.c_str());
    close_fd(std::exchange(fd_, -1));
    if (!own_folder_.empty()) rmdir(own_folder_.c_str());
    own_folder_.clear();
}

}  // namespace tmc
