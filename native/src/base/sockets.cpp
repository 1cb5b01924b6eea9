// SPDX-License-Identifier: Apache-2.0
#include "base/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/trouble.hpp"

namespace tmc {
namespace {

// A child of fork may take no lock, so the table is plain atomics.
constexpr std::size_t kDescriptors = 16384;
std::array<std::atomic<bool>, kDescriptors> closed_by_fork{};
std::atomic<std::uint64_t> generation{0};  // Forks between the first user of this and this process.
std::once_flag fork_handler;

void in_child() {
    generation.fetch_add(1);
    for (std::size_t fd = 0; fd < kDescriptors; ++fd)
        if (closed_by_fork[fd].exchange(false)) close(static_cast<int>(fd));
}

[[noreturn]] void refuse(const std::string& what, const std::string& address) {
    throw Failure(Why::peer_lost, what + " " + address + ": " + std::strerror(errno));
}

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
    int family = AF_INET;
};

/// "10.0.0.1:80" or "[fe80::1]:80"; numbers only, so that no name server can make us wait.
Address parsed(const std::string& text) {
    Address result;
    const auto colon = text.rfind(':');
    if (colon == std::string::npos)
        throw Failure(Why::refused, "'" + text + "' is no address, 10.0.0.1:29500 would be one");
    auto host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    char* end = nullptr;
    const auto port = std::strtol(text.c_str() + colon + 1, &end, 10);
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    const bool port_good = end != nullptr && *end == '\0' && port >= 0 && port <= 65535;
    if (port_good && inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(static_cast<std::uint16_t>(port));
        result.length = sizeof *v4;
    } else if (port_good && inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(static_cast<std::uint16_t>(port));
        result.length = sizeof *v6;
        result.family = AF_INET6;
    } else {
        throw Failure(Why::refused, "'" + text + "' is no address, 10.0.0.1:29500 would be one");
    }
    return result;
}

sockaddr_un local_address(const std::string& path) {
    if (path.empty() || path.front() != '/')
        throw Failure(Why::refused, "'" + path + "' is no path of a local socket");
    if (path.size() > kSocketPathMax)
        throw Failure(Why::refused, "the path of a local socket is too long: " + path + " has " +
                                        std::to_string(path.size()) + " bytes, " +
                                        std::to_string(kSocketPathMax) +
                                        " are possible; a folder with a shorter name is needed");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

int new_socket(int family, const std::string& address) {
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) refuse("no socket for", address);
    fork_closes(fd);
    return fd;
}

}  // namespace

void fork_closes(int fd) noexcept {
    std::call_once(fork_handler, [] { pthread_atfork(nullptr, nullptr, in_child); });
    if (fd >= 0 && static_cast<std::size_t>(fd) < kDescriptors)
        closed_by_fork[static_cast<std::size_t>(fd)].store(true, std::memory_order_relaxed);
}

void close_fd(int fd) noexcept {
    if (fd < 0) return;
    if (static_cast<std::size_t>(fd) < kDescriptors)
        closed_by_fork[static_cast<std::size_t>(fd)].store(false, std::memory_order_relaxed);
    close(fd);
}

Birthplace::Birthplace() noexcept : generation_(generation.load()) {}

bool Birthplace::here() const noexcept { return generation_ == generation.load(); }

int listen_tcp(const std::string& address, std::uint16_t& port_chosen) {
    const auto to = parsed(address.find(':') == address.rfind(':') && address.find(':') != address.npos
                               ? address
                               : address + ":0");
    const int fd = new_socket(to.family, address);
    const auto* plain = reinterpret_cast<const sockaddr*>(&to.storage);
    if (bind(fd, plain, to.length) != 0 || listen(fd, 512) != 0) {
        const int error = errno;
        close_fd(fd);
        errno = error;
        refuse("cannot listen at", address);
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
    port_chosen = ntohs(to.family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                             : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
    return fd;
}

int listen_local(const std::string& path) {
    const auto to = local_address(path);
    const int fd = new_socket(AF_UNIX, path);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 || listen(fd, 512) != 0) {
        const int error = errno;
        close_fd(fd);
        errno = error;
        refuse("cannot listen at", path);
    }
    return fd;
}

int dial_tcp(const std::string& address) {
    const auto to = parsed(address);
    const int fd = new_socket(to.family, address);
    const auto* plain = reinterpret_cast<const sockaddr*>(&to.storage);
    if (connect(fd, plain, to.length) == 0 || errno == EINPROGRESS) return fd;
    const int error = errno;
    close_fd(fd);
    errno = error;
    refuse("cannot connect to", address);
}

void connected(int fd, const std::string& address) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    if (error != 0) refuse("cannot connect to", address);
    tune_tcp(fd);
}

