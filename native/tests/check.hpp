// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

/// Say where and end, if `condition` does not hold: `CHECK(a == b, "seat %d", seat)`. The note may be left out.
#define CHECK(condition, ...)                                                         \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::fprintf(stderr, "%s:%d: not so: %s ", __FILE__, __LINE__, #condition); \
            __VA_OPT__(std::fprintf(stderr, __VA_ARGS__);)                            \
            std::fputc('\n', stderr);                                                 \
            std::abort();                                                             \
        }                                                                             \
    } while (false)
