// SPDX-License-Identifier: Apache-2.0
/// A stand-in for libnccl, and for the streams and events of a device, in host memory.
///
/// It has libnccl's symbols, as far as `trainmover.comm.nccl` asks for them, and its manners where
/// those matter: a call returns at once and its kernel runs on a stream; a kernel that waits for a
/// seat that is gone spins until its communicator's abort flag is set; who ends a communicator waits
/// for its kernels, so one whose kernel stands behind another communicator's can only be ended
/// together with that; the memory of calls is counted. `faults.hpp` says what may go wrong.
///
/// Sums are in seat order, each partial sum rounded to the type. The real library's order is
/// another: only that it is the same in every run is what both have in common.

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <type_traits>
#include <vector>

#include "faults.hpp"
#include "meeting.hpp"
#include "numbers.hpp"
#include "stream.hpp"

using namespace fake;
using namespace std::chrono_literals;

namespace {

enum Result { OK, UNHANDLED, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE };
enum Kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct Comm {
    int size, seat;
    Shared* shared;
    std::string name;
    uint64_t beat = 0, sent[MOST] = {}, received[MOST] = {};
    std::atomic<int> aborting{0}, pending{0}, error{0};
    std::atomic<bool> revoked{false}, connected{false}, failed{false};
    std::atomic<long> calls{0};
    std::map<int, double> factors;
};

struct Call {
    Kind kind;
    const char* in;
    char* out;
    size_t count;
    int type, op, peer;
    double factor;
    size_t bytes() const { return count * size_of(type); }
    Header header() const { return {kind, type, op, peer, count}; }
};

/// A look at the abort flag, as a kernel takes one now and then; deaf ones begin late.
struct Look {
    Comm* comm;
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    unsigned spins = 0;

    /// False: give up.
    bool again() {
        if (++spins % 64 != 0) return true;
        if (comm->aborting && std::chrono::steady_clock::now() - began >= fault("deaf_ms") * 1ms) {
            return false;
        }
        std::this_thread::sleep_for(20us);
        return true;
    }

    template <class F> bool until(F done) {
        while (!done()) {
            if (!again()) return false;
        }
        return true;
    }
};

template <class F>
bool all_seats(Comm* comm, F has) {
    for (int seat = 0; seat < comm->size; ++seat) {
        if (!has(seat)) return false;
    }
    return true;
}

/// Every seat shows at most SLOT bytes and sees those of all. False: aborted, or calls differ.
template <class F>
bool beat(Comm* comm, Look& look, const Call& call, const char* mine, size_t bytes, F take) {
    uint64_t number = ++comm->beat;
    Shared* shared = comm->shared;
    if (!look.until([&] { return all_seats(comm, [&](int s) { return shared->read[s] >= number - 1; }); })) return false;
    std::memcpy(shared->slot[comm->seat], mine, bytes);
    shared->header[comm->seat] = call.header();
    shared->posted[comm->seat] = number;
    bytes_moved += static_cast<long>(bytes);
    if (!look.until([&] { return all_seats(comm, [&](int s) { return shared->posted[s] >= number; }); })) return false;
    bool alike = all_seats(comm, [&](int s) { return shared->header[s] == call.header(); });
    if (alike) take();
    shared->read[comm->seat] = number;
    if (!alike) comm->error = USAGE;
    return alike;
}

/// The sum of what lies in the slots, from the first seat to the last.
void sum(Comm* comm, char* into, size_t count, const Call& call) {
    size_t bytes = count * size_of(call.type);
    bool backwards = fault("reversed") != 0;
    auto slot = [&](int nth) { return comm->shared->slot[backwards ? comm->size - 1 - nth : nth]; };
    std::memcpy(into, slot(0), bytes);
    with_type(call.type, [&]<class T>() {
        for (int nth = 1; nth < comm->size; ++nth) add<T>(into, slot(nth), count, call.op);
        if constexpr (std::is_integral_v<T>) {
            if (call.op == AVG) divide<T>(into, count, comm->size);
        }
    });
}

/// What a seat shows of its values in a reduction: they are multiplied before they are added.
std::vector<char> given(Comm* comm, const Call& call, const char* from, size_t count) {
    std::vector<char> shown(from, from + count * size_of(call.type));
    bool average = call.op == AVG && is_floating(call.type);
    double factor = average ? 1.0 / comm->size : call.factor;
    if (average || call.op >= FIRST_OWN) {
        with_type(call.type, [&]<class T>() { scale<T>(shown.data(), count, factor); });
    }
    return shown;
}

bool collective(Comm* comm, Look& look, const Call& call) {
    size_t width = size_of(call.type), most = SLOT / width;
    int parts = call.kind == REDUCE_SCATTER ? comm->size : 1;
    for (int part = 0; part < parts; ++part) {
        for (size_t at = 0; at < std::max<size_t>(call.count, 1); at += most) {
            size_t count = std::min(most, call.count - at), bytes = count * width;
            const char* from = call.in + (static_cast<size_t>(part) * call.count + at) * width;
            char* to = call.out + at * width;
            bool ok = true;
            if (call.kind == ALL_GATHER) {
                ok = beat(comm, look, call, from, bytes, [&] {
                    for (int s = 0; s < comm->size; ++s) {
                        std::memcpy(to + static_cast<size_t>(s) * call.bytes(), comm->shared->slot[s], bytes);
                    }
                });
            } else if (call.kind == BROADCAST) {
                bool root = comm->seat == call.peer;
                ok = beat(comm, look, call, from, root ? bytes : 0, [&] {
                    if (!root || to != from) std::memcpy(to, comm->shared->slot[call.peer], bytes);
                });
            } else {
                auto shown = given(comm, call, from, count);
                int owner = call.kind == REDUCE ? call.peer : call.kind == REDUCE_SCATTER ? part : comm->seat;
                ok = beat(comm, look, call, shown.data(), bytes, [&] {
                    if (owner == comm->seat) sum(comm, to, count, call);
                });
            }
            if (!ok) return false;
        }
    }
    return true;
}

/// A message on its way, a box at a time.
struct Message {
    Call call;
    size_t done = 0;
    bool over = false;

