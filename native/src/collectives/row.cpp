// SPDX-License-Identifier: Apache-2.0
#include "collectives/row.hpp"

#include <algorithm>
#include <vector>

#include "collectives/reduce.hpp"
#include "session/plan.hpp"

namespace tmc {
namespace {

// Partial sums that are on their way at one host.
constexpr std::size_t kPartials = 4;

/// The way to the last host; what becomes of a sum there is said by who inherits.
class Row {
protected:
    Row(Session& session, DType dtype, Op op, std::uint64_t count)
        : s_(session),
          t_(session.topology),
          dtype_(dtype),
          op_(op),
          width_(size_of(dtype)),
          count_(count),
          most_(session.board.slot_bytes() / width_),
          pieces_(chunks_of(count, most_)),
          last_(t_.hosts.size() - 1),
          workers_(t_.thinnest),
          works_(t_.index < workers_),
          partial_bytes_((most_ / workers_ + 1) * accumulator_size(dtype)),
          partials_(session.scratch.take(kPartials * partial_bytes_)) {}
    virtual ~Row() = default;
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;

    /// This seat's elements of a piece to where its neighbours see them.
    virtual void show(Slice piece, Bytes slot) = 0;
    /// Some of its elements, as they lie.
    virtual ConstBytes own(Slice part) = 0;
    /// At the last host: the sum over all seats, not rounded yet.
    virtual void summed(Slice part, ConstBytes sum) = 0;

    Slice piece(std::uint64_t i) const {
        const auto first = i * most_;
        return {first, first + piece_at(count_, first, most_)};
    }
    Slice part(std::uint64_t i, std::size_t worker) const {
        const auto whole = piece(i);
        const auto its = slice_of(whole.count(), worker, workers_);
        return {whole.first + its.first, whole.first + its.last};
    }
    std::uint32_t before() const { return t_.hosts[t_.host - 1][t_.index]; }
    std::uint32_t behind() const { return t_.hosts[t_.host + 1][t_.index]; }

    void expect_first() {
        for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kPartials / 2, pieces_); ++i)
            expect_partial(i);
    }

    /// Everybody shows its piece; each worker adds one part of it to what comes from the host before.
    void up(std::uint64_t i) {
        const auto whole = piece(i);
        auto* slot = s_.board.open();
        if (!t_.neighbours.empty()) show(whole, slot);
        s_.board.post();
        if (!works_) return;
        const auto mine = part(i, t_.index);
        const auto skip = (mine.first - whole.first) * width_;
        std::vector<const void*> inputs;
        for (const auto seat : t_.here())
            inputs.push_back(seat == t_.seat ? own(mine) : s_.board.see(seat) + skip);
        make_room(i);
        auto* sum = partial(i);
        if (t_.host == 0) {
            accumulate_first(inputs, sum, mine.count(), dtype_, op_);
        } else {
            s_.wires.await_from(before(), std::min<std::uint64_t>(kPartials / 2, pieces_ - 1 - i));
            accumulate_more(sum, inputs, mine.count(), dtype_, op_);
        }
        s_.board.verify();
        if (t_.host < last_)
            s_.wires.send(behind(), sum, partial_size(i));
        else
            summed(mine, sum);
    }

    Session& s_;
    const Topology& t_;
    const DType dtype_;
    const Op op_;
    const std::size_t width_;
    const std::uint64_t count_;
    const std::size_t most_;
    const std::uint64_t pieces_;
    const std::size_t last_;
    const std::size_t workers_;
    const bool works_;

private:
    Bytes partial(std::uint64_t i) const { return partials_ + i % kPartials * partial_bytes_; }
    std::size_t partial_size(std::uint64_t i) const {
        return part(i, t_.index).count() * accumulator_size(dtype_);
    }
    void expect_partial(std::uint64_t i) {
        if (t_.host > 0) s_.wires.expect(before(), partial(i), partial_size(i));
    }

    /// Have the memory for a later partial sum free, and expect it there.
    void make_room(std::uint64_t i) {
        const auto later = i + kPartials / 2;
        if (t_.host < last_ && later >= kPartials) {
            // Of those that were sent all but the latest are written.
            const auto frames = chunks_of(partial_size(i - 1), kPayloadMax);
            s_.wires.await_written(behind(), frames);
        }
        if (later < pieces_) expect_partial(later);
    }

    const std::size_t partial_bytes_;
    const Bytes partials_;
};

/// The result travels back from host to host.
class ThereAndBack : Row {
public:
    ThereAndBack(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op)
        : Row(s, dtype, op, count), data_(data) {}

