// What the two ends of a connection have in common once both have proved themselves.
#pragma once

#include "siphash.hpp"

namespace tmc {

/// Each direction has a key of its own, drawn from the token and all that was said in the hello.
struct Keys {
    SipKey frames_out{};
    SipKey frames_in{};
};

}  // namespace tmc
