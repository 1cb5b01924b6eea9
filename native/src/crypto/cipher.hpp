// SPDX-License-Identifier: Apache-2.0
// AES-256-GCM, as libcrypto has it: the one that Python's ssl module has loaded, or another of the
// system's. It is loaded when an endpoint asks for it, so that nothing here needs it to be built.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tmc {

inline constexpr std::size_t kSealBytes = 16;

using CipherKey = std::array<std::byte, 32>;
using PublicKey = std::array<std::byte, 32>;
using Shared = std::array<std::byte, 32>;

class Libcrypto {
public:
    /// Throws Failure: refused, where it is no libcrypto that has what is needed.
    static std::shared_ptr<const Libcrypto> load(const std::string& path);
    ~Libcrypto();
    Libcrypto(const Libcrypto&) = delete;
    Libcrypto& operator=(const Libcrypto&) = delete;

    struct Functions;
    const Functions& functions() const noexcept { return *functions_; }

private:
    explicit Libcrypto(const std::string& path);

    void* handle_ = nullptr;
    std::unique_ptr<Functions> functions_;
};

/// One direction of a link. Records are numbered, and a number is used for one record only.
class Cipher {
public:
    enum class Use { seal, open };
    Cipher(std::shared_ptr<const Libcrypto> library, const CipherKey& key, Use use);
    ~Cipher();
    Cipher(const Cipher&) = delete;
    Cipher& operator=(const Cipher&) = delete;

    /// Encrypt `payload` to `to`, and write kSealBytes behind it; they cover `head` too. False: no
    /// memory, or the like.
    bool seal(std::uint64_t number, std::span<const std::byte> head, std::span<const std::byte> payload,
              std::byte* to) noexcept;
    /// Decrypt in place. False: head, payload or seal are not what was sealed.
    bool open(std::uint64_t number, std::span<const std::byte> head, std::span<std::byte> payload,
              std::span<const std::byte, kSealBytes> seal) noexcept;

private:
    const std::shared_ptr<const Libcrypto> library_;
    void* context_ = nullptr;
};

/// A key pair of X25519 for one hello: what is drawn from it cannot be drawn again later, also not
/// by whoever has recorded all and learns the token then.
class KeyPair {
public:
    explicit KeyPair(std::shared_ptr<const Libcrypto> library);
    ~KeyPair();
    KeyPair(const KeyPair&) = delete;
    KeyPair& operator=(const KeyPair&) = delete;

    const PublicKey& shown() const noexcept { return shown_; }
    /// What only the two can know. Throws Failure for a key that is none.
    Shared with(const PublicKey& other) const;

private:
    const std::shared_ptr<const Libcrypto> library_;
    void* pair_ = nullptr;
    PublicKey shown_{};
};

}  // namespace tmc
