// SPDX-License-Identifier: Apache-2.0
#include "binding/given.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/reduce.hpp"
#include "endpoint/group.hpp"

namespace tmc {

namespace {

constexpr double kForeverS = 1e7;

}  // namespace

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

}  // namespace tmc
