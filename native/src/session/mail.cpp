// SPDX-License-Identifier: Apache-2.0
#include "session/mail.hpp"

#include <algorithm>
#include <cstring>

#include "base/points.hpp"

namespace tmc {

Mail::Mail(const View& view, Ending& ending, Mutex& mutex, const void* owner)
    : view_(view), ending_(ending), mutex_(mutex), owner_(owner), boxes_(view.size()), seen_(view.size()) {}

void Mail::Parcel::written(std::size_t count) noexcept {
    if (left.fetch_sub(count) != count) return;
    const auto kept = ticket;  // Once it is done, nobody need keep this parcel.
    kept->finish({});
}

Outgoing Mail::frame(Frame kind, std::uint64_t a, std::uint64_t b, Tag tag) const {
    Outgoing out;
    out.header.kind = kind;
    out.header.group = view_.life;
    out.header.epoch = view_.epoch;
    out.header.a = a;
    out.header.b = b;
    out.header.tag = tag;
    return out;
}

void Mail::refuse(const std::shared_ptr<Ticket>& ticket, std::size_t seat, Tag tag) {
    ticket->finish(ending_.stopped() ? ending_.trouble() : ending_.loss(seat, tag));
}

/// With the mutex held.
Mail::Box& Mail::box(std::size_t seat) {
    auto& place = boxes_[seat];
    if (place == nullptr) place = std::make_unique<Box>();
    return *place;
}

/// Who waits for anybody waits for everybody; see wires.hpp.
void Mail::want(int seat) {
    for (std::size_t other = 0; other < view_.size(); ++other)
        if (other != view_.seat && (seat == kAnybody || static_cast<std::size_t>(seat) == other))
            view_.links[other]->want();
}

void Mail::send(std::shared_ptr<Ticket> ticket, std::size_t seat, const std::byte* at,
                std::size_t bytes, Tag tag) {
    point();
    auto& link = *view_.links[seat];
    link.want();
    {
        const std::lock_guard lock(mutex_);
        if (ending_.stopped() || ending_.gone(seat)) return refuse(ticket, seat, tag);
        auto& box = this->box(seat);
        auto letter = frame(Frame::letter, box.next_number++, bytes, tag);
        const bool small =
            bytes <= kEagerMax && box.eager_sent + bytes <= box.eager_cleared + kEagerWindow;
        if (small) {
            box.eager_sent += bytes;
            letter.header.length = static_cast<std::uint32_t>(bytes);
            letter.own = std::make_unique<std::byte[]>(std::max<std::size_t>(bytes, 1));
            if (bytes > 0) std::memcpy(letter.own.get(), at, bytes);
            letter.at = letter.own.get();
        } else {
            auto parcel = std::make_shared<Parcel>();
            parcel->ticket = ticket;
            parcel->seat = static_cast<int>(seat);
            parcel->at = const_cast<std::byte*>(at);
            parcel->bytes = bytes;
            parcel->left = bytes;
            parcel->tag = tag;
            box.waiting[letter.header.a] = std::move(parcel);
        }
        if (!link.enqueue(std::move(letter))) return refuse(ticket, seat, tag);
        if (small) ticket->finish({});
    }
    link.push();
}

/// The letter that a receive from `seat` would get: the oldest with its tag.
Mail::Box* Mail::oldest(int seat, Tag tag, std::list<Letter>::iterator& found, std::size_t& from) {
    Box* best = nullptr;
    for (std::size_t other = 0; other < boxes_.size(); ++other) {
        if (boxes_[other] == nullptr) continue;
        if (seat != kAnybody && static_cast<std::size_t>(seat) != other) continue;
        auto& letters = boxes_[other]->in.letters;
        const auto it = std::find_if(letters.begin(), letters.end(), [&](const Letter& letter) {
            return name_of(letter.tag) == name_of(tag);
        });
        if (it == letters.end() || (best != nullptr && found->arrival < it->arrival)) continue;
        best = boxes_[other].get();
        found = it;
        from = other;
    }
    return best;
}

void Mail::receive(std::shared_ptr<Ticket> ticket, int seat, std::byte* at, std::size_t bytes,
                   Tag tag) {
    point();
    want(seat);
    std::optional<Trouble> trouble;
    std::size_t from = 0;
    {
        const std::lock_guard lock(mutex_);
        if (ending_.stopped()) return ticket->finish(ending_.trouble());
        auto parcel = std::make_shared<Parcel>();
        parcel->ticket = ticket;
        parcel->seat = seat;
        parcel->at = at;
        parcel->bytes = bytes;
        parcel->left = bytes;
        parcel->tag = tag;
        std::list<Letter>::iterator found;
        auto* box = oldest(seat, tag, found, from);
        if (box == nullptr) {
            if (const auto who = missed(seat)) return end(*who, *parcel);
            wanted_.push_back(std::move(parcel));
            return;
        }
        auto letter = std::move(*found);
        box->in.letters.erase(found);
        if (letter.body != nullptr) box->in.held -= letter.bytes;
        trouble = deliver(from, letter, parcel);
    }
    if (trouble) ticket->finish(*trouble);
    view_.links[from]->push();
}

/// Give a letter to who wants it: copy a small body, or ask for a large one.
std::optional<Trouble> Mail::deliver(std::size_t seat, Letter& letter,
                                     const std::shared_ptr<Parcel>& parcel) {
    if (letter.tag != parcel->tag || letter.bytes != parcel->bytes)
        return ending_.mismatch(seat, letter.tag, parcel->tag);
    if (letter.body != nullptr || letter.bytes == 0) {
        if (letter.bytes > 0) std::memcpy(parcel->at, letter.body.get(), letter.bytes);
        account(seat, letter.bytes);
        parcel->ticket->finish({}, static_cast<int>(seat));
        return std::nullopt;
    }
    if (ending_.gone(seat)) {
        parcel->ticket->finish(ending_.loss(seat, parcel->tag));
        return std::nullopt;
    }
    parcel->seat = static_cast<int>(seat);
    box(seat).coming[letter.number] = parcel;
    view_.links[seat]->enqueue(frame(Frame::clear, letter.number, 0, letter.tag));
    return std::nullopt;
}

/// Tell the sender now and then how much of its small messages was read.
void Mail::account(std::size_t seat, std::uint64_t bytes) {
    auto& box = this->box(seat);
    box.eager_read += bytes;
    if (box.eager_read - box.eager_told < kEagerWindow / 4) return;
    box.eager_told = box.eager_read;
    view_.links[seat]->enqueue(frame(Frame::read, box.eager_read, 0, {}));
}

/// The seat for whose end a receive from `seat`, for which no letter is there, waits in vain. Who receives
/// from anybody does so if one has failed, which might have been the sender, or if all have left; one
/// that left in good order says by that that the letter is another's.
std::optional<std::size_t> Mail::missed(int seat) const {
    if (seat != kAnybody) {
        const auto one = static_cast<std::size_t>(seat);
        return seen_[one] == Seen::here ? std::nullopt : std::optional(one);
    }
    auto left = static_cast<std::size_t>(view_.seat);
    bool alone = true;
    for (std::size_t other = 0; other < seen_.size(); ++other) {
        if (other == view_.seat) continue;
        if (seen_[other] == Seen::failed) return other;
        if (seen_[other] == Seen::here) alone = false;
        left = other;
    }
    return alone ? std::optional(left) : std::nullopt;
}

/// Take the oldest receive that this message answers.
std::shared_ptr<Mail::Parcel> Mail::wanted(std::size_t seat, Tag tag) {
    const auto it = std::find_if(wanted_.begin(), wanted_.end(), [&](const auto& parcel) {
        const bool from = parcel->seat == kAnybody || static_cast<std::size_t>(parcel->seat) == seat;
        return from && name_of(parcel->tag) == name_of(tag);
    });
    if (it == wanted_.end()) return nullptr;
    auto parcel = *it;
    wanted_.erase(it);
    return parcel;
}

Landing Mail::arrive_letter(std::size_t seat, const Header& header) {
    auto& box = this->box(seat);
    if (header.length != 0 && header.length != header.b)
        throw Failure(Why::peer_lost, "a message brings a part of its body");
    if (header.length == 0) return {};
    box.landing = wanted(seat, header.tag);
    if (box.landing != nullptr) {
        if (box.landing->tag == header.tag && box.landing->bytes == header.b)
            return {box.landing->at, nullptr, owner_};
        return {};  // landed_letter tells.
    }
    if (box.in.held + header.length > kEagerWindow + kEagerMax ||
        box.in.letters.size() >= kLettersMax)
        throw Failure(Why::peer_lost, "it sends more messages than it may");
    box.in.held += header.length;
    Landing landing;
    landing.own = std::make_unique<std::byte[]>(header.length);
    landing.at = landing.own.get();
    return landing;
}

std::optional<Trouble> Mail::landed_letter(std::size_t seat, const Header& header,
                                           Landing& landing) {
    auto& box = this->box(seat);
    if (box.landing != nullptr) {
        const auto parcel = std::move(box.landing);
        box.landing = nullptr;
        if (parcel->tag != header.tag || parcel->bytes != header.b) {
            const auto trouble = ending_.mismatch(seat, header.tag, parcel->tag);
            parcel->ticket->finish(trouble);
            return trouble;
        }
        account(seat, header.length);
        parcel->ticket->finish({}, static_cast<int>(seat));
        return std::nullopt;
    }
    Letter letter{header.a, header.b, header.tag, std::move(landing.own), ++arrivals_};
    const auto parcel = wanted(seat, header.tag);
    if (parcel == nullptr) {
        if (box.in.letters.size() >= kLettersMax)
            return Trouble{Why::peer_lost, "seat " + std::to_string(seat) + " floods with messages"};
        box.in.letters.push_back(std::move(letter));
        return std::nullopt;
    }
    if (letter.body != nullptr) box.in.held -= letter.bytes;
    auto trouble = deliver(seat, letter, parcel);
    if (trouble) parcel->ticket->finish(*trouble);
    return trouble;
}

/// The receiver is ready for a body: queue all of it.
void Mail::clear(std::size_t seat, std::uint64_t number) {
    auto& box = this->box(seat);
    const auto found = box.waiting.find(number);
    if (found == box.waiting.end())
        throw Failure(Why::peer_lost, "it asks for a message that was not sent");
    const auto parcel = found->second;
    box.waiting.erase(found);
    std::erase_if(box.going, [](const auto& other) { return other->ticket->done(); });
    box.going.push_back(parcel);
    for (std::uint64_t offset = 0; offset < parcel->bytes; offset += kPayloadMax) {
        auto out = frame(Frame::body, number, offset, parcel->tag);
        out.header.length =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(kPayloadMax, parcel->bytes - offset));
        out.at = parcel->at + offset;
        out.writer = parcel.get();
        out.owner = owner_;
        view_.links[seat]->enqueue(std::move(out));
    }
}

