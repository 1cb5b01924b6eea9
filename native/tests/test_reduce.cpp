// SPDX-License-Identifier: Apache-2.0
// Every dtype, operation and instruction set against the naive reduction, bit for bit.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "collectives/reduce.hpp"
#include "naive.hpp"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace {

using tmc::DType;
using tmc::Op;
using Memory = std::vector<std::byte>;
using Inputs = std::vector<const void*>;

constexpr int dtypes = static_cast<int>(DType::byte1) + 1;
constexpr int ops = static_cast<int>(Op::bxor) + 1;

Memory memory_of(std::size_t bytes) { return Memory(bytes + 1); }  // never empty: data() is an address

/// Random bits, and every few elements the ones that go wrong: zeros, infinities, NaNs, subnormals.
Memory random_tensor(std::size_t count, DType dtype, std::mt19937_64& random) {
    Memory tensor = memory_of(count * tmc::size_of(dtype));
    for (std::byte& byte : tensor) {
        byte = static_cast<std::byte>(random());
    }
    constexpr std::array<std::uint32_t, 6> high = {0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0x0001};
    constexpr std::array<std::uint32_t, 6> high_f16 = {0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0x0001};
    for (std::size_t at = 0; at + 4 <= tensor.size(); at += 4 * (1 + random() % 8)) {
        const std::uint32_t upper = (dtype == DType::f16 ? high_f16 : high)[random() % 6];
        const std::uint32_t word = upper << 16 | (dtype == DType::f16 ? upper : 0);
        std::memcpy(tensor.data() + at, &word, 4);
    }
    if (dtype == DType::f32) {  // most sums shall be ordinary ones
        for (std::size_t i = 0; i < count; i += 2) {
            naive::write(tensor.data(), i, static_cast<float>(static_cast<std::int64_t>(random())) * 1e-18f);
        }
    }
    return tensor;
}

std::vector<Memory> tensors(std::size_t seats, std::size_t count, DType dtype) {
    std::mt19937_64 random(seats * 1000 + count + static_cast<std::size_t>(dtype));
    std::vector<Memory> made;
    for (std::size_t seat = 0; seat < seats; ++seat) {
        made.push_back(random_tensor(count, dtype, random));
    }
    return made;
}

Inputs pointers(const std::vector<Memory>& from) {
    Inputs inputs;
    for (const Memory& memory : from) {
        inputs.push_back(memory.data());
    }
    return inputs;
}

Memory expected(const Inputs& inputs, std::size_t count, DType dtype, Op op) {
    Memory out = memory_of(count * tmc::size_of(dtype));
    naive::reduce(inputs, out.data(), count, dtype, op, static_cast<std::uint32_t>(inputs.size()));
    return out;
}

bool same(const Memory& a, const Memory& b, std::size_t bytes) {
    return std::memcmp(a.data(), b.data(), bytes) == 0;
}

struct Case {
    std::size_t seats;
    std::size_t count;
    DType dtype;
    Op op;

    [[nodiscard]] std::size_t bytes() const { return count * tmc::size_of(dtype); }
    [[nodiscard]] std::uint32_t divisor() const { return static_cast<std::uint32_t>(seats); }
};

#define IN_CASE(c)                                                                                     \
    "%s: %zu seats, %zu elements, dtype %d, op %d", tmc::isa(), (c).seats, (c).count,                  \
        static_cast<int>((c).dtype), static_cast<int>((c).op)

void test_flat(const Case& c, const Inputs& inputs, const Memory& want) {
    Memory out = memory_of(c.bytes());
    tmc::reduce(inputs, out.data(), c.count, c.dtype, c.op, c.divisor());
    CHECK(same(out, want, c.bytes()), IN_CASE(c));
}

void test_out_is_an_input(const Case& c, const std::vector<Memory>& from, const Memory& want) {
    for (std::size_t seat = 0; seat < c.seats; ++seat) {
        std::vector<Memory> copies = from;
        tmc::reduce(pointers(copies), copies[seat].data(), c.count, c.dtype, c.op, c.divisor());
        CHECK(same(copies[seat], want, c.bytes()), IN_CASE(c));
    }
}

