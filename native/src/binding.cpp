// The library as Python sees it. Pointers are ints: whoever passes them keeps the memory alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives.hpp"
#include "endpoint.hpp"
#include "frame.hpp"
#include "group.hpp"
#include "points.hpp"
#ifndef Py_LIMITED_API
#include "python/asked.hpp"
#include "python/packed.hpp"
#include "python/stored.hpp"
#include "python/tables.hpp"
#include "python/words.hpp"
#endif
#include "reduce.hpp"
#include "sealed_link.hpp"
#include "sha256.hpp"
#include "sockets.hpp"
#include "waited.hpp"

namespace nb = nanobind;
using namespace tmc;
using namespace nb::literals;

namespace {

using Pointer = std::uint64_t;
using Pointers = std::vector<Pointer>;
using Counts = std::vector<std::uint64_t>;
/// Calls that have given up the GIL and must get it back. The interpreter must not end before they
/// have: it would end their threads in the middle of C++.
class Inside {
public:
    Inside() noexcept { ++calls; }
    ~Inside() { --calls; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    static inline std::atomic<int> calls{0};
};

using Released = nb::call_guard<Inside, nb::gil_scoped_release>;

constexpr int kTypes = static_cast<int>(DType::byte1) + 1;
constexpr int kOps = static_cast<int>(Op::bxor) + 1;
constexpr double kForeverS = 1e7;
constexpr std::int64_t kAnyEpoch = Group::kAnyEpoch;

struct Bad : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

Bytes bytes_at(Pointer at) { return reinterpret_cast<Bytes>(at); }
std::vector<Bytes> all_at(const Pointers& at) {
    std::vector<Bytes> result;
    result.reserve(at.size());
    for (const auto pointer : at) result.push_back(bytes_at(pointer));
    return result;
}
std::vector<ConstBytes> all_const(const Pointers& at) {
    const auto plain = all_at(at);
    return {plain.begin(), plain.end()};
}

std::int64_t nanoseconds(double seconds) {
    if (seconds >= kForeverS) return Group::kForeverNs;
    return static_cast<std::int64_t>(std::max(seconds, 0.0) * 1e9);
}

DType type_of(int code) {
    if (code < 0 || code >= kTypes) throw Bad("no such dtype: " + std::to_string(code));
    return static_cast<DType>(code);
}

Op op_of(int code, DType dtype) {
    if (code < 0 || code >= kOps) throw Bad("no such reduce operation: " + std::to_string(code));
    if (!supported(dtype, static_cast<Op>(code)))
        throw Bad("this reduce operation is not defined for elements of this type");
    return static_cast<Op>(code);
}

std::uint32_t seat_in(const Group& group, std::int64_t seat, const char* what) {
    if (seat < 0 || seat >= group.size)
        throw Bad(std::string(what) + " " + std::to_string(seat) + " is no seat of group " + group.name +
                  ", which has " + std::to_string(group.size));
    return static_cast<std::uint32_t>(seat);
}

void one_each(const Group& group, std::size_t given, const char* what) {
    if (given != group.size)
        throw Bad(std::to_string(given) + " " + what + " were given for the " +
                  std::to_string(group.size) + " seats of group " + group.name);
}

/// A ticket, and the group whose queue its waiter may have to run, or whose links it has to move.
struct Handle {
    std::shared_ptr<Ticket> ticket;
    std::shared_ptr<Group> group;
    bool message = false;

