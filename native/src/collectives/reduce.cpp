// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduce.hpp"

#include <atomic>
#include <string_view>

#include "collectives/kernels/kernels.hpp"

#ifdef TRAINMOVER_X86_KERNELS
#include <xmmintrin.h>
#endif

namespace tmc {
namespace {

struct Choice {
    const char* name;
    const Kernels* kernels;
    bool (*available)();
};

// Best last.
constexpr Choice choices[] = {
    {"baseline", &baseline::kernels, [] { return true; }},
#ifdef TRAINMOVER_X86_KERNELS
    {"avx2", &avx2::kernels,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }},
    {"avx512", &avx512::kernels,
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("f16c");
     }},
#endif
};

const Choice* best() {
#ifdef TRAINMOVER_X86_KERNELS
    __builtin_cpu_init();
#endif
    const Choice* found = choices;
    for (const Choice& choice : choices) {
        found = choice.available() ? &choice : found;
    }
    return found;
}

std::atomic<const Choice*>& chosen() {
    static std::atomic<const Choice*> choice{best()};
    return choice;
}

const Kernels& kernels() { return *chosen().load(std::memory_order_relaxed)->kernels; }

/// While it lives, the thread rounds to nearest and keeps subnormals, whatever it did before.
class Ieee {
public:
#ifdef TRAINMOVER_X86_KERNELS
    Ieee() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~Ieee() { _mm_setcsr(before_); }

private:
    unsigned before_;
#else
    Ieee() {}
    ~Ieee() {}

public:
#endif
    Ieee(const Ieee&) = delete;
    Ieee& operator=(const Ieee&) = delete;
};

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

bool is_float(DType dtype) {
    return dtype == DType::f64 || dtype == DType::f32 || is_half(dtype);
}

unsigned char* bytes(void* memory) { return static_cast<unsigned char*>(memory); }
const unsigned char* bytes(const void* memory) { return static_cast<const unsigned char*>(memory); }

}  // namespace

std::size_t size_of(DType dtype) noexcept { return bytes_of(dtype); }

std::size_t accumulator_size(DType dtype) noexcept { return accumulator_bytes_of(dtype); }

bool supported(DType dtype, Op op) noexcept {
    if (dtype == DType::byte1) {
        return false;
    }
    switch (op) {
        case Op::sum: case Op::product: return true;
        case Op::avg: return dtype != DType::boolean;
        case Op::min: case Op::max: return !is_complex(dtype);
        case Op::band: case Op::bor: case Op::bxor: return !is_complex(dtype) && !is_float(dtype);
    }
    return false;
}

void reduce(std::span<const void* const> inputs, void* out, std::size_t count, DType dtype, Op op,
            std::uint32_t seats) noexcept {
    if (!supported(dtype, op) || inputs.empty()) {
        return;
    }
    const Ieee ieee;
    kernels().reduce(bytes(out), inputs.data(), inputs.size(), count, dtype, op, seats);
}

void accumulate_first(std::span<const void* const> inputs, void* partial, std::size_t count,
                      DType dtype, Op op) noexcept {
    if (!supported(dtype, op)) {
        return;
    }
    const Ieee ieee;
    kernels().accumulate(bytes(partial), inputs.data(), inputs.size(), count, dtype, op, true);
}

void accumulate_more(void* partial, std::span<const void* const> inputs, std::size_t count,
                     DType dtype, Op op) noexcept {
    if (!supported(dtype, op)) {
        return;
    }
    const Ieee ieee;
    kernels().accumulate(bytes(partial), inputs.data(), inputs.size(), count, dtype, op, false);
}

void finish(const void* partial, void* out, std::size_t count, DType dtype, Op op,
            std::uint32_t seats) noexcept {
    if (!supported(dtype, op)) {
        return;
    }
    const Ieee ieee;
    kernels().finish(bytes(out), bytes(partial), count, dtype, op, seats);
}

const char* isa() noexcept { return chosen().load(std::memory_order_relaxed)->name; }

bool force_isa(const char* name) noexcept {
    for (const Choice& choice : choices) {
        if (std::string_view(choice.name) == name && choice.available()) {
            chosen().store(&choice, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

}  // namespace tmc
