// SPDX-License-Identifier: Apache-2.0
// What shows in memory whether tensors are as they were: a few words of each, read where they lie. It
// knows nothing of torch: where the words are Python says, which has tried it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tmc {

/// Offsets in bytes. An object begins with the word `kind`; at `storage` and `version` it has the
/// addresses of two others, which have 8 bytes at `data`, and 4 at `counted`. `first` and `size`: more
/// of its own bytes that are compared.
struct WordsLayout {
    std::uint64_t kind = 0;
    std::size_t storage = 0, version = 0, counted = 0, data = 0, first = 0, size = 0;
    bool counts = true;  // The number at `counted` is compared too.
};

/// Of many objects, each found by a word that has its address, at an address that stays readable.
///
/// An address is followed only while it stands where it was found: whoever has it keeps alive what it
/// leads to.
class Words {
public:
    Words(std::vector<std::uint64_t> leads, WordsLayout layout);

    /// false: nothing is noted, some object has another part than it began with, or is of another kind.
    bool note() noexcept;
    /// Whether all is as it was noted.
    bool same() const noexcept;

    const std::vector<std::uint64_t>& addresses() const noexcept { return data_; }
    const std::vector<std::uint32_t>& versions() const noexcept { return versions_; }
    /// Of all objects, one behind the other.
    const std::vector<char>& parts() const noexcept { return parts_; }
    std::size_t part_bytes() const noexcept { return layout_.size; }

private:
    struct Object {
        const char* lead;
        const char* at;
        const char* storage;
        const char* counter;  // null: it is not followed
    };

    void expect(std::size_t number) const noexcept;
    bool stands(const Object& object) const noexcept;

    WordsLayout layout_;
    bool is_found_ = true;
    bool is_noted_ = false;
    std::vector<Object> objects_;
    std::vector<std::uint64_t> data_;
    std::vector<std::uint32_t> versions_;
    std::vector<char> parts_;
};

}  // namespace tmc
