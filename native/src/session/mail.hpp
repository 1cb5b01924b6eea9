// SPDX-License-Identifier: Apache-2.0
// Messages between two seats, matched by (source, tag) in the order they were sent.
//
// A small message comes along with its letter. Of a large one only the letter is sent; the body
// follows when the receiver has said where it goes, and lands there without a copy. So nothing
// large is ever held for a receiver that does not want it yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/points.hpp"
#include "base/ticket.hpp"
#include "links/link.hpp"
#include "session/ending.hpp"
#include "session/view.hpp"

namespace tmc {

inline constexpr std::size_t kEagerMax = 16 * 1024;
inline constexpr std::uint64_t kEagerWindow = 1024 * 1024;
inline constexpr std::size_t kLettersMax = 1 << 20;

/// A message that came and that nobody has asked for yet.
struct Letter {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    Tag tag;
    std::unique_ptr<std::byte[]> body;  // of a small one
    std::uint64_t arrival = 0;
};

/// Letters from one seat. Exists before its session does, as `Inflow`.
struct Letterbox {
    std::list<Letter> letters;
    std::uint64_t held = 0;  // bytes of bodies, also of the one that is arriving
};

class Mail {
public:
    static constexpr int kAnybody = -1;

    Mail(const View& view, Ending& ending, Mutex& mutex, const void* owner);

    /// tag  kind message, type, count, and the caller's number of the message as root
    void send(std::shared_ptr<Ticket> ticket, std::size_t seat, const std::byte* at,
              std::size_t bytes, Tag tag);
    void receive(std::shared_ptr<Ticket> ticket, int seat, std::byte* at, std::size_t bytes,
                 Tag tag);

    // For readers of links, with the mutex held; as in Wires.
    Landing arrive_letter(std::size_t seat, const Header& header);
    std::optional<Trouble> landed_letter(std::size_t seat, const Header& header, Landing& landing);
    void clear(std::size_t seat, std::uint64_t number);
    Landing arrive_body(std::size_t seat, const Header& header);
    void landed_body(std::size_t seat, const Header& header);
    void read(std::size_t seat, std::uint64_t bytes);
    void adopt(std::size_t seat, Letterbox box);

    /// The seat will say nothing more, and all that it said has come: end what only it could, also
    /// what begins later. With the mutex held; from the thread that reads its link, for what is on its
    /// way from it may not land any more.
    /// orderly  it left of its own will, and the first word on that counts; connected  it still takes
    /// what is being written to it
    void lose(std::size_t seat, bool orderly, bool connected);
    /// Nothing new comes from the seat, and it asks for nothing; what is on its way still lands.
    /// With the mutex held.
    void part(std::size_t seat, bool orderly);
    /// Nothing can be matched from now on. With the mutex held.
    void stop();
    /// Tell everybody who waits. After this session's buffers are left alone by all links.
    void finish(const Trouble& trouble);

private:
    struct Parcel : Writer {
        std::shared_ptr<Ticket> ticket;
        int seat = kAnybody;
        std::byte* at = nullptr;
        std::uint64_t bytes = 0;
        std::atomic<std::uint64_t> left{0};
        Tag tag;

        void written(std::size_t count) noexcept override;
    };
    using Parcels = std::unordered_map<std::uint64_t, std::shared_ptr<Parcel>>;
    struct Box {
        Letterbox in;
        Parcels coming;   // bodies that were cleared, by the sender's number
        Parcels waiting;  // letters sent whose bodies were not cleared
        std::vector<std::shared_ptr<Parcel>> going;
        std::shared_ptr<Parcel> landing;
        std::uint64_t next_number = 1;
        std::uint64_t eager_sent = 0;
        std::uint64_t eager_cleared = 0;
        std::uint64_t eager_read = 0;
        std::uint64_t eager_told = 0;
    };

    /// How a seat is seen by who reads its link. `Ending` may know earlier that it is gone, while what it
    /// sent before is still on its way.
    enum class Seen : std::uint8_t { here, left, failed };

    static std::uint32_t name_of(Tag tag) noexcept {
        return static_cast<std::uint32_t>(tag.low >> 32);
    }
    Outgoing frame(Frame kind, std::uint64_t a, std::uint64_t b, Tag tag) const;
    std::shared_ptr<Parcel> wanted(std::size_t seat, Tag tag);
    std::optional<std::size_t> missed(int seat) const;
    std::optional<Trouble> deliver(std::size_t seat, Letter& letter,
                                   const std::shared_ptr<Parcel>& parcel);
    Box& box(std::size_t seat);
    void want(int seat);
    Box* oldest(int seat, Tag tag, std::list<Letter>::iterator& found, std::size_t& from);
    void account(std::size_t seat, std::uint64_t bytes);
    void end(std::size_t seat, const Parcel& parcel);
    void refuse(const std::shared_ptr<Ticket>& ticket, std::size_t seat, Tag tag);

    const View& view_;
    Ending& ending_;
    Mutex& mutex_;
    const void* owner_;
    std::vector<std::unique_ptr<Box>> boxes_;  // by seat; null where none was needed so far
    std::vector<Seen> seen_;                   // by seat
    std::list<std::shared_ptr<Parcel>> wanted_;
    std::uint64_t arrivals_ = 0;
};

}  // namespace tmc
