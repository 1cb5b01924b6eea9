// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What is to go wrong, or to take long: numbers by name, from the environment or from a call.

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace fake {

/// `FAKE_NCCL=name=number,name=number` gives the first values; `fakeSet` changes them later.
///
///   version        what ncclGetVersion says
///   init_seat      the seat that the next three are about; -1 is every seat
///   init_slow_ms   its init takes so long
///   init_hang      its init never returns
///   init_fail      its init returns this code, and the others wait until it is aborted
///   connect_ms     the first call of a communicator holds its caller so long
///   kernel_us      a kernel takes at least so long
///   deaf_ms        a kernel looks at the abort flag only after so long
///   error_after    so many calls of a communicator come through; the next one never does, and an
///                  asynchronous error is noted. -1: all come through
///   error_code     that is the asynchronous error
///   call_fails     calls are refused with this code
///   out_of_memory  the last error is said to be that
///   reversed       sums begin with the last seat: other bits
///   revoke         0: ncclCommRevoke refuses, as in a version that has none
///   revoke_after   so many calls of ncclCommRevoke go through; the next one is refused. -1: all do
///   copy_us        a copy takes so long before its first byte moves
///   query_hang     an event is asked about, and nothing is answered while this is set
///   device_error   streams and events answer with this code: the device has fallen off the bus
class Faults {
public:
    static Faults& all() {
        static auto* faults = new Faults;
        return *faults;
    }

    long get(const std::string& name) {
        std::lock_guard lock(mutex_);
        auto found = values_.find(name);
        return found == values_.end() ? 0 : found->second;
    }

    /// Count down by one; whether it was zero.
    bool is_spent(const std::string& name) {
        std::lock_guard lock(mutex_);
        return values_[name]-- == 0;
    }

    void set(const std::string& name, long value) {
        std::lock_guard lock(mutex_);
        values_[name] = value;
    }

private:
    Faults() : values_{{"version", 22809}, {"init_seat", -1}, {"error_after", -1}, {"error_code", 6}, {"revoke", 1}, {"revoke_after", -1}} {
        const char* said = std::getenv("FAKE_NCCL");
        std::string text = said == nullptr ? "" : said;
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find(',', at), text.size());
            size_t equals = text.find('=', at);
            if (equals < end) {
                values_[text.substr(at, equals - at)] = std::atol(text.c_str() + equals + 1);
            }
            at = end + 1;
        }
    }

    std::mutex mutex_;
    std::map<std::string, long> values_;
};

inline long fault(const char* name) {
    return Faults::all().get(name);
}

/// Bytes that calls have moved so far, in this process.
inline std::atomic<long> bytes_moved{0};

/// Communicators that this process has made, and not aborted.
inline std::atomic<long> comms_alive{0};

}  // namespace fake
