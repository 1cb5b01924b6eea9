// SPDX-License-Identifier: Apache-2.0
#include "python/words.hpp"

#include <cstring>

namespace tmc {

namespace {

constexpr std::size_t kAhead = 12;  // Objects whose memory is on its way while one is looked at.

template <typename Value>
Value read(const char* at) noexcept {
    Value value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

const char* led_to(const char* at) noexcept { return read<const char*>(at); }

}  // namespace

Words::Words(std::vector<std::uint64_t> leads, WordsLayout layout) : layout_(layout) {
    objects_.reserve(leads.size());
    for (const auto lead : leads) {
        Object object{reinterpret_cast<const char*>(lead), nullptr, nullptr, nullptr};
        object.at = led_to(object.lead);
        if (object.at == nullptr || read<std::uint64_t>(object.at) != layout_.kind) {
            is_found_ = false;
            return;
        }
        object.storage = led_to(object.at + layout_.storage);
        if (layout_.counts) object.counter = led_to(object.at + layout_.version);
        if (object.storage == nullptr || (layout_.counts && object.counter == nullptr)) {
            is_found_ = false;
            return;
        }
        objects_.push_back(object);
    }
    data_.resize(objects_.size());
    versions_.resize(layout_.counts ? objects_.size() : 0);
    parts_.resize(objects_.size() * layout_.size);
}

void Words::expect(std::size_t number) const noexcept {
    if (number >= objects_.size()) return;
    const auto& object = objects_[number];
    __builtin_prefetch(object.lead);
    __builtin_prefetch(object.at);
    __builtin_prefetch(object.at + layout_.version);
    __builtin_prefetch(object.at + layout_.first);
    __builtin_prefetch(object.at + layout_.first + layout_.size - 1);
    __builtin_prefetch(object.storage + layout_.data);
    if (object.counter != nullptr) __builtin_prefetch(object.counter + layout_.counted);
}

bool Words::stands(const Object& object) const noexcept {
    return led_to(object.lead) == object.at && read<std::uint64_t>(object.at) == layout_.kind &&
           led_to(object.at + layout_.storage) == object.storage &&
           (!layout_.counts || led_to(object.at + layout_.version) == object.counter);
}

bool Words::note() noexcept {
    is_noted_ = false;
    if (!is_found_) return false;
    for (std::size_t number = 0; number < kAhead; ++number) expect(number);
    for (std::size_t number = 0; number < objects_.size(); ++number) {
        expect(number + kAhead);
        const auto& object = objects_[number];
        if (!stands(object)) return false;
        data_[number] = read<std::uint64_t>(object.storage + layout_.data);
        if (layout_.counts) versions_[number] = read<std::uint32_t>(object.counter + layout_.counted);
        std::memcpy(parts_.data() + number * layout_.size, object.at + layout_.first, layout_.size);
    }
    return is_noted_ = true;
}

bool Words::same() const noexcept {
    if (!is_noted_) return false;
    for (std::size_t number = 0; number < kAhead; ++number) expect(number);
    for (std::size_t number = 0; number < objects_.size(); ++number) {
        expect(number + kAhead);
        const auto& object = objects_[number];
        if (!stands(object) || data_[number] != read<std::uint64_t>(object.storage + layout_.data)) return false;
        if (layout_.counts && versions_[number] != read<std::uint32_t>(object.counter + layout_.counted))
            return false;
        if (std::memcmp(parts_.data() + number * layout_.size, object.at + layout_.first, layout_.size) != 0)
            return false;
    }
    return true;
}

}  // namespace tmc
