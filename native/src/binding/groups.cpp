// SPDX-License-Identifier: Apache-2.0
// Groups, and what is called on them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <utility>

#include "binding/defined.hpp"
#include "binding/given.hpp"
#include "collectives/collectives.hpp"
#include "endpoint/group.hpp"

namespace tmc {

using namespace nb::literals;

namespace {

constexpr std::int64_t kAnyEpoch = Group::kAnyEpoch;

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

}  // namespace

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

}  // namespace tmc
