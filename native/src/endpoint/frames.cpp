// SPDX-License-Identifier: Apache-2.0
// What links bring, and whose it is.
#include "endpoint/endpoint.hpp"

namespace tmc {
namespace {

/// Words of a peer, which may be anything, as text.
std::string readable(const Landing& landing, std::size_t length) {
    std::string text(reinterpret_cast<const char*>(landing.own.get()), length);
    for (auto& letter : text)
        if (letter < ' ' || letter > '~') letter = '?';
    return text;
}

}  // namespace

/// Whose frame it is: a session's, or one that waits for its session, or nobody's.
Endpoint::Addressee Endpoint::addressee(const Link& link, const Header& header) {
    const auto found = sessions_.find(header.group);
    if (found != sessions_.end()) {
        const auto& session = found->second;
        if (header.epoch < session->epoch()) return {};
        if (header.epoch == session->epoch()) {
            const int seat = session->seat_of(link.peer);
            if (seat < 0 || session->ending.stopped()) return {};
            return {session, seat, nullptr};
        }
    } else if (buried_.contains(header.group)) {
        return {};
    }
    const bool kept = header.kind == Frame::data || header.kind == Frame::letter || header.kind == Frame::broken;
    return {nullptr, -1, kept ? early({header.group, header.epoch, link.peer}) : nullptr};
}

Early* Endpoint::early(const EarlyKey& key) {
    const auto found = early_.find(key);
    if (found != early_.end()) return &found->second;
    if (early_.size() >= kEarlyMax) throw Failure(Why::peer_lost, "it talks to too many unknown groups");
    return &early_[key];
}

Landing Endpoint::arrive(Link& link, const Header& header) {
    const auto own = [&] {
        Landing landing;
        landing.own = std::make_unique<std::byte[]>(header.length + std::size_t{1});
        landing.at = landing.own.get();
        return landing;
    };
    const std::lock_guard lock(mutex_);
    switch (header.kind) {
        case Frame::data:
        case Frame::letter:
        case Frame::body: {
            const auto to = addressee(link, header);
            const auto seat = static_cast<std::size_t>(std::max(to.seat, 0));
            if (to.session != nullptr) {
                if (header.kind == Frame::data) return to.session->wires.arrive(seat, header);
                if (header.kind == Frame::letter) return to.session->mail.arrive_letter(seat, header);
                return to.session->mail.arrive_body(seat, header);
            }
            if (to.early == nullptr || header.kind == Frame::body) {
                ++facts_.frames_dropped;
                return {};
            }
            auto& held = header.kind == Frame::data ? to.early->inflow.held : to.early->letters.held;
            held += header.length;
            if (held > kWindow) throw Failure(Why::peer_lost, "it sends more than its window");
            return header.length == 0 && header.kind == Frame::letter ? Landing{} : own();
        }
        case Frame::broken:
        case Frame::replaced: return own();
        default: return {};
    }
}

void Endpoint::take_early(const Header& header, Landing& landing, Early& early) {
    if (header.kind == Frame::data && landing.own != nullptr) {
        early.inflow.pieces.push_back({std::move(landing.own), header.length, header.tag});
    } else if (header.kind == Frame::letter && (header.length == 0 || landing.own != nullptr)) {
        if (early.letters.letters.size() >= kLettersMax)
            throw Failure(Why::peer_lost, "it sends more messages than it may");
        early.letters.letters.push_back(
            {header.a, header.b, header.tag, std::move(landing.own), 0});
    } else if (header.kind == Frame::broken) {
        early.broken = "it gave up: " + readable(landing, header.length);
        early.orderly = header.a == 1;
    }
}

std::optional<Trouble> Endpoint::take(const Header& header, Landing& landing, const Addressee& to) {
    auto& session = *to.session;
    const auto seat = static_cast<std::size_t>(to.seat);
    switch (header.kind) {
        case Frame::data: {
            auto trouble = session.wires.landed(seat, header, landing);
            session.wires.give_credit(seat);
            return trouble;
        }
        case Frame::credit: session.wires.credit(seat, header.a); return std::nullopt;
        case Frame::letter: return session.mail.landed_letter(seat, header, landing);
        case Frame::clear: session.mail.clear(seat, header.a); return std::nullopt;
        case Frame::body:
            if (landing.owner != nullptr) session.mail.landed_body(seat, header);
            return std::nullopt;
        case Frame::read: session.mail.read(seat, header.a); return std::nullopt;
        case Frame::waiting: return session.compare(seat, header.a, header.tag);
        case Frame::broken: {
            session.ending.lose(seat, "it gave up: " + readable(landing, header.length));
            session.mail.lose(seat, header.a == 1, true);
            return std::nullopt;
        }
        default: return std::nullopt;
    }
}

/// The others have gone on without this process. What they said before still counts, so a call that
/// runs may end well; none can begin. Each of them says so: what is on its way from another than the
/// `speaker` may be landing just now, and ends when that one says it.
void Endpoint::outdate(Session& session, std::uint64_t epoch, std::size_t speaker) {
    const auto text =
        "this process's seat was given to another one in epoch " + std::to_string(epoch);
    session.ending.outdate({Why::refused, text});
    for (std::size_t seat = 0; seat < session.view.size(); ++seat) {
        if (seat == session.view.seat) continue;
        session.ending.lose(seat, text);
        if (seat == speaker)
            session.mail.lose(seat, false, true);
        else
            session.mail.part(seat, false);
    }
}

/// A peer counts on this process in an epoch that is over here, and may not know: there was no link to
/// tell it by. With the mutex held.
void Endpoint::answer_late(Link& link, const Header& header) {
    if (header.kind != Frame::data && header.kind != Frame::letter && header.kind != Frame::waiting) return;
    const auto found = sessions_.find(header.group);
    if (found == sessions_.end()) {
        if (buried_.contains(header.group))
            link.enqueue(broken_frame(header.group, header.epoch, "it has closed the group", true));
        return;
    }
    auto& session = *found->second;
    const int seat = session.seat_of(link.peer);
    if (session.epoch() == header.epoch && seat >= 0) session.tell_late(static_cast<std::size_t>(seat));
    if (session.epoch() > header.epoch && seat < 0)
        link.enqueue(replaced_frame(header.group, session.epoch()));
}

void Endpoint::landed(Link& link, const Header& header, Landing landing) {
    std::optional<Trouble> trouble;
    std::shared_ptr<Session> session;
    bool answers = false;
    {
        const std::lock_guard lock(mutex_);
        if (header.kind == Frame::leaving) return;
        if (header.kind == Frame::farewell) return farewell(header.group, link.peer, header.epoch);
        if (header.kind == Frame::replaced) {
            if (header.epoch > 0) farewell(header.group, link.peer, header.epoch - 1);
            const auto found = sessions_.find(header.group);
            if (found == sessions_.end() || found->second->epoch() >= header.epoch) return;
            const auto seat = found->second->seat_of(link.peer);
            if (seat < 0) return;
            session = found->second;
            outdate(*session, header.epoch, static_cast<std::size_t>(seat));
        } else {
            auto to = addressee(link, header);
            session = to.session;
            if (session != nullptr)
                trouble = take(header, landing, to);
            else if (to.early != nullptr)
                take_early(header, landing, *to.early);
            else
                answer_late(link, header);
            answers = header.kind != Frame::broken && link.wants_to_write();
        }
    }
    const bool loses = header.kind == Frame::broken || header.kind == Frame::replaced;
    if (session != nullptr && loses) session->ending.wake();
    if (answers) link.push();
    if (!trouble) return;
    // This thread reads the link, so it cannot also have it forget the session's buffers.
    later([session, reason = *trouble] {
        session->stop(reason, Tell::broken);
        session->clean();
    });
}

}  // namespace tmc