    /// Whether anything moved.
    bool move(Comm* comm) {
        bool sends = call.kind == SEND;
        Box& box = sends ? comm->shared->box[comm->seat][call.peer] : comm->shared->box[call.peer][comm->seat];
        uint64_t& number = sends ? comm->sent[call.peer] : comm->received[call.peer];
        size_t bytes = std::min(BOX, call.bytes() - done);
        if (sends) {
            if (box.taken < number) return false;
            std::memcpy(box.data, call.in + done, bytes);
            box.bytes = call.bytes();
            box.full = ++number;
            bytes_moved += static_cast<long>(bytes);
        } else {
            if (box.full <= number) return false;
            if (box.bytes != call.bytes()) comm->error = USAGE;
            std::memcpy(call.out + done, box.data, bytes);
            box.taken = ++number;
        }
        done += bytes;
        over = done >= call.bytes();
        return true;
    }
};

bool messages(Comm* comm, Look& look, std::vector<Message>& letters) {
    auto left = [&] { return std::any_of(letters.begin(), letters.end(), [](auto& m) { return !m.over; }); };
    while (left()) {
        bool moved = false;
        for (auto& letter : letters) {
            // A letter waits for the one before it between the same two seats.
            bool first = true;
            for (auto& other : letters) {
                if (&other == &letter) break;
                if (!other.over && other.call.kind == letter.call.kind && other.call.peer == letter.call.peer) first = false;
            }
            if (!letter.over && first) moved |= letter.move(comm);
        }
        if (!moved && !look.again()) return false;
    }
    return true;
}

void kernel(Comm* comm, const std::vector<Call>& calls) {
    Look look{comm};
    auto begin = std::chrono::steady_clock::now();
    auto least = fault("kernel_us") * 1us;
    bool goes_on = look.until([&] { return std::chrono::steady_clock::now() - begin >= least; });
    long after = fault("error_after");
    if (goes_on && after >= 0 && comm->calls > after) {
        comm->error = static_cast<int>(fault("error_code"));
        goes_on = look.until([] { return false; });
    }
    std::vector<Message> letters;
    for (const Call& call : calls) {
        if (call.kind == SEND || call.kind == RECV) letters.push_back({call});
        else if (goes_on) goes_on = collective(comm, look, call);
    }
    if (goes_on && !letters.empty()) messages(comm, look, letters);
    --comm->pending;
}

// --- ncclGroup --------------------------------------------------------------------------------------

struct Launch {
    Comm* comm;
    Stream* stream;
    Call call;
};

thread_local int depth = 0;
thread_local std::vector<Launch> launches;
thread_local std::vector<Comm*> ending;
thread_local bool ending_frees = false;

int run(std::vector<Launch> all) {
    std::vector<std::pair<std::pair<Comm*, Stream*>, std::vector<Call>>> kernels;
    for (auto& [comm, stream, call] : all) {
        auto place = std::pair{comm, stream};
        auto found = std::find_if(kernels.begin(), kernels.end(), [&](auto& k) { return k.first == place; });
        if (found == kernels.end()) found = kernels.insert(kernels.end(), {place, {}});
        found->second.push_back(call);
    }
    for (auto& [place, calls] : kernels) {
        auto* comm = place.first;
        if (comm->revoked || comm->aborting) return USAGE;
        if (!comm->connected.exchange(true)) {
            auto until = std::chrono::steady_clock::now() + fault("connect_ms") * 1ms;
            while (std::chrono::steady_clock::now() < until && !comm->aborting) std::this_thread::sleep_for(100us);
            if (comm->aborting) return INTERNAL;
        }
        ++comm->pending;
        ++comm->calls;
        place.second->push([comm, calls = std::move(calls)] { kernel(comm, calls); });
    }
    return OK;
}

int launch(Comm* comm, void* stream, Call call) {
    if (comm == nullptr || stream == nullptr) return ARGUMENT;
    if (long code = fault("call_fails")) return static_cast<int>(code);
    if (call.op >= FIRST_OWN) call.factor = comm->factors[call.op];
    Launch one{comm, static_cast<Stream*>(stream), call};
    if (depth == 0) return run({one});
    launches.push_back(one);
    return OK;
}

/// All flags first, then wait for all: kernels may stand behind one another.
void end(const std::vector<Comm*>& comms, bool frees) {
    for (auto* comm : comms) {
        comm->revoked = true;
        comm->aborting = 1;
    }
    for (auto* comm : comms) {
        while (comm->pending != 0) std::this_thread::sleep_for(50us);
    }
    for (auto* comm : comms) {
        comm->aborting = 0;
        if (!frees) continue;
        if (comm->failed) comm->shared->arrived = -MOST;
        munmap(comm->shared, sizeof(Shared));
        delete comm;
        --comms_alive;
    }
}

int end_or_defer(Comm* comm, bool frees) {
    if (comm == nullptr) return ARGUMENT;
    if (depth == 0) {
        end({comm}, frees);
        return OK;
    }
    ending.push_back(comm);
    ending_frees = frees;
    return OK;
}

int arrive(Comm* comm) {
    int seat = static_cast<int>(fault("init_seat"));
    if (seat < 0 || seat == comm->seat) {
        std::this_thread::sleep_for(fault("init_slow_ms") * 1ms);
        while (fault("init_hang") != 0) std::this_thread::sleep_for(1ms);
        if (long code = fault("init_fail")) {
            comm->failed = true;
            return static_cast<int>(code);
        }
    }
    Shared* shared = comm->shared;
    shared->process[comm->seat] = getpid();
    ++shared->arrived;
    while (shared->arrived != comm->size) {
        if (shared->arrived < 0) return REMOTE;
        for (int s = 0; s < comm->size; ++s) {
            int process = shared->process[s];
            if (process != 0 && !lives(process)) return REMOTE;
        }
        std::this_thread::sleep_for(500us);
    }
    return OK;
}

}  // namespace

