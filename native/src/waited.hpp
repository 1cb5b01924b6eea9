// How long a thread has waited for other seats: what it has done beside that is its own.
//
// Only where a wait begins: who finds what it looks for reads no clock. A call that another thread of
// this process carries out is waited for like one of another seat.
#pragma once

#include <cstdint>

#include "sockets.hpp"

namespace tmc {

/// Of the running thread, since it began.
inline thread_local std::int64_t waited_ns = 0;

/// While it lives, the running thread waits. One at a time: no wait lies in another.
class Waited {
public:
    Waited() noexcept : since_ns_(now_ns()) {}
    ~Waited() { waited_ns += now_ns() - since_ns_; }
    Waited(const Waited&) = delete;
    Waited& operator=(const Waited&) = delete;

private:
    std::int64_t since_ns_;
};

}  // namespace tmc
