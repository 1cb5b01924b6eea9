// SPDX-License-Identifier: Apache-2.0
#include "crypto/cipher.hpp"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "base/trouble.hpp"

namespace tmc {
namespace {

// Of openssl/evp.h, which is not needed to build this.
constexpr int kSetIvLength = 0x9;
constexpr int kGetTag = 0x10;
constexpr int kSetTag = 0x11;
constexpr int kX25519 = 1034;
constexpr std::size_t kIvBytes = 12;

using Iv = std::array<unsigned char, kIvBytes>;

Iv iv_of(std::uint64_t number) noexcept {
    Iv iv{};
    std::memcpy(iv.data() + 4, &number, sizeof number);
    return iv;
}

const unsigned char* plain(const std::byte* at) noexcept {
    return reinterpret_cast<const unsigned char*>(at);
}
unsigned char* plain(std::byte* at) noexcept { return reinterpret_cast<unsigned char*>(at); }

void must(bool good) {
    if (!good) throw Failure(Why::failed, "libcrypto could not carry out what it was asked for");
}

}  // namespace

struct Libcrypto::Functions {
    void* (*context_new)();
    void (*context_free)(void*);
    const void* (*aes_256_gcm)();
    int (*init)(void*, const void*, void*, const unsigned char*, const unsigned char*, int);
    int (*update)(void*, unsigned char*, int*, const unsigned char*, int);
    int (*final)(void*, unsigned char*, int*);
    int (*control)(void*, int, int, void*);

    void* (*pkey_context_new)(int, void*);
    void* (*pkey_context_of)(void*, void*);
    void (*pkey_context_free)(void*);
    int (*keygen_init)(void*);
    int (*keygen)(void*, void**);
    int (*raw_public)(const void*, unsigned char*, std::size_t*);
    void* (*from_raw_public)(int, void*, const unsigned char*, std::size_t);
    int (*derive_init)(void*);
    int (*derive_peer)(void*, void*);
    int (*derive)(void*, unsigned char*, std::size_t*);
    void (*pkey_free)(void*);
};

std::shared_ptr<const Libcrypto> Libcrypto::load(const std::string& path) {
    return std::shared_ptr<const Libcrypto>(new Libcrypto(path));
}

Libcrypto::Libcrypto(const std::string& path)
    : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)), functions_(std::make_unique<Functions>()) {
    if (handle_ == nullptr) throw Failure(Why::refused, "no libcrypto to encrypt with: " + path);
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* name) {
        void* found = dlsym(handle_, name);
        if (found == nullptr) missing = name;
        std::memcpy(&function, &found, sizeof found);
    };
    auto& f = *functions_;
    find(f.context_new, "EVP_CIPHER_CTX_new");
    find(f.context_free, "EVP_CIPHER_CTX_free");
    find(f.aes_256_gcm, "EVP_aes_256_gcm");
    find(f.init, "EVP_CipherInit_ex");
    find(f.update, "EVP_CipherUpdate");
    find(f.final, "EVP_CipherFinal_ex");
    find(f.control, "EVP_CIPHER_CTX_ctrl");
    find(f.pkey_context_new, "EVP_PKEY_CTX_new_id");
    find(f.pkey_context_of, "EVP_PKEY_CTX_new");
    find(f.pkey_context_free, "EVP_PKEY_CTX_free");
    find(f.keygen_init, "EVP_PKEY_keygen_init");
    find(f.keygen, "EVP_PKEY_keygen");
    find(f.raw_public, "EVP_PKEY_get_raw_public_key");
    find(f.from_raw_public, "EVP_PKEY_new_raw_public_key");
    find(f.derive_init, "EVP_PKEY_derive_init");
    find(f.derive_peer, "EVP_PKEY_derive_set_peer");
    find(f.derive, "EVP_PKEY_derive");
    find(f.pkey_free, "EVP_PKEY_free");
    if (missing == nullptr) return;
    dlclose(handle_);
    throw Failure(Why::refused, path + " cannot encrypt links: it has no " + missing);
}