Landing Mail::arrive_body(std::size_t seat, const Header& header) {
    auto& coming = box(seat).coming;
    const auto found = coming.find(header.a);
    if (found == coming.end())
        throw Failure(Why::peer_lost, "it sends a message that was not asked for");
    const auto& parcel = *found->second;
    if (header.b > parcel.bytes || header.length > parcel.bytes - header.b || header.length == 0)
        throw Failure(Why::peer_lost, "it sends more of a message than there is");
    return {parcel.at + header.b, nullptr, owner_};
}

void Mail::landed_body(std::size_t seat, const Header& header) {
    auto& coming = box(seat).coming;
    const auto found = coming.find(header.a);
    if (found == coming.end()) return;
    const auto parcel = found->second;
    const auto left = parcel->left.load();
    if (header.length > left) return;
    parcel->left.store(left - header.length);
    if (left > header.length) return;
    coming.erase(found);
    parcel->ticket->finish({}, static_cast<int>(seat));
}

void Mail::read(std::size_t seat, std::uint64_t bytes) {
    auto& box = this->box(seat);
    if (bytes > box.eager_sent || bytes < box.eager_cleared)
        throw Failure(Why::peer_lost, "it has read what was never sent");
    box.eager_cleared = bytes;
}

void Mail::adopt(std::size_t seat, Letterbox letters) {
    if (letters.held == 0 && letters.letters.empty()) return;  // One that is held may still be on its way.
    auto& in = box(seat).in;
    in = std::move(letters);
    for (auto& letter : in.letters) letter.arrival = ++arrivals_;
}

