// SPDX-License-Identifier: Apache-2.0
// Why an operation did not end with its result.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tmc {

enum class Why : std::uint8_t {
    none,
    aborted,    // the process was told to end the epoch
    peer_lost,  // a seat is gone, or has given up
    timed_out,  // nobody told us anything for too long
    order,      // two seats called different operations in the same place
    failed,     // it could not be carried out here: no memory, no thread
    refused,    // this process has no right to what it asked for, or asked too early
};

/// A reason as a value: sessions keep the first one and give it to everybody who asks later.
struct Trouble {
    Why why = Why::none;
    std::string text;
    int seat = -1;  // Whose fault, if it is anybody's.

    explicit operator bool() const noexcept { return why != Why::none; }
};

/// A reason on its way up to whoever called.
class Failure : public std::exception {
public:
    explicit Failure(Trouble trouble) : trouble_(std::move(trouble)) {}
    Failure(Why why, std::string text) : trouble_{why, std::move(text), -1} {}

    const char* what() const noexcept override { return trouble_.text.c_str(); }
    const Trouble& trouble() const noexcept { return trouble_; }

private:
    Trouble trouble_;
};

}  // namespace tmc
