#include "collectives.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "reduce.hpp"

namespace tmc {
namespace {

// One step instead of two while a tensor is small: all seats reduce all of it.
constexpr std::size_t kSmallBytes = 32 * 1024;  // of all seats together
// What is worked on at once where nobody is near; scratch memory is that large.
constexpr std::size_t kWireChunk = 16 * 1024 * 1024;
constexpr std::size_t kWirePiece = 1024 * 1024;

/// A range of elements of a chunk.
struct Slice {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t count() const noexcept { return last - first; }
};

Slice slice_of(std::size_t count, std::size_t index, std::size_t parts) {
    return {count * index / parts, count * (index + 1) / parts};
}

/// Bytes of a chunk, the same on all seats: what fits a slot, or more where nobody has one.
std::size_t chunk_bytes(const Session& s) {
    return s.topology.hosts.size() == s.topology.size ? kWireChunk : s.board.slot_bytes();
}

void put(Bytes to, ConstBytes from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

/// Cut `count` elements into chunks of at most `most`; one empty chunk if there are none, so that
/// the seats meet and compare their calls.
template <class Body>
void in_chunks(std::uint64_t count, std::size_t most, Body body) {
    std::uint64_t at = 0;
    do {
        const auto step = static_cast<std::size_t>(std::min<std::uint64_t>(most, count - at));
        body(at, step);
        at += step;
    } while (at < count);
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

/// Hosts in a row, each with consecutive seats: a partial sum travels from the first to the last,
/// so that the order of additions is that of the seats, and each host's share crosses once.
void reduce_over_hosts(Session& s, const Reduction& r, Bytes data, std::size_t count) {
    const auto& t = s.topology;
    const auto workers = std::min_element(t.hosts.begin(), t.hosts.end(), [](auto& a, auto& b) {
                             return a.size() < b.size();
                         })->size();
    const auto last = t.hosts.size() - 1;
    auto* slot = s.board.open();
    put(slot, data, t.neighbours.empty() ? 0 : count * r.width);
    s.board.post();
    const auto own = slice_of(count, t.index, workers);
    const auto partial_bytes = t.index < workers ? own.count() * accumulator_size(r.dtype) : 0;
    auto* partial = s.scratch.take(2 * partial_bytes + 64);
    auto* result = partial + partial_bytes;
    if (t.index < workers) {
        std::vector<const void*> inputs;
        for (const auto seat : t.here())
            inputs.push_back((seat == t.seat ? data : s.board.see(seat)) + own.first * r.width);
        if (t.host == 0) {
            accumulate_first(inputs, partial, own.count(), r.dtype, r.op);
        } else {
            s.wires.expect(t.hosts[t.host - 1][t.index], partial, partial_bytes);
            s.wires.settle();
            accumulate_more(partial, inputs, own.count(), r.dtype, r.op);
        }
        if (t.host < last) {
            s.wires.send(t.hosts[t.host + 1][t.index], partial, partial_bytes);
            s.wires.expect(t.hosts[last][t.index], result, own.count() * r.width);
        } else {
            finish(partial, result, own.count(), r.dtype, r.op, t.size);
            for (std::size_t host = 0; host < last; ++host)
                s.wires.send(t.hosts[host][t.index], result, own.count() * r.width);
        }
        s.wires.settle();
    }
    slot = s.board.open();
    if (t.index < workers) {
        put(slot, result, t.neighbours.empty() ? 0 : own.count() * r.width);
        put(data + own.first * r.width, result, own.count() * r.width);
    }
    s.board.post();
    for (std::size_t index = 0; index < workers; ++index) {
        const auto seat = t.here()[index];
        const auto theirs = slice_of(count, index, workers);
        if (seat != t.seat)
            put(data + theirs.first * r.width, s.board.see(seat), theirs.count() * r.width);
    }
}

}  // namespace

void reduce_to(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op, int root) {
    const auto kind = root == kEverywhere ? Kind::all_reduce : Kind::reduce;
    s.begin({kind, dtype, op, static_cast<std::uint32_t>(std::max(root, 0)), count});
    const Reduction r{dtype, op, root, size_of(dtype)};
    // Two neighbours both reduce all of it: no more bytes cross, and they meet once instead of twice.
    const bool pair = s.topology.size == 2 && s.topology.distant.empty();
    const auto small = pair ? chunk_bytes(s) : kSmallBytes / s.topology.size;
    const auto apart = s.topology.hosts.size() == s.topology.size;
    if (apart && root == kEverywhere && count * r.width > small) return reduce_apart(s, r, data, count);
    const auto rows = s.topology.mixed() && s.topology.contiguous && root == kEverywhere;
    in_chunks(count, chunk_bytes(s) / r.width, [&](std::uint64_t at, std::size_t step) {
        auto* chunk = data + at * r.width;
        if (step * r.width <= small)
            reduce_small(s, r, chunk, step);
        else if (rows)
            reduce_over_hosts(s, r, chunk, step);
        else
            reduce_sliced(s, r, chunk, step);
    });
}

// broadcast: a tree over the hosts; on each, one seat receives and shows.

void broadcast(Session& s, Bytes data, std::uint64_t count, DType dtype, std::uint32_t root) {
    s.begin({Kind::broadcast, dtype, Op::sum, root, count});
    const auto& t = s.topology;
    const auto hosts = static_cast<std::uint32_t>(t.hosts.size());
    const auto root_host = t.host_of[root];
    const auto speaker = [&](std::uint32_t place) {
        const auto host = (place + root_host) % hosts;
        return host == root_host ? root : t.hosts[host].front();
    };
    const auto place = (t.host + hosts - root_host) % hosts;
    const auto me = speaker(place);
    const auto bytes = count * size_of(dtype);
    in_chunks(bytes, chunk_bytes(s), [&](std::uint64_t at, std::size_t step) {
        auto* slot = s.board.open();
        if (t.seat != me) {
            s.board.post();
            put(data + at, s.board.see(me), step);
            return;
        }
        // Place p hears from p without its lowest bit, and speaks to p with one lower bit more.
        const auto low = place == 0 ? std::bit_ceil(hosts) : place & (~place + 1);
        if (place != 0) {
            s.wires.expect(speaker(place - low), data + at, step);
            s.wires.settle();
        }
        for (auto bit = low / 2; bit > 0; bit /= 2)
            if (place + bit < hosts) s.wires.send(speaker(place + bit), data + at, step);
        put(slot, data + at, t.neighbours.empty() ? 0 : step);
        s.board.post();
        s.wires.settle();
    });
}

// all_gather: a block crosses to each other host once; there one seat shows it to its neighbours.

void all_gather(Session& s, ConstBytes input, std::span<const Bytes> outputs, std::uint64_t count,
                DType dtype) {
    s.begin({Kind::all_gather, dtype, Op::sum, 0, count});
    const auto& t = s.topology;
    const auto bytes = count * size_of(dtype);
    const auto keeper = [&](std::uint32_t seat, std::size_t host) {
        const auto& there = t.hosts[host];
        return there[t.index_of[seat] % there.size()];
    };
    std::vector<std::vector<std::uint32_t>> kept(t.size);  // Distant seats by who shows them here.
    std::size_t shown_most = 1;
    for (const auto seat : t.distant) kept[keeper(seat, t.host)].push_back(seat);
    // All hosts must cut alike, so the largest share of anybody anywhere decides.
    for (std::size_t host = 0; host < t.hosts.size() && t.mixed(); ++host) {
        std::vector<std::size_t> shares(t.size, 0);
        for (std::uint32_t seat = 0; seat < t.size; ++seat)
            if (t.host_of[seat] != host)
                shown_most = std::max(shown_most, ++shares[keeper(seat, host)]);
    }
    put(outputs[t.seat], input, bytes);
    in_chunks(bytes, chunk_bytes(s) / shown_most, [&](std::uint64_t at, std::size_t step) {
        put(s.board.open(), input + at, t.neighbours.empty() ? 0 : step);
        s.board.post();
        for (std::size_t host = 0; host < t.hosts.size(); ++host)
            if (host != t.host) s.wires.send(keeper(t.seat, host), input + at, step);
        for (const auto seat : kept[t.seat]) s.wires.expect(seat, outputs[seat] + at, step);
        for (const auto seat : t.neighbours) put(outputs[seat] + at, s.board.see(seat), step);
        s.wires.settle();
        if (!t.mixed()) return;
        auto* slot = s.board.open();
        for (const auto seat : kept[t.seat]) {
            if (t.neighbours.empty()) break;
            put(slot, outputs[seat] + at, step);
            slot += step;
        }
        s.board.post();
        for (const auto neighbour : t.neighbours) {
            const auto* shown = s.board.see(neighbour);
            for (const auto seat : kept[neighbour]) {
                put(outputs[seat] + at, shown, step);
                shown += step;
            }
        }
    });
}

void reduce_scatter(Session& s, std::span<const ConstBytes> inputs, Bytes output,
                    std::uint64_t count, DType dtype, Op op) {
    s.begin({Kind::reduce_scatter, dtype, op, 0, count});
    const auto& t = s.topology;
    const auto width = size_of(dtype);
    const auto part = chunk_bytes(s) / t.size / 64 * 64;
    in_chunks(count, part / width, [&](std::uint64_t at, std::size_t step) {
        const auto bytes = step * width;
        auto* come = s.scratch.take((t.distant.size() + 1) * bytes);
        std::vector<const void*> addends(t.size, inputs[t.seat] + at * width);
        auto* slot = s.board.open();
        for (const auto seat : t.neighbours)
            put(slot + seat * part, inputs[seat] + at * width, bytes);
        s.board.post();
        for (const auto seat : t.distant) {
            s.wires.send(seat, inputs[seat] + at * width, bytes);
            s.wires.expect(seat, come, bytes);
            addends[seat] = come;
            come += bytes;
        }
        for (const auto seat : t.neighbours) addends[seat] = s.board.see(seat) + t.seat * part;
        s.wires.settle();
        reduce(addends, output + at * width, step, dtype, op, t.size);
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
    const auto part = s.board.slot_bytes() / t.size / 64 * 64;
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
    const auto piece = [&](std::uint64_t whole, std::uint64_t at) {
        return static_cast<std::size_t>(whole > at ? std::min<std::uint64_t>(part, whole - at) : 0);
    };
    for (std::uint64_t at = 0; at < most; at += part) {
        slot = s.board.open();
        for (const auto seat : t.neighbours)
            put(slot + seat * part, inputs[seat] + at, piece(go[seat], at));
        s.board.post();
        for (const auto seat : t.neighbours)
            put(outputs[seat] + at, s.board.see(seat) + t.seat * part, piece(come[seat], at));
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
    const auto part = chunk_bytes(s) / t.size / 64 * 64;
    if (t.seat == root) put(output, inputs[root], bytes);
    in_chunks(bytes, part, [&](std::uint64_t at, std::size_t step) {
        auto* slot = s.board.open();
        if (t.seat == root)
            for (const auto seat : t.neighbours) put(slot + seat * part, inputs[seat] + at, step);
        s.board.post();
        if (t.seat == root) {
            for (const auto seat : t.distant) s.wires.send(seat, inputs[seat] + at, step);
        } else if (t.near(root)) {
            put(output + at, s.board.see(root) + t.seat * part, step);
        } else {
            s.wires.expect(root, output + at, step);
        }
        s.wires.settle();
    });
}

/// Neighbours meet, one of each host meets the others of its kind, and tells its neighbours.
void barrier(Session& s) {
    s.begin({Kind::barrier, DType::byte1, Op::sum, 0, 0});
    const auto& t = s.topology;
    s.board.open();
    s.board.post();
    for (const auto seat : t.neighbours) s.board.see(seat);
    if (t.hosts.size() == 1) return;
    if (t.index == 0) {
        auto* sign = s.scratch.take(t.hosts.size());
        sign[t.host] = std::byte{};
        for (std::size_t host = 0; host < t.hosts.size(); ++host) {
            if (host == t.host) continue;
            s.wires.send(t.hosts[host].front(), sign + t.host, 1);
            s.wires.expect(t.hosts[host].front(), sign + host, 1);
        }
        s.wires.settle();
    }
    s.board.open();
    s.board.post();
    if (t.index != 0) s.board.see(t.here().front());
}

}  // namespace tmc
