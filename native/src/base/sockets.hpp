// SPDX-License-Identifier: Apache-2.0
// Sockets, descriptors that a fork must not inherit, and nothing about what is said over them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tmc {

inline constexpr std::size_t kSocketPathMax = 107;

/// Have a forked child close the descriptor: a child that holds a link hides its parent's death.
void fork_closes(int fd) noexcept;
/// Close it, and forget that a child should.
void close_fd(int fd) noexcept;

/// The process that something was made in. What a forked child inherits works in its parent only:
/// its threads do not exist there, its memory is not mapped, its descriptors are closed.
class Birthplace {
public:
    Birthplace() noexcept;
    bool here() const noexcept;

private:
    std::uint64_t generation_;
};

/// Non-blocking, CLOEXEC. All of these throw Failure with the address and the system's reason.
int listen_tcp(const std::string& address, std::uint16_t& port_chosen);
int listen_local(const std::string& path);
/// A connection that is being made: once it can be written to, `connected` says whether it was.
int dial_tcp(const std::string& address);
void connected(int fd, const std::string& address);
/// A connection, or -1: so many wait there already that no other can, just now. Refuses what another
/// user's process listens at.
int dial_local(const std::string& path);
/// A connection waiting at the listener; -1 when there is none.
int accept_from(int listener) noexcept;
/// Whether an error of accept says that there is no descriptor, or no memory for a socket, just now.
bool is_shortage(int error) noexcept;

/// Whether the process at the other end of a local connection is of the same user.
bool same_user(int fd) noexcept;
/// Close a local connection whose peer has not proved itself. What he has sent may hold descriptors,
/// and to close the last one of a socket may take as long as he likes (SO_LINGER), so where there is
/// something unread it is done in a thread of its own.
void close_stranger(int fd) noexcept;

void tune_tcp(int fd) noexcept;
int new_event_fd();
int new_epoll();
/// Have the epoll descriptor report that one's events, as `id`. Throws Failure where the system cannot.
void hang(int epoll_fd, int fd, std::uint64_t id, std::uint32_t events);
void ring(int event_fd) noexcept;
void drain_event(int event_fd) noexcept;
/// Runs out once, `ns` after it was started last.
int new_timer_fd();
void start_timer(int timer_fd, std::int64_t ns) noexcept;
/// Whether it has, since that was asked last.
bool has_run_out(int timer_fd) noexcept;
std::uint64_t inode_of(int fd) noexcept;

/// Write all of it at once, with `pass_fd` if it is not negative. False: there was no room, or it failed.
bool send_all(int fd, const void* data, std::size_t bytes, int pass_fd = -1) noexcept;
/// One read: bytes, 0 at the end, -1 with errno. EPROTO: descriptors came along. They are left where
/// they are; also to drop them unseen would be to close them, see `close_stranger`.
long read_some(int fd, void* data, std::size_t bytes) noexcept;
/// One byte and the one descriptor that comes with it, likewise. EPROTO: there was none.
long read_descriptor(int fd, int& passed) noexcept;

std::int64_t now_ns() noexcept;
/// The moment at which `now_ns` is that, for waits on conditions.
std::chrono::steady_clock::time_point moment(std::int64_t ns) noexcept;

}  // namespace tmc
