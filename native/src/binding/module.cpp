// SPDX-License-Identifier: Apache-2.0
// The library as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/points.hpp"
#include "base/trouble.hpp"
#include "base/waited.hpp"
#include "binding/defined.hpp"
#include "binding/given.hpp"
#include "collectives/reduce.hpp"
#include "crypto/sha256.hpp"
#include "links/frame.hpp"

namespace nb = nanobind;
using namespace tmc;
using namespace nb::literals;

namespace {

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

}  // namespace

NB_MODULE(_native, m) {
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