int dial_local(const std::string& path) {
    const auto to = local_address(path);
    const int fd = new_socket(AF_UNIX, path);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
        const int error = errno;
        close_fd(fd);
        // A full backlog answers EAGAIN at once, and nothing tells when there is room again.
        if (error == EAGAIN) return -1;
        errno = error;
        refuse("cannot connect to", path);
    }
    if (!same_user(fd)) {
        close_stranger(fd);
        throw Failure(Why::refused, "what listens at " + path + " is another user's process");
    }
    return fd;
}

bool same_user(int fd) noexcept {
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void close_stranger(int fd) noexcept {
    if (fd < 0) return;
    shutdown(fd, SHUT_RDWR);  // From here on nothing can be added to what waits to be read.
    char byte = 0;
    if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return close_fd(fd);
    try {
        std::thread([fd] { close_fd(fd); }).detach();
    } catch (const std::system_error&) {
        close_fd(fd);
    }
}

int accept_from(int listener) noexcept {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) fork_closes(fd);
    return fd;
}

bool is_shortage(int error) noexcept {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void tune_tcp(int fd) noexcept {
    const int on = 1;
    const int idle_s = 10;
    const int interval_s = 5;
    const int probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // For hosts that lose power. A stopped process is not seen by this; that is others' business.
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
        peer.sin_family == AF_INET && ntohl(peer.sin_addr.s_addr) >> 24 == 127)
        // bbr, where it is the default, paces a loopback that needs no pacing.
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

int new_event_fd() {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) refuse("no event descriptor", "");
    fork_closes(fd);
    return fd;
}

int new_timer_fd() {
    const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) refuse("no timer descriptor", "");
    fork_closes(fd);
    return fd;
}

void start_timer(int timer_fd, std::int64_t ns) noexcept {
    itimerspec once{};
    once.it_value.tv_sec = ns / 1'000'000'000;
    once.it_value.tv_nsec = ns % 1'000'000'000;
    timerfd_settime(timer_fd, 0, &once, nullptr);
}

bool has_run_out(int timer_fd) noexcept {
    std::uint64_t times = 0;
    return read(timer_fd, &times, sizeof times) == sizeof times;
}

int new_epoll() {
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) refuse("no epoll descriptor", "");
    fork_closes(fd);
    return fd;
}

void hang(int epoll_fd, int fd, std::uint64_t id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        throw Failure(Why::refused, std::string("cannot watch a descriptor: ") + std::strerror(errno));
}

void ring(int event_fd) noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(event_fd, &one, sizeof one);
}

void drain_event(int event_fd) noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = read(event_fd, &count, sizeof count);
}

std::uint64_t inode_of(int fd) noexcept {
    struct stat facts {};
    return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

bool send_all(int fd, const void* data, std::size_t bytes, int pass_fd) noexcept {
    iovec part{const_cast<void*>(data), bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    if (pass_fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        auto* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &pass_fd, sizeof pass_fd);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

long read_some(int fd, void* data, std::size_t bytes) noexcept {
    iovec part{data, bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const auto n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
    if (n <= 0) return n;
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        errno = EPROTO;
        return -1;
    }
    return recv(fd, data, static_cast<std::size_t>(n), MSG_DONTWAIT);
}

long read_descriptor(int fd, int& passed) noexcept {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) return n;
    const auto* head = CMSG_FIRSTHDR(&message);
    if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof(int))) {
        errno = EPROTO;
        return -1;
    }
    std::memcpy(&passed, CMSG_DATA(head), sizeof passed);
    return n;
}

std::int64_t now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::chrono::steady_clock::time_point moment(std::int64_t ns) noexcept {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace tmc
