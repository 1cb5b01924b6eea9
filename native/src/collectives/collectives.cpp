// SPDX-License-Identifier: Apache-2.0
#include "collectives/collectives.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "collectives/reduce.hpp"
#include "collectives/row.hpp"
#include "session/plan.hpp"

namespace tmc {
namespace {

// One step instead of two while a tensor is small: all seats reduce all of it.
constexpr std::size_t kSmallBytes = 32 * 1024;  // of all seats together
constexpr std::size_t kWirePiece = 1024 * 1024;

/// Bytes of a chunk, the same on all seats: what fits a slot, or more where nobody has one.
std::size_t chunk_bytes(const Session& s) {
    return s.topology.hosts.size() == s.topology.size ? kWireChunk : s.board.slot_bytes();
}

/// Whether a call in which a tree carries that many bytes a seat goes by a tree over the hosts.
bool goes_by_tree(const Topology& t, std::uint64_t bytes) {
    return t.hosts.size() > 1 && t.size > kFewSeats && fits_tree(bytes, t.size);
}

// A tree over the hosts. On each of them one seat speaks for all, the root on its own.

struct Speakers {
    Speakers(const Topology& topology, std::uint32_t root_, std::uint32_t radix = kFlat)
        : t(topology),
          root(root_),
          tree{static_cast<std::uint32_t>(topology.hosts.size()), radix},
          place((topology.host + tree.size - topology.host_of[root_]) % tree.size),
          me(of(place)) {}

    const Topology& t;
    const std::uint32_t root;
    const Tree tree;
    const std::uint32_t place;  // Of this seat's host; the root's has 0.
    const std::uint32_t me;     // Who speaks for this seat.