void Mail::lose(std::size_t seat, bool orderly, bool connected) {
    part(seat, orderly);
    auto& box = this->box(seat);
    for (const auto& [number, parcel] : box.coming) end(seat, *parcel);
    if (box.landing != nullptr) end(seat, *box.landing);
    box.coming.clear();
    box.landing = nullptr;
    if (connected) return;
    for (const auto& parcel : box.going) end(seat, *parcel);
    box.going.clear();
}

void Mail::part(std::size_t seat, bool orderly) {
    auto& waiting = box(seat).waiting;
    for (const auto& [number, parcel] : waiting) end(seat, *parcel);
    waiting.clear();
    if (seen_[seat] == Seen::here) seen_[seat] = orderly ? Seen::left : Seen::failed;
    wanted_.remove_if([&](const std::shared_ptr<Parcel>& parcel) {
        const auto who = missed(parcel->seat);
        if (who) end(*who, *parcel);
        return who.has_value();
    });
}

/// Its seat is lost.
void Mail::end(std::size_t seat, const Parcel& parcel) {
    parcel.ticket->finish(ending_.loss(seat, parcel.tag));
}

void Mail::stop() {
    for (auto& box : boxes_)
        if (box != nullptr) box->in = {};
}

void Mail::finish(const Trouble& trouble) {
    std::vector<std::shared_ptr<Ticket>> open;
    {
        const std::lock_guard lock(mutex_);
        for (auto& box : boxes_) {
            if (box == nullptr) continue;
            for (const auto& [number, parcel] : box->waiting) open.push_back(parcel->ticket);
            for (const auto& [number, parcel] : box->coming) open.push_back(parcel->ticket);
            for (const auto& parcel : box->going) open.push_back(parcel->ticket);
            if (box->landing != nullptr) open.push_back(box->landing->ticket);
            box.reset();
        }
        for (const auto& parcel : wanted_) open.push_back(parcel->ticket);
        wanted_.clear();
    }
    for (const auto& ticket : open) ticket->finish(trouble);
}

}  // namespace tmc
