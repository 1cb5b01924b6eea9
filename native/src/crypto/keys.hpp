// SPDX-License-Identifier: Apache-2.0
// What protects a connection once both of its ends have proved themselves.
#pragma once

#include <memory>

#include "crypto/cipher.hpp"
#include "crypto/siphash.hpp"

namespace tmc {

/// Each direction has keys of its own, drawn from the token and all that was said in the hello.
struct Keys {
    SipKey frames_out{};
    SipKey frames_in{};
    std::unique_ptr<Cipher> seal;  // null, as `open`: payload travels as it is
    std::unique_ptr<Cipher> open;
};

}  // namespace tmc
