// SPDX-License-Identifier: Apache-2.0
// The endpoint of a process: opened once, closed before the interpreter ends.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sockets.hpp"
#include "binding/defined.hpp"
#include "binding/given.hpp"
#include "endpoint/endpoint.hpp"
#include "endpoint/group.hpp"

namespace tmc {

namespace {

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

const Birthplace birthplace;
std::mutex endpoints_mutex;
std::vector<std::weak_ptr<Endpoint>> endpoints;

std::shared_ptr<Endpoint> opened(Token token, const std::string& host, const std::string& address,
                                 const std::string& folder, const std::string& libcrypto,
                                 std::size_t strangers_max) {
    auto endpoint = Endpoint::open(std::move(token), host, address, folder, libcrypto, strangers_max);
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

}  // namespace

void define_endpoint(nb::module_& m) {
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&leave));
    nb::class_<Endpoint>(m, "Endpoint")
        .def(nb::new_([](const nb::bytes& token, const std::string& host, const std::string& address,
                         const std::string& folder, const std::string& libcrypto,
                         std::size_t strangers_max) {
                 if (strangers_max == 0) throw Bad("an endpoint without room for strangers lets in nobody");
                 return opened(from_bytes(token), host, address, folder, libcrypto, strangers_max);
             }),
             nb::arg("token"), nb::arg("host"), nb::arg("address") = "127.0.0.1", nb::arg("folder") = "",
             nb::arg("libcrypto") = "", nb::arg("strangers_max") = kStrangersMax)
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

}  // namespace tmc