Libcrypto::~Libcrypto() { dlclose(handle_); }

Cipher::Cipher(std::shared_ptr<const Libcrypto> library, const CipherKey& key, Use use)
    : library_(std::move(library)), context_(library_->functions().context_new()) {
    const auto& f = library_->functions();
    const int sealing = use == Use::seal ? 1 : 0;
    const bool good = context_ != nullptr &&
                      f.init(context_, f.aes_256_gcm(), nullptr, nullptr, nullptr, sealing) == 1 &&
                      f.control(context_, kSetIvLength, kIvBytes, nullptr) == 1 &&
                      f.init(context_, nullptr, nullptr, plain(key.data()), nullptr, sealing) == 1;
    if (good) return;
    f.context_free(context_);
    must(false);
}

Cipher::~Cipher() { library_->functions().context_free(context_); }

bool Cipher::seal(std::uint64_t number, std::span<const std::byte> head,
                  std::span<const std::byte> payload, std::byte* to) noexcept {
    const auto& f = library_->functions();
    const auto iv = iv_of(number);
    int written = 0;
    return f.init(context_, nullptr, nullptr, nullptr, iv.data(), 1) == 1 &&
           f.update(context_, nullptr, &written, plain(head.data()), static_cast<int>(head.size())) == 1 &&
           f.update(context_, plain(to), &written, plain(payload.data()),
                    static_cast<int>(payload.size())) == 1 &&
           f.final(context_, plain(to) + payload.size(), &written) == 1 &&
           f.control(context_, kGetTag, kSealBytes, to + payload.size()) == 1;
}

bool Cipher::open(std::uint64_t number, std::span<const std::byte> head, std::span<std::byte> payload,
                  std::span<const std::byte, kSealBytes> seal) noexcept {
    const auto& f = library_->functions();
    const auto iv = iv_of(number);
    unsigned char nothing[kSealBytes];
    int written = 0;
    std::array<std::byte, kSealBytes> tag;
    std::memcpy(tag.data(), seal.data(), tag.size());
    return f.init(context_, nullptr, nullptr, nullptr, iv.data(), 0) == 1 &&
           f.control(context_, kSetTag, kSealBytes, tag.data()) == 1 &&
           f.update(context_, nullptr, &written, plain(head.data()), static_cast<int>(head.size())) == 1 &&
           f.update(context_, plain(payload.data()), &written, plain(payload.data()),
                    static_cast<int>(payload.size())) == 1 &&
           f.final(context_, nothing, &written) == 1;
}

KeyPair::KeyPair(std::shared_ptr<const Libcrypto> library) : library_(std::move(library)) {
    const auto& f = library_->functions();
    void* making = f.pkey_context_new(kX25519, nullptr);
    std::size_t bytes = shown_.size();
    const bool good = making != nullptr && f.keygen_init(making) == 1 && f.keygen(making, &pair_) == 1 &&
                      f.raw_public(pair_, plain(shown_.data()), &bytes) == 1;
    f.pkey_context_free(making);
    if (good) return;
    f.pkey_free(pair_);
    must(false);
}

KeyPair::~KeyPair() { library_->functions().pkey_free(pair_); }

Shared KeyPair::with(const PublicKey& other) const {
    const auto& f = library_->functions();
    Shared shared{};
    std::size_t bytes = shared.size();
    void* theirs = f.from_raw_public(kX25519, nullptr, plain(other.data()), other.size());
    void* deriving = f.pkey_context_of(pair_, nullptr);
    // It fails, too, where the other's key is one with which the result is always the same.
    const bool good = theirs != nullptr && deriving != nullptr && f.derive_init(deriving) == 1 &&
                      f.derive_peer(deriving, theirs) == 1 &&
                      f.derive(deriving, plain(shared.data()), &bytes) == 1;
    f.pkey_context_free(deriving);
    f.pkey_free(theirs);
    if (!good) throw Failure(Why::refused, "a peer's key is none");
    return shared;
}

}  // namespace tmc