    void run() {
        // A result is there when its partial sum was at the last host, and has come back.
        const auto delay = 2 * (last_ - t_.host);
        if (works_) expect_all();
        for (std::uint64_t i = 0; i < pieces_ + delay; ++i) {
            if (i < pieces_) up(i);
            if (i >= delay) down(i - delay);
        }
        s_.wires.settle();
    }

private:
    Bytes at(std::size_t element) const { return data_ + element * width_; }
    void show(Slice piece, Bytes slot) override { put(slot, at(piece.first), piece.count() * width_); }
    ConstBytes own(Slice part) override { return at(part.first); }
    void summed(Slice part, ConstBytes sum) override {
        finish(sum, at(part.first), part.count(), dtype_, op_, t_.size);
    }

    void expect_all() {
        for (std::uint64_t i = 0; i < pieces_ && t_.host < last_; ++i) {
            const auto mine = part(i, t_.index);
            s_.wires.expect(behind(), at(mine.first), mine.count() * width_);
        }
        expect_first();
    }

    /// The result comes back; each worker shows its part of it.
    void down(std::uint64_t i) {
        const auto mine = part(i, t_.index);
        if (works_ && t_.host < last_) s_.wires.await_from(behind(), pieces_ - 1 - i);
        if (works_ && t_.host > 0) s_.wires.send(before(), at(mine.first), mine.count() * width_);
        auto* slot = s_.board.open();
        if (works_) put(slot, at(mine.first), t_.neighbours.empty() ? 0 : mine.count() * width_);
        s_.board.post();
        for (std::size_t worker = 0; worker < workers_; ++worker) {
            const auto seat = t_.here()[worker];
            const auto theirs = part(i, worker);
            if (seat != t_.seat) put(at(theirs.first), s_.board.see(seat), theirs.count() * width_);
        }
    }

    const Bytes data_;
};

/// The last host hands everybody its block. The blocks are one behind the other, as in one long sum.
class Handed : Row {
public:
    Handed(Session& s, std::span<const ConstBytes> inputs, Bytes output, std::size_t block, DType dtype, Op op)
        : Row(s, dtype, op, block * s.topology.size),
          inputs_(inputs),
          output_(output),
          block_(block),
          part_bytes_((most_ / workers_ + 1) * width_),
          gathered_(s.together.take(part_bytes_ + (t_.host == last_ ? pieces_ * part_bytes_ : 0))),
          next_(gathered_ + part_bytes_) {}

    void run() {
        expect_block();
        if (works_) expect_first();
        for (std::uint64_t i = 0; i < pieces_; ++i) up(i);
        s_.wires.settle();
    }

private:
    /// What of a range of elements lies in whose block.
    template <class Body>
    void by_block(Slice range, Body body) const {
        for (auto first = range.first; first < range.last;) {
            const auto seat = first / block_;
            const auto last = std::min(range.last, (seat + 1) * block_);
            body(static_cast<std::uint32_t>(seat), (first - seat * block_) * width_, (last - first) * width_);
            first = last;
        }
    }

    void show(Slice piece, Bytes slot) override {
        by_block(piece, [&](std::uint32_t seat, std::size_t from, std::size_t bytes) {
            put(slot, inputs_[seat] + from, bytes);
            slot += bytes;
        });
    }

    ConstBytes own(Slice part) override {
        if (part.count() > 0 && part.first / block_ == (part.last - 1) / block_)
            return inputs_[part.first / block_] + part.first % block_ * width_;
        show(part, gathered_);
        return gathered_;
    }

    /// What is sent stays where it is until all of it is settled.
    void summed(Slice part, ConstBytes sum) override {
        auto* result = next_;
        next_ += part.count() * width_;
        finish(sum, result, part.count(), dtype_, op_, t_.size);
        by_block(part, [&](std::uint32_t seat, std::size_t from, std::size_t bytes) {
            if (seat == t_.seat)
                put(output_ + from, result, bytes);
            else
                s_.wires.send(seat, result, bytes);
            result += bytes;
        });
    }

    void expect_block() {
        for (std::uint64_t i = 0; i < pieces_; ++i)
            for (std::size_t worker = 0; worker < workers_; ++worker) {
                const auto sender = t_.hosts[last_][worker];
                by_block(part(i, worker), [&](std::uint32_t seat, std::size_t from, std::size_t bytes) {
                    if (seat == t_.seat && sender != t_.seat) s_.wires.expect(sender, output_ + from, bytes);
                });
            }
    }

    const std::span<const ConstBytes> inputs_;
    const Bytes output_;
    const std::size_t block_;
    const std::size_t part_bytes_;
    const Bytes gathered_;  // Elements of this seat that lie in several blocks, to be added.
    Bytes next_;            // Where the next sum goes.
};

}  // namespace

void reduce_in_row(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op) {
    ThereAndBack(s, data, count, dtype, op).run();
}

void reduce_scatter_in_row(Session& s, std::span<const ConstBytes> inputs, Bytes output, std::size_t count,
                           DType dtype, Op op) {
    Handed(s, inputs, output, count, dtype, op).run();
}

}  // namespace tmc
