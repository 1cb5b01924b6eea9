// SPDX-License-Identifier: Apache-2.0
// Links that seal what is said on them (`listeners/sealed_link.py`).
#include <cerrno>
#include <exception>
#include <string>
#include <vector>

#include "binding/defined.hpp"
#include "binding/given.hpp"
#include "links/sealed_link.hpp"

namespace tmc {

namespace {

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

}  // namespace

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

}  // namespace tmc
