// SPDX-License-Identifier: Apache-2.0
// The published vectors of FIPS 180-4 and RFC 4231, and lengths around the end of a block.
#include <span>
#include <string>
#include <string_view>

#include "check.hpp"
#include "crypto/sha256.hpp"

namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string hex(const tmc::Digest& digest) {
    std::string text;
    for (const std::byte byte : digest) {
        text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
        text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
    }
    return text;
}

void test_sha256() {
    CHECK(hex(tmc::sha256({})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex(tmc::sha256(bytes("abc"))) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex(tmc::sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex(tmc::sha256(bytes(std::string(1000000, 'a')))) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/// The digest of the digests of "", "a", "aa", ... up to 199 letters.
void test_every_short_length() {
    std::string digests;
    for (std::size_t length = 0; length < 200; ++length) {
        digests += hex(tmc::sha256(bytes(std::string(length, 'a'))));
    }
    CHECK(hex(tmc::sha256(bytes(digests))) == "019f2b9f1af27a53a1f046da7e98af2c179f431e4b5bebb000e74040917a4123");
}

void test_hmac() {
    CHECK(hex(tmc::hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(tmc::hmac_sha256(bytes(std::string(20, '\x0b')), bytes("Hi There"))) ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    const std::string long_key(131, '\xaa');
    CHECK(hex(tmc::hmac_sha256(bytes(long_key),
                               bytes("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

void test_equal() {
    CHECK(tmc::equal_in_constant_time({}, {}));
    CHECK(tmc::equal_in_constant_time(bytes("same"), bytes("same")));
    CHECK(!tmc::equal_in_constant_time(bytes("same"), bytes("sane")));
    CHECK(!tmc::equal_in_constant_time(bytes("same"), bytes("sam")));
}

}  // namespace

int main() {
    test_sha256();
    test_every_short_length();
    test_hmac();
    test_equal();
}