/// Over "hosts" of `step` seats each, and with `partial` finished in place.
void test_steps(const Case& c, const Inputs& inputs, const Memory& want, std::size_t step) {
    const std::span<const void* const> all = inputs;
    Memory partial = memory_of(c.count * tmc::accumulator_size(c.dtype));
    tmc::accumulate_first(all.first(std::min(step, c.seats)), partial.data(), c.count, c.dtype, c.op);
    for (std::size_t at = step; at < c.seats; at += step) {
        const auto some = all.subspan(at, std::min(step, c.seats - at));
        tmc::accumulate_more(partial.data(), some, c.count, c.dtype, c.op);
    }
    Memory out = memory_of(c.bytes());
    tmc::finish(partial.data(), out.data(), c.count, c.dtype, c.op, c.divisor());
    CHECK(same(out, want, c.bytes()), IN_CASE(c));
    tmc::finish(partial.data(), partial.data(), c.count, c.dtype, c.op, c.divisor());
    CHECK(same(partial, want, c.bytes()), IN_CASE(c));
}

/// Cut at odd places, so that pointers are off every alignment of a vector.
void test_chunks(const Case& c, const Inputs& inputs, const Memory& want) {
    const std::size_t element = tmc::size_of(c.dtype);
    Memory out = memory_of(c.bytes());
    for (std::size_t at = 0; at < c.count;) {
        const std::size_t now = std::min<std::size_t>(1 + at % 37, c.count - at);
        Inputs here;
        for (const void* input : inputs) {
            here.push_back(static_cast<const std::byte*>(input) + at * element);
        }
        tmc::reduce(here, out.data() + at * element, now, c.dtype, c.op, c.divisor());
        at += now;
    }
    CHECK(same(out, want, c.bytes()), IN_CASE(c));
}

void test_case(const Case& c) {
    const std::vector<Memory> from = tensors(c.seats, c.count, c.dtype);
    const Inputs inputs = pointers(from);
    const Memory want = expected(inputs, c.count, c.dtype, c.op);
    for (const char* name : {"baseline", "avx2", "avx512"}) {
        if (!tmc::force_isa(name)) {
            continue;
        }
        test_flat(c, inputs, want);
        test_out_is_an_input(c, from, want);
        test_steps(c, inputs, want, 1);
        test_steps(c, inputs, want, 3);
        test_chunks(c, inputs, want);
    }
}

#ifdef __SANITIZE_THREAD__  // these have one thread; a few cases show that the build is sound
const std::vector<std::size_t> all_seats = {2, 5};
const std::vector<std::size_t> all_counts = {67};
#else
const std::vector<std::size_t> all_seats = {1, 2, 3, 4, 5, 8, 19};
const std::vector<std::size_t> all_counts = {0, 1, 15, 67, 2100};
#endif

void test_all_cases() {
    for (int dtype = 0; dtype < dtypes; ++dtype) {
        for (int op = 0; op < ops; ++op) {
            for (std::size_t seats : all_seats) {
                for (std::size_t count : all_counts) {
                    const Case c = {seats, count, static_cast<DType>(dtype), static_cast<Op>(op)};
                    if (tmc::supported(c.dtype, c.op)) {
                        test_case(c);
                    }
                }
            }
        }
    }
}

void test_long_tensor() {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::c128, DType::i8}) {
        test_case({3, 40001, dtype, Op::avg});
    }
}

/// `finish` alone rounds a f32.
std::uint16_t rounded(float value, DType dtype) {
    std::uint16_t half = 0;
    tmc::finish(&value, &half, 1, dtype, Op::sum, 1);
    return half;
}

void test_every_f16_widens() {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const void* input = &half;
        float wide = 0;
        tmc::accumulate_first(std::span(&input, 1), &wide, 1, DType::f16, Op::sum);
        const auto want = static_cast<float>(naive::from_f16(half));
        CHECK(std::isnan(want) ? std::isnan(wide)
                               : std::bit_cast<std::uint32_t>(want) == std::bit_cast<std::uint32_t>(wide),
              "%04x", bits);
    }
}