    bool wait(double seconds) const {
        const auto patience = nanoseconds(seconds);
        const bool done = message ? group->wait_for_message(*ticket, patience) : group->wait(ticket, patience);
        if (!done) return false;
        if (const auto trouble = ticket->trouble()) throw Failure(trouble);
        return true;
    }
};

using MaybeHandle = std::optional<Handle>;

MaybeHandle submit(const std::shared_ptr<Group>& group, Group::Body body, bool background,
                   std::int64_t epoch) {
    auto ticket = group->submit(std::move(body), background, epoch);
    if (ticket == nullptr) return std::nullopt;
    return Handle{std::move(ticket), group};
}

using Shared = std::shared_ptr<Group>;

MaybeHandle all_reduce(const Shared& g, Pointer data, std::uint64_t count, int dtype, int op,
                       bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto kind = op_of(op, type);
    return submit(g, [=](Session& s) { reduce_to(s, bytes_at(data), count, type, kind, kEverywhere); },
                  background, epoch);
}

MaybeHandle reduce_at(const Shared& g, Pointer data, std::uint64_t count, int dtype, int op,
                      std::int64_t root, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto kind = op_of(op, type);
    const auto to = static_cast<int>(seat_in(*g, root, "root"));
    return submit(g, [=](Session& s) { reduce_to(s, bytes_at(data), count, type, kind, to); },
                  background, epoch);
}

MaybeHandle broadcast_from(const Shared& g, Pointer data, std::uint64_t count, int dtype,
                           std::int64_t root, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto from = seat_in(*g, root, "root");
    return submit(g, [=](Session& s) { broadcast(s, bytes_at(data), count, type, from); }, background, epoch);
}

MaybeHandle all_gather_to(const Shared& g, Pointer input, const Pointers& outputs, std::uint64_t count,
                          int dtype, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    one_each(*g, outputs.size(), "outputs");
    return submit(g,
                  [=, to = all_at(outputs)](Session& s) {
                      all_gather(s, bytes_at(input), to, count, type);
                  },
                  background, epoch);
}

MaybeHandle reduce_scatter_to(const Shared& g, const Pointers& inputs, Pointer output,
                              std::uint64_t count, int dtype, int op, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto kind = op_of(op, type);
    one_each(*g, inputs.size(), "inputs");
    return submit(g,
                  [=, from = all_const(inputs)](Session& s) {
                      reduce_scatter(s, from, bytes_at(output), count, type, kind);
                  },
                  background, epoch);
}

MaybeHandle all_to_all_between(const Shared& g, const Pointers& inputs, const Counts& input_counts,
                               const Pointers& outputs, const Counts& output_counts, int dtype,
                               bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    one_each(*g, inputs.size(), "inputs");
    one_each(*g, outputs.size(), "outputs");
    one_each(*g, input_counts.size(), "input counts");
    one_each(*g, output_counts.size(), "output counts");
    return submit(g,
                  [=, from = all_const(inputs), to = all_at(outputs)](Session& s) {
                      all_to_all(s, from, input_counts, to, output_counts, type);
                  },
                  background, epoch);
}

MaybeHandle gather_at(const Shared& g, Pointer input, const Pointers& outputs, std::uint64_t count,
                      int dtype, std::int64_t root, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto to = seat_in(*g, root, "root");
    if (g->seat == to) one_each(*g, outputs.size(), "outputs");
    return submit(g,
                  [=, all = all_at(outputs)](Session& s) {
                      gather(s, bytes_at(input), all, count, type, to);
                  },
                  background, epoch);
}

MaybeHandle scatter_from(const Shared& g, const Pointers& inputs, Pointer output, std::uint64_t count,
                         int dtype, std::int64_t root, bool background, std::int64_t epoch) {
    const auto type = type_of(dtype);
    const auto from = seat_in(*g, root, "root");
    if (g->seat == from) one_each(*g, inputs.size(), "inputs");
    return submit(g,
                  [=, all = all_const(inputs)](Session& s) {
                      scatter(s, all, bytes_at(output), count, type, from);
                  },
                  background, epoch);
}

MaybeHandle meet(const Shared& g, bool background, std::int64_t epoch) {
    return submit(g, [](Session& s) { barrier(s); }, background, epoch);
}

void not_oneself(const Group& group, std::int64_t seat) {
    if (seat == group.seat)
        throw Bad("seat " + std::to_string(seat) + " of group " + group.name +
                  " cannot exchange messages with itself");
}

Handle send(const Shared& g, Pointer data, std::uint64_t count, int dtype, std::int64_t to,
            std::uint32_t tag, std::int64_t epoch) {
    not_oneself(*g, to);
    const auto seat = seat_in(*g, to, "receiver");
    return {g->send(bytes_at(data), count, type_of(dtype), seat, tag, epoch), g, true};
}

Handle receive(const Shared& g, Pointer data, std::uint64_t count, int dtype, std::int64_t from,
               std::uint32_t tag, std::int64_t epoch) {
    not_oneself(*g, from);
    if (from < Mail::kAnybody) throw Bad("sender " + std::to_string(from) + " is no seat");
    const int seat = from < 0 ? Mail::kAnybody : static_cast<int>(seat_in(*g, from, "sender"));
    return {g->receive(bytes_at(data), count, type_of(dtype), seat, tag, epoch), g, true};
}

nb::bytes as_bytes(const std::vector<std::byte>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

SipKey sip_key(const nb::bytes& bytes) {
    SipKey key;
    if (bytes.size() != key.size()) throw Bad("a key has 16 bytes");
    std::memcpy(key.data(), bytes.data(), key.size());
    return key;
}

std::vector<std::byte> from_bytes(const nb::bytes& bytes) {
    std::vector<std::byte> result(bytes.size());
    if (!result.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
}

nb::list links_of(Endpoint& endpoint) {
    nb::list result;
    for (const auto& link : endpoint.links()) {
        nb::dict one;
        one["peer"] = link.peer;
        one["kind"] = link.local ? "shm" : "tcp";
        one["opened_ns"] = link.opened_ns;
        one["inode"] = link.inode;
        one["sent"] = link.sent;
        one["received"] = link.received;
        result.append(one);
    }
    return result;
}

nb::dict stats_of(Endpoint& endpoint) {
    const auto facts = endpoint.facts();
    nb::dict result;
    result["links_opened"] = facts.links_opened;
    result["links_closed"] = facts.links_closed;
    result["links_refused"] = facts.links_refused;
    result["frames_dropped"] = facts.frames_dropped;
    result["arena_bytes"] = facts.arena_bytes;
    result["groups"] = facts.groups;
    result["last_close_reason"] = facts.last_close_reason;
    return result;
}

nb::dict switch_over(Group& group, std::uint64_t epoch) {
    Switched done;
    {
        const Inside inside;
        const nb::gil_scoped_release released;
        done = group.switchover(epoch);
    }
    nb::dict result;
    result["opened"] = done.opened;
    result["kept"] = done.kept;
    result["closed"] = done.closed;
    result["prepare_ns"] = done.prepare_ns;
    result["switchover_ns"] = done.switchover_ns;
    return result;
}

void prepare(Group& group, std::uint64_t epoch, const nb::list& cards, double timeout_s) {
    std::vector<std::vector<std::byte>> all;
    for (const auto card : cards) all.push_back(from_bytes(nb::cast<nb::bytes>(card)));
    const Inside inside;
    const nb::gil_scoped_release released;
    group.prepare(epoch, all, nanoseconds(timeout_s));
}

void define_errors(nb::module_& m) {
    static nb::object root = nb::exception<Failure>(m, "NativeError", PyExc_RuntimeError);
    static const std::vector<std::pair<Why, const char*>> names{{Why::aborted, "Aborted"},
                                                                {Why::peer_lost, "PeerLost"},
                                                                {Why::timed_out, "TimedOut"},
                                                                {Why::order, "OrderMismatch"},
                                                                {Why::failed, "Failed"},
                                                                {Why::refused, "Refused"}};
    for (const auto& [why, name] : names) {
        const auto full = std::string("trainmover._native.") + name;
        m.attr(name) = nb::steal(PyErr_NewException(full.c_str(), root.ptr(), nullptr));
    }
    nb::register_exception_translator(
        [](const std::exception_ptr& caught, void* module) {
            try {
                std::rethrow_exception(caught);
            } catch (const Failure& failure) {
                for (const auto& [why, name] : names)
                    if (why == failure.trouble().why) {
                        const nb::object type =
                            nb::borrow<nb::object>(static_cast<PyObject*>(module)).attr(name);
                        PyErr_SetString(type.ptr(), failure.what());
                    }
            }
        },
        m.ptr());
}

void define_codes(nb::module_& m) {
    static const char* types[] = {"f64", "f32", "f16", "bf16", "i8",   "i16", "i32",  "i64",
                                  "u8",  "u16", "u32", "u64",  "bool", "c64", "c128", "byte1"};
    static const char* ops[] = {"sum", "avg", "min", "max", "product", "band", "bor", "bxor"};
    nb::dict dtypes;
    for (int code = 0; code < kTypes; ++code) dtypes[types[code]] = code;
    nb::dict operations;
    for (int code = 0; code < kOps; ++code) operations[ops[code]] = code;
    m.attr("DTYPES") = dtypes;
    m.attr("OPS") = operations;
}

void define_group(nb::module_& m) {
    nb::class_<Handle>(m, "Ticket")
        .def("done", [](const Handle& h) { return h.ticket->done(); })
        .def("wait", &Handle::wait, nb::arg("timeout_s"), Released())
        .def("error",
             [](const Handle& h) -> std::optional<std::string> {
                 if (!h.ticket->done() || !h.ticket->trouble()) return std::nullopt;
                 return h.ticket->trouble().text;
             })
        .def_prop_ro("source", [](const Handle& h) { return h.ticket->source(); })
        .def("subscribe", [](const Handle& h) { return h.ticket->subscribe(); });
    nb::class_<Group>(m, "Group")
        .def("card", [](Group& g) { return as_bytes(g.card()); })
        .def("peers", &Group::peers)
        .def("prepare", &prepare, nb::arg("epoch"), nb::arg("cards"), nb::arg("timeout_s"))
        .def("discard", &Group::discard, nb::arg("epoch"), Released())
        .def("switchover", &switch_over, nb::arg("epoch"))
        .def("abort", &Group::abort, nb::arg("why"), Released())
        .def("close", &Group::close, Released())
        .def("set_timeout", [](Group& g, double seconds) { g.set_timeout(nanoseconds(seconds)); })
        .def_prop_ro("epoch",
                     [](Group& g) -> std::optional<std::int64_t> {
                         const auto epoch = g.epoch();
                         return epoch < 0 ? std::nullopt : std::optional(epoch);
                     })
        .def_prop_ro("broken",
                     [](Group& g) -> std::optional<std::string> {
                         const auto trouble = g.broken();
                         return trouble ? std::optional(trouble.text) : std::nullopt;
                     })
        .def_prop_ro("sequence", &Group::calls)
        .def_ro("seat", &Group::seat)
        .def_ro("size", &Group::size)
        .def_ro("name", &Group::name)
        .def("all_reduce", &all_reduce, "data"_a, "count"_a, "dtype"_a, "op"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("reduce", &reduce_at, "data"_a, "count"_a, "dtype"_a, "op"_a, "root"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("broadcast", &broadcast_from, "data"_a, "count"_a, "dtype"_a, "root"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("all_gather", &all_gather_to, "input"_a, "outputs"_a, "count"_a, "dtype"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("reduce_scatter", &reduce_scatter_to, "inputs"_a, "output"_a, "count"_a, "dtype"_a, "op"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("all_to_all", &all_to_all_between, "inputs"_a, "input_counts"_a, "outputs"_a, "output_counts"_a, "dtype"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("gather", &gather_at, "input"_a, "outputs"_a, "count"_a, "dtype"_a, "root"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("scatter", &scatter_from, "inputs"_a, "output"_a, "count"_a, "dtype"_a, "root"_a, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("barrier", &meet, "background"_a, "epoch"_a = kAnyEpoch, Released())
        .def("send", &send, "data"_a, "count"_a, "dtype"_a, "to"_a, "tag"_a, "epoch"_a = kAnyEpoch, Released())
        .def("recv", &receive, "data"_a, "count"_a, "dtype"_a, "source"_a, "tag"_a, "epoch"_a = kAnyEpoch, Released());
}

const Birthplace birthplace;
std::mutex endpoints_mutex;
std::vector<std::weak_ptr<Endpoint>> endpoints;

std::shared_ptr<Endpoint> opened(Token token, const std::string& host, const std::string& address,
                                 const std::string& folder, const std::string& libcrypto) {
    auto endpoint = Endpoint::open(std::move(token), host, address, folder, libcrypto);
    const std::lock_guard lock(endpoints_mutex);
    std::erase_if(endpoints, [](const auto& known) { return known.expired(); });
    endpoints.push_back(endpoint);
    return endpoint;
}

/// Before the interpreter ends: close everything, which wakes all who wait, and see them out.
void leave() {
    std::vector<std::shared_ptr<Endpoint>> open;
    {
        const std::lock_guard lock(endpoints_mutex);
        for (const auto& known : endpoints)
            if (auto endpoint = known.lock()) open.push_back(std::move(endpoint));
    }
    const nb::gil_scoped_release released;
    for (const auto& endpoint : open) endpoint->close();
    if (!birthplace.here()) return;  // What the parent's threads were in is not ours to wait for.
    const auto deadline = now_ns() + 2'000'000'000;
    while (Inside::calls.load() > 0 && now_ns() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void define_endpoint(nb::module_& m) {
    nb::class_<Endpoint>(m, "Endpoint")
        .def(nb::new_([](const nb::bytes& token, const std::string& host, const std::string& address,
                         const std::string& folder, const std::string& libcrypto) {
                 return opened(from_bytes(token), host, address, folder, libcrypto);
             }),
             nb::arg("token"), nb::arg("host"), nb::arg("address") = "127.0.0.1", nb::arg("folder") = "",
             nb::arg("libcrypto") = "")
        .def_ro("incarnation", &Endpoint::incarnation)
        .def_ro("host", &Endpoint::host)
        .def_prop_ro("address", &Endpoint::address)
        .def_prop_ro("path", &Endpoint::path)
        .def("group",
             [](Endpoint& e, const std::string& name, std::uint32_t seat, std::uint32_t size) {
                 if (size == 0 || seat >= size)
                     throw Bad("seat " + std::to_string(seat) + " does not exist in a group of " +
                               std::to_string(size));
                 return e.group(name, seat, size);
             },
             nb::arg("name"), nb::arg("seat"), nb::arg("size"), Released())
        .def("links", &links_of)
        .def("stats", &stats_of)
        .def("completed",
             [](Endpoint& e, double timeout_s) { return e.done->take(nanoseconds(timeout_s)); },
             nb::arg("timeout_s"), Released())
        .def("close", &Endpoint::close, Released());
}

/// As Python's own sockets and decoders would say it. `ValueError` has the length of a frame that is
/// too long, or 0.
template <typename Call>
auto on_link(Call call) {
    try {
        return call();
    } catch (const LinkOver& over) {
        if (over.error == 0) {
            PyErr_SetNone(PyExc_EOFError);
        } else {
            errno = over.error;
            PyErr_SetFromErrno(PyExc_OSError);
        }
        throw nb::python_error();
    } catch (const NotSaid& other) {
        PyErr_SetObject(PyExc_ValueError, nb::int_(other.length).ptr());
        throw nb::python_error();
    }
}

void define_sealed_link(nb::module_& m) {
    nb::class_<SealedLink>(m, "SealedLink")
        .def("__init__",
             [](SealedLink* self, int fd, const nb::bytes& says, std::uint64_t said, const nb::bytes& hears,
                std::uint64_t heard, std::size_t bytes_max) {
                 on_link([&] {
                     return new (self) SealedLink(fd, from_bytes(says), said, from_bytes(hears), heard, bytes_max);
                 });
             },
             nb::arg("fd"), nb::arg("says"), nb::arg("said"), nb::arg("hears"), nb::arg("heard"),
             nb::arg("bytes_max"))
        .def("say",
             [](SealedLink& link, const nb::bytes& payload) {
                 on_link([&] {
                     link.say({static_cast<const std::byte*>(payload.data()), payload.size()});
                 });
             },
             nb::arg("payload"))
        .def("hear",
             [](SealedLink& link) {
                 const auto frames = on_link([&] {
                     std::exception_ptr wrong;
                     std::vector<std::string> come;
                     {
                         const Inside inside;
                         const nb::gil_scoped_release released;
                         try {
                             come = link.hear();
                         } catch (...) {
                             wrong = std::current_exception();
                         }
                     }
                     if (wrong) std::rethrow_exception(wrong);
                     return come;
                 });
                 nb::list result;
                 for (const auto& frame : frames) result.append(nb::bytes(frame.data(), frame.size()));
                 return result;
             })
        .def("close", &SealedLink::close, Released());
}

#ifndef Py_LIMITED_API
nb::object given_by_python(PyObject* result) {
    if (result == nullptr) throw nb::python_error();
    return nb::steal<nb::object>(result);
}

bool truth(int answer) {
    if (answer < 0) throw nb::python_error();
    return answer != 0;
}

void define_asked(nb::module_& m) {
    nb::class_<Answers>(m, "Answers")
        .def("__init__",
             [](Answers* self, const nb::args& questions) {
                 std::vector<Question> all;
                 for (const auto question : questions) all.emplace_back(question.ptr());
                 new (self) Answers(std::move(all));
             },
             nb::keep_alive<1, 2>())
        .def("note",
             [](Answers& a, nb::handle objects) {
                 if (!a.note(objects.ptr())) throw nb::python_error();
             },
             nb::arg("objects"))
        .def("same", [](const Answers& a, nb::handle objects) { return truth(a.same(objects.ptr())); },
             nb::arg("objects"))
        .def("noted", [](const Answers& a, std::size_t question) {
            return given_by_python(a.noted(question));
        }, nb::arg("question"));
    nb::class_<Pieces>(m, "Pieces")
        .def("__init__",
             [](Pieces* self, const Pointers& addresses, const Counts& sizes) {
                 std::vector<std::pair<const std::byte*, std::size_t>> pieces;
                 if (addresses.size() != sizes.size()) throw Bad("a piece of memory is an address and a size");
                 for (std::size_t at = 0; at < sizes.size(); ++at)
                     pieces.emplace_back(bytes_at(addresses[at]), sizes[at]);
                 new (self) Pieces(std::move(pieces));
             },
             nb::arg("addresses"), nb::arg("sizes"))
        .def("read", [](Pieces& p) { return given_by_python(p.read()); });
    nb::class_<Stored>(m, "Stored")
        .def("__init__", [](Stored* self, const nb::str& name) { new (self) Stored(name.ptr()); },
             nb::arg("name"))
        .def("note",
             [](Stored& s, nb::handle objects) {
                 if (!s.note(objects.ptr())) throw nb::python_error();
             },
             nb::arg("objects"))
        .def("same", [](Stored& s, nb::handle objects) { return truth(s.same(objects.ptr())); },
             nb::arg("objects"));
    nb::class_<Tables>(m, "Tables")
        .def("__init__",
             [](Tables* self, nb::handle tables) {
                 new (self) Tables(tables.ptr());
                 if (self->is_made()) return;
                 self->~Tables();
                 throw nb::python_error();
             },
             nb::arg("tables"))
        .def("same", [](const Tables& t) { return truth(t.same()); });
    nb::class_<Words>(m, "Words")
        .def("__init__",
             [](Words* self, const Pointers& leads, const Counts& places, const Counts& compared, bool counts) {
                 if (places.size() != 5 || compared.size() != 2) throw Bad("words lie at five places");
                 new (self) Words(leads, {places[0], places[1], places[2], places[3], places[4], compared[0],
                                          compared[1], counts});
             },
             nb::arg("leads"), nb::arg("places"), nb::arg("compared"), nb::arg("counts"))
        .def("note", &Words::note)
        .def("same", &Words::same)
        .def("addresses", [](const Words& w) { return w.addresses(); })
        .def("versions", [](const Words& w) { return w.versions(); })
        .def("parts", [](const Words& w) {
            nb::list result;
            for (std::size_t at = 0; at < w.parts().size(); at += w.part_bytes())
                result.append(nb::bytes(w.parts().data() + at, w.part_bytes()));
            return result;
        });
    m.def("stands_for", [](nb::handle type, nb::handle object, std::uint64_t address) {
        return stands_for(type.ptr(), object.ptr(), address);
    }, "type"_a, "object"_a, "address"_a);
    m.def("are", [](nb::handle objects, nb::handle others) {
        return truth(are(objects.ptr(), others.ptr()));
    }, "objects"_a, "others"_a);
    m.def("given", [](nb::handle question, nb::handle objects) {
        return given_by_python(given(Question(question.ptr()), objects.ptr()));
    }, "question"_a, "objects"_a);
    m.def("packed", [](nb::handle value, int tuple_code) -> nb::object {
        PyObject* result = packed(value.ptr(), tuple_code);
        if (result == nullptr && PyErr_Occurred() == nullptr) return nb::none();
        return given_by_python(result);
    }, "value"_a.none(), "tuple_code"_a);
}
#endif

}  // namespace

NB_MODULE(_native, m) {
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&leave));
    nb::set_leak_warnings(false);
    define_errors(m);
    define_codes(m);
    define_group(m);
    define_endpoint(m);
    define_sealed_link(m);
#ifndef Py_LIMITED_API
    define_asked(m);
#endif
#ifdef TRAINMOVER_POINTS
    m.def("points", &points_passed);
    m.def("arm_point", &arm_point, nb::arg("countdown"), nb::arg("signal"));
    m.def("delay_points", &delay_points, nb::arg("seed"), nb::arg("most_us"));
    m.def("repeat_codes", &repeat_codes, nb::arg("more"));
#endif
    m.def("features", [] {
        nb::dict result;
        result["isa"] = isa();
        result["version"] = kVersion;
        result["sanitizer"] = TRAINMOVER_SANITIZER;
        return result;
    });
    m.def("waited_ns", [] { return waits.waited_ns(); });
    m.def("waited_for", [] {
        nb::list result;
        for (const auto& [peer, ns] : waited_for.take()) result.append(nb::make_tuple(peer, ns));
        return result;
    });
    m.def("force_isa", [](const std::string& name) { return force_isa(name.c_str()); }, "name"_a);
    m.def("reduce",
          [](const Pointers& inputs, Pointer output, std::uint64_t count, int dtype, int op) {
              const auto type = type_of(dtype);
              const auto from = all_const(inputs);
              const std::vector<const void*> addends(from.begin(), from.end());
              reduce(addends, bytes_at(output), count, type, op_of(op, type),
                     static_cast<std::uint32_t>(inputs.size()));
          },
          "inputs"_a, "output"_a, "count"_a, "dtype"_a, "op"_a);
    m.def("hmac_sha256", [](const nb::bytes& key, const nb::bytes& message) {
        const auto digest = hmac_sha256(from_bytes(key), from_bytes(message));
        return nb::bytes(digest.data(), digest.size());
    });
    m.def("siphash", [](const nb::bytes& key, const nb::bytes& message) {
        return siphash(sip_key(key), from_bytes(message));
    });
    m.def("parse_header", [](const nb::bytes& bytes, const nb::bytes& key, std::uint64_t number) -> std::string {
        if (bytes.size() != kHeaderBytes) return "a header has 64 bytes";
        HeaderBytes header;
        std::memcpy(header.data(), bytes.data(), kHeaderBytes);
        Header out;
        return decode(header, sip_key(key), number, out);
    }, "header"_a, "key"_a, "number"_a);
}