extern "C" {

struct ncclUniqueId { char internal[128]; };

// --- what a device does -----------------------------------------------------------------------------

void fakeSet(const char* name, long value) { Faults::all().set(name, value); }
long fakeGet(const char* name) { return fault(name); }
long fakeBytes() { return bytes_moved; }
long fakeComms() { return comms_alive; }

void* fakeStreamCreate() { return new Stream; }
int fakeStreamQuery(void* stream) {
    if (long code = fault("device_error")) return static_cast<int>(code);
    return static_cast<Stream*>(stream)->empty() ? 0 : 600;
}
/// Every stream in turn, so long at most for each.
int fakeDeviceSynchronize(long us) {
    if (long code = fault("device_error")) return static_cast<int>(code);
    for (auto* stream : Stream::all()) {
        if (!stream->await_empty(us * 1us)) return 600;
    }
    return 0;
}
/// A kernel of the script: it only takes so long.
void fakeCompute(void* stream, long us) {
    static_cast<Stream*>(stream)->push([us] { std::this_thread::sleep_for(us * 1us); });
}
void fakeCopy(void* to, const void* from, size_t bytes, void* stream) {
    static_cast<Stream*>(stream)->push([=] {
        std::this_thread::sleep_for(fault("copy_us") * 1us);
        std::memcpy(to, from, bytes);
    });
}

/// A job of the caller's own, in the stream's thread.
void fakeRun(void* stream, void (*job)()) { static_cast<Stream*>(stream)->push([job] { job(); }); }

using Held = std::shared_ptr<Event>;
void* fakeEventCreate() { return new Held(std::make_shared<Event>()); }
void fakeEventDestroy(void* event) { delete static_cast<Held*>(event); }
int fakeEventRecord(void* event, void* stream) {
    if (long code = fault("device_error")) return static_cast<int>(code);
    auto& held = *static_cast<Held*>(event);
    held->record(held, *static_cast<Stream*>(stream));
    return 0;
}
int fakeEventQuery(void* event) {
    while (fault("query_hang") != 0) std::this_thread::sleep_for(1ms);
    if (long code = fault("device_error")) return static_cast<int>(code);
    return (*static_cast<Held*>(event))->has_come() ? 0 : 600;
}
int fakeEventSynchronize(void* event, long us) {
    if (long code = fault("device_error")) return static_cast<int>(code);
    return (*static_cast<Held*>(event))->await_newest(us * 1us) ? 0 : 600;
}
void fakeStreamWaitEvent(void* stream, void* event) {
    auto held = *static_cast<Held*>(event);
    uint64_t number = held->newest();
    static_cast<Stream*>(stream)->push([held, number] { held->await(number); });
}

// --- what libnccl does ------------------------------------------------------------------------------

int ncclGetVersion(int* version) {
    *version = static_cast<int>(fault("version"));
    return OK;
}

const char* ncclGetErrorString(int code) {
    static const char* texts[] = {"no error", "unhandled cuda error", "unhandled system error",
        "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error"};
    return code >= 0 && code < 7 ? texts[code] : "unknown result code";
}

const char* ncclGetLastError(Comm*) {
    return fault("out_of_memory") ? "Cuda failure 2 'out of memory'" : "the stand-in says so";
}

int ncclGetUniqueId(ncclUniqueId* id) {
    std::memset(id, 0, sizeof *id);
    std::random_device chance;
    const char* run = std::getenv("FAKE_NCCL_RUN");
    snprintf(id->internal, sizeof id->internal, "/fake-nccl-%.60s-%08x%08x", run == nullptr ? "0" : run, chance(), chance());
    return OK;
}

int ncclCommInitRankConfig(Comm** out, int size, ncclUniqueId id, int seat, void*) {
    if (size > MOST || seat < 0 || seat >= size) return ARGUMENT;
    Shared* shared = open_shared(id.internal);
    if (shared == nullptr) return SYSTEM;
    auto* comm = new Comm;
    ++comms_alive;
    comm->size = size;
    comm->seat = seat;
    comm->shared = shared;
    comm->name = id.internal;
    int code = arrive(comm);
    if (comm->failed) {
        *out = comm;
        return code;
    }
    if (code != OK) shared->arrived = -MOST;
    if (code == OK && seat == 0) shm_unlink(id.internal);  // Else late seats would wait in another one.
    if (code != OK) {
        munmap(shared, sizeof(Shared));
        delete comm;
        --comms_alive;
        return code;
    }
    *out = comm;
    return OK;
}

int ncclCommGetAsyncError(Comm* comm, int* code) {
    *code = comm->error;
    return OK;
}
int ncclCommRevoke(Comm* comm, int) {
    bool refused = fault("revoke") == 0 || Faults::all().is_spent("revoke_after");
    return refused ? USAGE : end_or_defer(comm, false);
}
int ncclCommAbort(Comm* comm) { return end_or_defer(comm, true); }

int ncclGroupStart() {
    ++depth;
    return OK;
}
int ncclGroupEnd() {
    if (depth == 0) return USAGE;
    if (--depth != 0) return OK;
    auto all = std::move(launches);
    auto over = std::move(ending);
    launches.clear();
    ending.clear();
    if (!over.empty()) end(over, ending_frees);
    return all.empty() ? OK : run(std::move(all));
}

int ncclRedOpCreatePreMulSum(int* op, void* factor, int type, int, Comm* comm) {
    *op = FIRST_OWN + static_cast<int>(comm->factors.size());
    with_type(type, [&]<class T>() {
        T value;
        std::memcpy(&value, factor, sizeof value);
        comm->factors[*op] = static_cast<double>(static_cast<typename Wide<T>::type>(value));
    });
    return OK;
}
int ncclRedOpDestroy(int, Comm*) { return OK; }

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* comm, void* stream) {
    return launch(comm, stream, {ALL_REDUCE, static_cast<const char*>(in), static_cast<char*>(out), count, type, op, 0, 1});
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm, void* stream) {
    return launch(comm, stream, {BROADCAST, static_cast<const char*>(in), static_cast<char*>(out), count, type, 0, root, 1});
}
int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* comm, void* stream) {
    return launch(comm, stream, {REDUCE, static_cast<const char*>(in), static_cast<char*>(out), count, type, op, root, 1});
}
int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* comm, void* stream) {
    return launch(comm, stream, {ALL_GATHER, static_cast<const char*>(in), static_cast<char*>(out), count, type, 0, 0, 1});
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* comm, void* stream) {
    return launch(comm, stream, {REDUCE_SCATTER, static_cast<const char*>(in), static_cast<char*>(out), count, type, op, 0, 1});
}
int ncclSend(const void* in, size_t count, int type, int peer, Comm* comm, void* stream) {
    return launch(comm, stream, {SEND, static_cast<const char*>(in), nullptr, count, type, 0, peer, 1});
}
int ncclRecv(void* out, size_t count, int type, int peer, Comm* comm, void* stream) {
    return launch(comm, stream, {RECV, nullptr, static_cast<char*>(out), count, type, 0, peer, 1});
}

}  // extern "C"