/// Every f16 comes back; halfway to the next goes to the even one, and a bit less or more goes where it is nearer.
void test_f16_rounds_to_nearest_even() {
    for (std::uint16_t half = 0; half < 0x7bff; ++half) {
        const auto low = static_cast<float>(naive::from_f16(half));
        const auto high = static_cast<float>(naive::from_f16(static_cast<std::uint16_t>(half + 1)));
        const float middle = (low + high) / 2;
        const auto even = static_cast<std::uint16_t>(half + half % 2);
        CHECK(rounded(low, DType::f16) == half, "%04x", half);
        CHECK(rounded(-low, DType::f16) == (half | 0x8000), "%04x", half);
        CHECK(rounded(middle, DType::f16) == even, "%04x", half);
        CHECK(rounded(-middle, DType::f16) == (even | 0x8000), "%04x", half);
        CHECK(rounded(std::nextafter(middle, low), DType::f16) == half, "%04x", half);
        CHECK(rounded(std::nextafter(middle, high), DType::f16) == half + 1, "%04x", half);
    }
    CHECK(rounded(65519.996f, DType::f16) == 0x7bff);
    CHECK(rounded(65520.0f, DType::f16) == 0x7c00);
    CHECK(rounded(-INFINITY, DType::f16) == 0xfc00);
}

void test_bf16_rounds_to_nearest_even() {
    for (std::uint32_t upper = 0; upper < 0x7f80; ++upper) {
        const std::uint32_t bits = upper << 16;
        CHECK(rounded(std::bit_cast<float>(bits | 0x7fff), DType::bf16) == upper);
        CHECK(rounded(std::bit_cast<float>(bits | 0x8000), DType::bf16) == upper + upper % 2);
        CHECK(rounded(std::bit_cast<float>(bits | 0x8001), DType::bf16) == upper + 1);
    }
}

void test_every_nan_has_the_same_bits() {
    for (std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffc00000U, 0x7fc12345U}) {
        const auto value = std::bit_cast<float>(bits);
        CHECK(rounded(value, DType::f16) == 0x7e00, "%08x", bits);
        CHECK(rounded(value, DType::bf16) == 0x7fc0, "%08x", bits);
        std::uint32_t out = 0;
        tmc::finish(&value, &out, 1, DType::f32, Op::sum, 1);
        CHECK(out == 0x7fc00000, "%08x", bits);
    }
}

void test_known_sums() {
    const std::array<float, 3> x = {1e8f, 1.0f, -1e8f};
    const std::array<const void*, 3> inputs = {&x[0], &x[1], &x[2]};
    float sum = -1;
    tmc::reduce(inputs, &sum, 1, DType::f32, Op::sum, 3);
    CHECK(sum == 0.0f);  // in seat order the 1 is lost; 1e8 and -1e8 first would keep it
    const std::array<std::int32_t, 2> i = {-7, 0};
    const std::array<const void*, 2> integers = {&i[0], &i[1]};
    std::int32_t average = 0;
    tmc::reduce(integers, &average, 1, DType::i32, Op::avg, 2);
    CHECK(average == -3);
}

void test_the_threads_modes_change_nothing() {
#ifdef __SSE__
    const unsigned before = _mm_getcsr();
    const unsigned flush_and_round_up = before | 0x8040 | 0x4000;
    _mm_setcsr(flush_and_round_up);
    const std::array<std::uint32_t, 2> bits = {3, 4};  // subnormal f32
    const std::array<const void*, 2> inputs = {&bits[0], &bits[1]};
    std::uint32_t out = 0;
    tmc::reduce(inputs, &out, 1, DType::f32, Op::sum, 2);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK(out == 7);
    CHECK(after == flush_and_round_up);
#endif
}

void test_what_is_refused() {
    CHECK(!tmc::supported(DType::byte1, Op::bor));
    CHECK(!tmc::supported(DType::boolean, Op::avg));
    CHECK(!tmc::supported(DType::c64, Op::max));
    CHECK(!tmc::supported(DType::f16, Op::bxor));
    CHECK(tmc::supported(DType::boolean, Op::bxor));
    std::uint8_t out = 7;
    const void* input = &out;
    tmc::reduce(std::span(&input, 1), &out, 1, DType::byte1, Op::sum, 1);
    CHECK(out == 7);
    CHECK(!tmc::force_isa("abacus"));
}

}  // namespace

int main() {
    std::printf("instruction set: %s\n", tmc::isa());
    test_known_sums();
    test_what_is_refused();
    for (const char* name : {"baseline", "avx2", "avx512"}) {
        if (tmc::force_isa(name)) {
            test_every_f16_widens();
            test_f16_rounds_to_nearest_even();
            test_bf16_rounds_to_nearest_even();
            test_every_nan_has_the_same_bits();
            test_the_threads_modes_change_nothing();
        }
    }
    test_all_cases();
    test_long_tensor();
}