    bool speaks() const noexcept { return t.seat == me; }
    const std::vector<std::uint32_t>& seats_at(std::uint32_t p) const noexcept {
        return t.hosts[(p + t.host_of[root]) % tree.size];
    }
    std::uint32_t of(std::uint32_t p) const noexcept { return p == 0 ? root : seats_at(p).front(); }
};

/// What all seats have, `bytes` each, by seat, at the root; elsewhere empty. It lies in scratch memory.
std::vector<const void*> collect(Session& s, const Speakers& speakers, ConstBytes data,
                                 std::size_t bytes) {
    const auto& t = s.topology;
    const auto& tree = speakers.tree;
    const auto place = speakers.place;
    put(s.board.open(), data, t.neighbours.empty() ? 0 : bytes);
    s.board.post();
    if (!speakers.speaks()) return {};
    // Place by place, and there seat by seat.
    std::vector<std::size_t> begin{0};
    for (auto p = place; p < place + tree.span(place); ++p)
        begin.push_back(begin.back() + speakers.seats_at(p).size() * bytes);
    auto* area = s.scratch.take(begin.back() + 1);
    for (const auto child : tree.children(place)) {
        const auto from = begin[child - place];
        s.wires.expect(speakers.of(child), area + from, begin[child - place + tree.span(child)] - from);
    }
    for (const auto seat : t.here())
        put(area + t.index_of[seat] * bytes, seat == t.seat ? data : s.board.see(seat), bytes);
    s.wires.settle();
    s.board.verify();
    if (place != 0) {
        s.wires.send(speakers.of(speakers.tree.parent(place)), area, begin.back());
        s.wires.settle();
        return {};
    }
    std::vector<const void*> inputs(t.size);
    for (std::uint32_t p = 0; p < tree.size; ++p)
        for (const auto seat : speakers.seats_at(p))
            inputs[seat] = area + begin[p] + t.index_of[seat] * bytes;
    return inputs;
}

/// The root's bytes to everybody, in pieces: while one is passed on the next one comes.
void spread(Session& s, const Speakers& speakers, Bytes data, std::uint64_t bytes) {
    const auto& t = s.topology;
    const auto apart = t.hosts.size() == t.size;
    const auto most = apart ? kPayloadMax : s.board.slot_bytes();
    auto missing = chunks_of(bytes, most);
    const auto place = speakers.place;
    auto parent = speakers.tree.parent(place);
    auto children = speakers.tree.children(place);
    if (row_is_faster(missing, speakers.tree)) {
        parent = place - 1;
        children.clear();
        if (place + 1 < speakers.tree.size) children.push_back(place + 1);
    }
    const bool hears = speakers.speaks() && place != 0;
    if (hears)
        in_chunks(bytes, most, [&](std::uint64_t at, std::size_t step) {
            s.wires.expect(speakers.of(parent), data + at, step);
        });
    in_chunks(bytes, most, [&](std::uint64_t at, std::size_t step) {
        --missing;
        if (!speakers.speaks()) {
            s.board.open();
            s.board.post();
            put(data + at, s.board.see(speakers.me), step);
            return;
        }
        if (hears) s.wires.await_from(speakers.of(parent), missing);
        for (const auto child : children) s.wires.send(speakers.of(child), data + at, step);
        put(s.board.open(), data + at, t.neighbours.empty() ? 0 : step);
        s.board.post();
    });
    s.wires.settle();
}

// Blocks that go from every seat to every other one.

std::uint64_t largest(std::span<const std::size_t> sizes) {
    return *std::max_element(sizes.begin(), sizes.end());
}

/// Every seat gives every other one its part and reduces what it got; not for one host alone. All of
/// it goes over wires, between neighbours too: nothing could be added up on a host before, in the
/// order of the seats, and through slots it would take many beats.
///
/// inputs  by seat, counts[seat] elements each; all seats know all counts
void reduce_parts(Session& s, std::span<const ConstBytes> inputs, std::span<const std::size_t> counts,
                  Bytes output, DType dtype, Op op) {
    const auto& t = s.topology;
    const auto width = size_of(dtype);
    const auto own = counts[t.seat] * width;
    auto* come = s.scratch.take(t.size * own + 1);
    std::vector<const void*> addends(t.size, inputs[t.seat]);
    for (std::uint32_t i = 1; i < t.size; ++i) {
        // Each begins with another one.
        const auto to = (t.seat + i) % t.size;
        const auto from = (t.seat + t.size - i) % t.size;
        s.wires.expect(from, come + from * own, own);
        s.wires.send(to, inputs[to], counts[to] * width);
        addends[from] = come + from * own;
    }
    s.wires.settle();
    reduce(addends, output, counts[t.seat], dtype, op, t.size);
}

/// Every seat's block to every other one. It crosses to each other host once; there one seat shows it
/// to its neighbours.
///
/// blocks  by seat, of so many bytes; the own one is there
void share_blocks(Session& s, std::span<const Bytes> blocks, std::span<const std::size_t> bytes) {
    const auto& t = s.topology;
    const auto& kept = t.kept;
    // All hosts must cut alike, so the largest share of anybody anywhere decides.
    const auto most = chunk_bytes(s) / (t.mixed() ? t.kept_most : 1);
    auto missing = chunks_of(largest(bytes), most);
    // Wires carry all of it from the start, and run ahead of the slots.
    in_chunks(largest(bytes), most, [&](std::uint64_t at, std::size_t) {
        for (std::size_t host = 0; host < t.hosts.size(); ++host)
            if (host != t.host)
                s.wires.send(t.keeper(t.seat, host), blocks[t.seat] + at, piece_at(bytes[t.seat], at, most));
        for (const auto seat : kept[t.seat])
            s.wires.expect(seat, blocks[seat] + at, piece_at(bytes[seat], at, most));
    });
    if (t.neighbours.empty()) return s.wires.settle();
    in_chunks(largest(bytes), most, [&](std::uint64_t at, std::size_t) {
        --missing;
        put(s.board.open(), blocks[t.seat] + at, piece_at(bytes[t.seat], at, most));
        s.board.post();
        for (const auto seat : t.neighbours)
            put(blocks[seat] + at, s.board.see(seat), piece_at(bytes[seat], at, most));
        if (!t.mixed()) return;
        for (const auto seat : kept[t.seat]) s.wires.await_from(seat, missing);
        auto* slot = s.board.open();
        for (const auto seat : kept[t.seat]) {
            put(slot, blocks[seat] + at, piece_at(bytes[seat], at, most));
            slot += most;
        }
        s.board.post();
        for (const auto neighbour : t.neighbours) {
            const auto* shown = s.board.see(neighbour);
            for (const auto seat : kept[neighbour]) {
                put(blocks[seat] + at, shown, piece_at(bytes[seat], at, most));
                shown += most;
            }
        }
    });
    s.wires.settle();
}

// all_reduce and reduce.

struct Reduction {
    DType dtype;
    Op op;
    int root;
    std::size_t width;

    bool wanted_by(std::uint32_t seat) const noexcept {
        return root == kEverywhere || static_cast<std::uint32_t>(root) == seat;
    }
};

/// Everybody shows all of it, and who wants the result reduces all of it.
void reduce_small(Session& s, const Reduction& r, Bytes data, std::size_t count) {
    const auto& t = s.topology;
    const auto bytes = count * r.width;
    const auto mine = r.wanted_by(t.seat);
    auto* come = mine ? s.scratch.take(t.size * bytes) : nullptr;
    std::vector<const void*> inputs(t.size, data);
    put(s.board.open(), data, t.neighbours.empty() ? 0 : bytes);
    s.board.post();
    for (const auto seat : t.distant) {
        if (r.wanted_by(seat)) s.wires.send(seat, data, bytes);
        if (!mine) continue;
        inputs[seat] = come + seat * bytes;
        s.wires.expect(seat, come + seat * bytes, bytes);
    }
    if (mine)
        for (const auto seat : t.neighbours) inputs[seat] = s.board.see(seat);
    s.wires.settle();
    if (mine) reduce(inputs, data, count, r.dtype, r.op, t.size);
}

/// Every seat reduces one slice; then the slices are put together.
void reduce_sliced(Session& s, const Reduction& r, Bytes data, std::size_t count) {
    const auto& t = s.topology;
    const auto own = slice_of(count, t.seat, t.size);
    const auto own_bytes = own.count() * r.width;
    auto* come = s.scratch.take((t.distant.size() + 1) * own_bytes);
    std::vector<const void*> inputs(t.size, data + own.first * r.width);
    auto* slot = s.board.open();
    for (const auto seat : t.neighbours) {
        const auto theirs = slice_of(count, seat, t.size);
        put(slot + theirs.first * r.width, data + theirs.first * r.width, theirs.count() * r.width);
    }
    s.board.post();
    auto* next = come;
    for (const auto seat : t.distant) {
        const auto theirs = slice_of(count, seat, t.size);
        s.wires.send(seat, data + theirs.first * r.width, theirs.count() * r.width);
        s.wires.expect(seat, next, own_bytes);
        inputs[seat] = next;
        next += own_bytes;
    }
    for (const auto seat : t.neighbours) inputs[seat] = s.board.see(seat) + own.first * r.width;
    s.wires.settle();

    slot = s.board.open();
    auto* result = slot != nullptr ? slot : r.wanted_by(t.seat) ? data + own.first * r.width : next;
    reduce(inputs, result, own.count(), r.dtype, r.op, t.size);
    s.board.post();
    for (const auto seat : t.distant)
        if (r.wanted_by(seat)) s.wires.send(seat, result, own_bytes);
    if (r.wanted_by(t.seat)) {
        put(data + own.first * r.width, result, own_bytes);
        for (const auto seat : t.distant) {
            const auto theirs = slice_of(count, seat, t.size);
            s.wires.expect(seat, data + theirs.first * r.width, theirs.count() * r.width);
        }
        for (const auto seat : t.neighbours) {
            const auto theirs = slice_of(count, seat, t.size);
            put(data + theirs.first * r.width, s.board.see(seat), theirs.count() * r.width);
        }
    }
    s.wires.settle();
}

/// One chunk of it, for seats that are all apart. What still comes of the chunk before lands first.
void reduce_pieces(Session& s, const Reduction& r, Bytes data, std::size_t count, Bytes come) {
    const auto& t = s.topology;
    const auto piece = std::max<std::size_t>(kWirePiece / r.width, 1);
    const auto own = slice_of(count, t.seat, t.size);
    const auto own_bytes = own.count() * r.width;
    for (std::size_t i = 0; i < t.distant.size(); ++i) {
        const auto seat = t.distant[i];
        const auto theirs = slice_of(count, seat, t.size);
        auto* their_data = data + theirs.first * r.width;
        in_chunks(theirs.count(), piece, [&](std::uint64_t at, std::size_t step) {
            s.wires.send(seat, their_data + at * r.width, step * r.width);
        });
        in_chunks(own.count(), piece, [&](std::uint64_t at, std::size_t step) {
            s.wires.expect(seat, come + i * own_bytes + at * r.width, step * r.width);
        });
        s.wires.expect(seat, their_data, theirs.count() * r.width);
    }
    auto missing = std::max<std::size_t>((own.count() + piece - 1) / piece, 1);
    std::vector<const void*> inputs(t.size);
    in_chunks(own.count(), piece, [&](std::uint64_t at, std::size_t step) {
        s.wires.await(missing--);  // What is behind this piece, and the other slice's result.
        auto* result = data + (own.first + at) * r.width;
        inputs[t.seat] = result;
        for (std::size_t i = 0; i < t.distant.size(); ++i)
            inputs[t.distant[i]] = come + i * own_bytes + at * r.width;
        reduce(inputs, result, step, r.dtype, r.op, t.size);
        for (const auto seat : t.distant) s.wires.send(seat, result, step * r.width);
    });
}

/// Nobody is near: slices are cut into pieces, so that a piece is reduced, and its result on its way,
/// while the next ones come.
void reduce_apart(Session& s, const Reduction& r, Bytes data, std::uint64_t count) {
    auto* come = s.scratch.take(kWireChunk);
    in_chunks(count, kWireChunk / r.width, [&](std::uint64_t at, std::size_t step) {
        reduce_pieces(s, r, data + at * r.width, step, come);
    });
    s.wires.settle();
}

/// All inputs go up a tree and are added at its root, in the order of the seats.
void reduce_by_tree(Session& s, const Reduction& r, Bytes data, std::size_t count) {
    const Speakers speakers(s.topology, r.root == kEverywhere ? 0 : static_cast<std::uint32_t>(r.root));
    const auto inputs = collect(s, speakers, data, count * r.width);
    if (!inputs.empty()) reduce(inputs, data, count, r.dtype, r.op, s.topology.size);
    if (r.root == kEverywhere) spread(s, speakers, data, count * r.width);
}

/// A large sum where hosts share their seats out in some other order: two exchanges of slices.
void reduce_crossed(Session& s, const Reduction& r, Bytes data, std::size_t count) {
    const auto size = s.topology.size;
    std::vector<Bytes> parts(size);
    std::vector<std::size_t> counts(size), bytes(size);
    for (std::uint32_t seat = 0; seat < size; ++seat) {
        const auto slice = slice_of(count, seat, size);
        parts[seat] = data + slice.first * r.width;
        counts[seat] = slice.count();
        bytes[seat] = slice.count() * r.width;
    }
    const std::vector<ConstBytes> inputs(parts.begin(), parts.end());
    reduce_parts(s, inputs, counts, parts[s.topology.seat], r.dtype, r.op);
    share_blocks(s, parts, bytes);
}

}  // namespace

void reduce_to(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op, int root) {
    const auto kind = root == kEverywhere ? Kind::all_reduce : Kind::reduce;
    s.begin({kind, dtype, op, static_cast<std::uint32_t>(std::max(root, 0)), count});
    const auto& t = s.topology;
    const Reduction r{dtype, op, root, size_of(dtype)};
    if (goes_by_tree(t, count * r.width)) return reduce_by_tree(s, r, data, count);
    // Two neighbours both reduce all of it: no more bytes cross, and they meet once instead of twice.
    const bool pair = t.size == 2 && t.distant.empty();
    const auto small = pair ? chunk_bytes(s) : kSmallBytes / t.size;
    if (root == kEverywhere && count * r.width > small) {
        if (t.hosts.size() == t.size) return reduce_apart(s, r, data, count);
        if (t.mixed() && t.contiguous) return reduce_in_row(s, data, count, dtype, op);
        if (t.mixed())
            return in_chunks(count, kWireChunk / r.width, [&](std::uint64_t at, std::size_t step) {
                reduce_crossed(s, r, data + at * r.width, step);
            });
    }
    in_chunks(count, chunk_bytes(s) / r.width, [&](std::uint64_t at, std::size_t step) {
        auto* chunk = data + at * r.width;
        if (step * r.width <= small)
            reduce_small(s, r, chunk, step);
        else
            reduce_sliced(s, r, chunk, step);
    });
}

void broadcast(Session& s, Bytes data, std::uint64_t count, DType dtype, std::uint32_t root) {
    s.begin({Kind::broadcast, dtype, Op::sum, root, count});
    const auto bytes = count * size_of(dtype);
    const auto radix = fits_tree(bytes, s.topology.size) ? kFlat : kSteep;
    spread(s, Speakers(s.topology, root, radix), data, bytes);
}

void all_gather(Session& s, ConstBytes input, std::span<const Bytes> outputs, std::uint64_t count,
                DType dtype) {
    s.begin({Kind::all_gather, dtype, Op::sum, 0, count});
    const auto& t = s.topology;
    const auto bytes = count * size_of(dtype);
    put(outputs[t.seat], input, bytes);
    if (!goes_by_tree(t, bytes * t.size))
        return share_blocks(s, outputs, std::vector<std::size_t>(t.size, bytes));
    const Speakers speakers(t, 0);
    const auto all = collect(s, speakers, input, bytes);
    auto* row = s.together.take(t.size * bytes + 1);
    for (std::size_t seat = 0; seat < all.size(); ++seat)
        put(row + seat * bytes, static_cast<ConstBytes>(all[seat]), bytes);
    spread(s, speakers, row, t.size * bytes);
    for (std::uint32_t seat = 0; seat < t.size; ++seat) put(outputs[seat], row + seat * bytes, bytes);
}

/// On one host: sums are made of what lies in the slots.
void reduce_scatter_here(Session& s, std::span<const ConstBytes> inputs, Bytes output,
                         std::uint64_t count, DType dtype, Op op) {
    const auto& t = s.topology;
    const auto width = size_of(dtype);
    const auto part = share_bytes(s.board.slot_bytes(), t.size);
    in_chunks(count, part / width, [&](std::uint64_t at, std::size_t step) {
        std::vector<const void*> addends(t.size, inputs[t.seat] + at * width);
        auto* slot = s.board.open();
        for (const auto seat : t.neighbours)
            put(slot + seat * part, inputs[seat] + at * width, step * width);
        s.board.post();
        for (const auto seat : t.neighbours) addends[seat] = s.board.see(seat) + t.seat * part;
        reduce(addends, output + at * width, step, dtype, op, t.size);
    });
}

void reduce_scatter(Session& s, std::span<const ConstBytes> inputs, Bytes output,
                    std::uint64_t count, DType dtype, Op op) {
    s.begin({Kind::reduce_scatter, dtype, op, 0, count});
    const auto& t = s.topology;
    if (t.distant.empty()) return reduce_scatter_here(s, inputs, output, count, dtype, op);
    const auto width = size_of(dtype);
    const bool in_row = t.mixed() && t.contiguous;
    in_chunks(count, share_bytes(kWireChunk, t.size) / width, [&](std::uint64_t at, std::size_t step) {
        std::vector<ConstBytes> from;
        for (const auto* input : inputs) from.push_back(input + at * width);
        if (in_row && step * width * t.size > kTreeBytes)
            return reduce_scatter_in_row(s, from, output + at * width, step, dtype, op);
        reduce_parts(s, from, std::vector<std::size_t>(t.size, step), output + at * width, dtype, op);
    });
}

/// Amounts may differ, so the seats first tell each other theirs.
void all_to_all(Session& s, std::span<const ConstBytes> inputs,
                std::span<const std::uint64_t> input_counts, std::span<const Bytes> outputs,
                std::span<const std::uint64_t> output_counts, DType dtype) {
    s.begin({Kind::all_to_all, dtype, Op::sum, 0, 0});
    const auto& t = s.topology;
    const auto width = size_of(dtype);
    auto* amounts = s.scratch.take(2 * t.size * sizeof(std::uint64_t));
    const std::span words(reinterpret_cast<std::uint64_t*>(amounts), 2 * t.size);
    const auto go = words.first(t.size);
    const auto come = words.last(t.size);
    for (std::uint32_t seat = 0; seat < t.size; ++seat) go[seat] = input_counts[seat] * width;
    come[t.seat] = go[t.seat];
    auto* slot = s.board.open();
    if (slot != nullptr) std::memcpy(slot, go.data(), t.size * sizeof go[0]);
    s.board.post();
    for (const auto seat : t.distant) {
        s.wires.send(seat, reinterpret_cast<ConstBytes>(&go[seat]), sizeof go[0]);
        s.wires.expect(seat, reinterpret_cast<Bytes>(&come[seat]), sizeof come[0]);
    }
    const auto part = share_bytes(s.board.slot_bytes(), t.fullest);
    std::uint64_t most = 0;  // Between any two neighbours: they must agree on the number of beats.
    for (const auto from : t.here()) {
        std::vector<std::uint64_t> theirs(go.begin(), go.end());
        if (from != t.seat)
            std::memcpy(theirs.data(), s.board.see(from), t.size * sizeof theirs[0]);
        if (from != t.seat) come[from] = theirs[t.seat];
        for (const auto to : t.here())
            if (to != from) most = std::max(most, theirs[to]);
    }
    s.wires.settle();
    for (std::uint32_t seat = 0; seat < t.size; ++seat)
        if (come[seat] != output_counts[seat] * width)
            throw Failure(s.ending.uneven(seat, come[seat], output_counts[seat] * width));
    for (const auto seat : t.distant) {
        s.wires.send(seat, inputs[seat], go[seat]);
        s.wires.expect(seat, outputs[seat], come[seat]);
    }
    put(outputs[t.seat], inputs[t.seat], go[t.seat]);
    for (std::uint64_t at = 0; at < most; at += part) {
        slot = s.board.open();
        for (const auto seat : t.neighbours)
            put(slot + t.index_of[seat] * part, inputs[seat] + at, piece_at(go[seat], at, part));
        s.board.post();
        for (const auto seat : t.neighbours)
            put(outputs[seat] + at, s.board.see(seat) + t.index * part, piece_at(come[seat], at, part));
    }
    s.wires.settle();
}

void gather(Session& s, ConstBytes input, std::span<const Bytes> outputs, std::uint64_t count,
            DType dtype, std::uint32_t root) {
    s.begin({Kind::gather, dtype, Op::sum, root, count});
    const auto& t = s.topology;
    const auto bytes = count * size_of(dtype);
    if (t.seat == root) put(outputs[root], input, bytes);
    in_chunks(bytes, chunk_bytes(s), [&](std::uint64_t at, std::size_t step) {
        auto* slot = s.board.open();
        const bool shows = t.seat != root && t.near(root);
        put(slot, input + at, shows ? step : 0);
        s.board.post();
        if (!t.near(root)) s.wires.send(root, input + at, step);
        if (t.seat == root) {
            for (const auto seat : t.distant) s.wires.expect(seat, outputs[seat] + at, step);
            for (const auto seat : t.neighbours) put(outputs[seat] + at, s.board.see(seat), step);
        }
        s.wires.settle();
    });
}

void scatter(Session& s, std::span<const ConstBytes> inputs, Bytes output, std::uint64_t count,
             DType dtype, std::uint32_t root) {
    s.begin({Kind::scatter, dtype, Op::sum, root, count});
    const auto& t = s.topology;
    const auto bytes = count * size_of(dtype);
    const auto part = share_bytes(chunk_bytes(s), t.fullest);
    if (t.seat == root) put(output, inputs[root], bytes);
    in_chunks(bytes, part, [&](std::uint64_t at, std::size_t step) {
        auto* slot = s.board.open();
        if (t.seat == root)
            for (const auto seat : t.neighbours) put(slot + t.index_of[seat] * part, inputs[seat] + at, step);
        s.board.post();
        if (t.seat == root) {
            for (const auto seat : t.distant) s.wires.send(seat, inputs[seat] + at, step);
        } else if (t.near(root)) {
            put(output + at, s.board.see(root) + t.index * part, step);
        } else {
            s.wires.expect(root, output + at, step);
        }
        s.wires.settle();
    });
}

/// Nothing is gathered: of few seats by all at once, of many by a tree.
void barrier(Session& s) {
    s.begin({Kind::barrier, DType::byte1, Op::sum, 0, 0});
    const auto& t = s.topology;
    if (!goes_by_tree(t, 0))
        return share_blocks(s, std::vector<Bytes>(t.size), std::vector<std::size_t>(t.size));
    const Speakers speakers(t, 0);
    collect(s, speakers, nullptr, 0);
    spread(s, speakers, nullptr, 0);
}

}  // namespace tmc
