// SPDX-License-Identifier: Apache-2.0
// The algorithms, written once for all transports.
//
// A seat shows what its neighbours need in its slot, sends what distant seats need over their wire,
// and takes its own share likewise. Where nobody is near, or nobody is far, that half is empty.
//
// Sums are taken in the order of the seats, element by element. So neither the transport, nor the place
// of a seat, nor how a tensor is cut, nor the way it takes changes a bit; nothing is added up on a host
// beforehand, unless its seats are in a row and what is before them came first.
//
// n seats, h hosts, m bytes per seat, none sharing a host. Steps one after the other, and bytes that one
// seat sends over wires:
//   all_reduce      up to 8 seats, n m up to 32 KiB: 1 step, (n-1) m
//                   more seats, m up to 32 KiB: 2 log8(n) steps by a tree, at most n m / 8 up and
//                   7 m log8(n) down
//                   else 2 m (n-1)/n, in two steps
//   reduce          as all_reduce without the way down; large ones m (n-1)/n and m/n, in two steps
//   barrier         up to 8 seats 1 step; else 2 log8(h) steps by a tree
//   all_gather      together up to 32 KiB: by a tree; else (n-1) m, in one step
//   all_to_all, reduce_scatter   (n-1) m, in one step; where hosts share seats out in a row a
//                   reduce_scatter of more than 32 KiB sends n m / k from host to host, k seats on each,
//                   and m
//   broadcast       m log2(h) by the root of a tree, small ones 7 m log8(h); with many pieces m from
//                   host to host, in a row
//   gather, scatter m, or (n-1) m by the root
// Where seats share hosts a tree is one of hosts, and all_reduce, broadcast and all_gather let each byte
// cross to a host once, or twice, and spread it there through memory. A large all_reduce goes along the
// hosts and back, piece behind piece, if each host's seats are consecutive, and a reduce_scatter along them
// (row.hpp); else from every seat to every other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "session/session.hpp"

namespace tmc {

using Bytes = std::byte*;
using ConstBytes = const std::byte*;

inline void put(Bytes to, ConstBytes from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Counts are elements. All of these block and throw Failure.

/// In place. root: only there is the result written; kEverywhere for all.
inline constexpr int kEverywhere = -1;
void reduce_to(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op, int root);
void broadcast(Session& s, Bytes data, std::uint64_t count, DType dtype, std::uint32_t root);
/// outputs  by seat, `count` elements each; the own one may be `input`
void all_gather(Session& s, ConstBytes input, std::span<const Bytes> outputs, std::uint64_t count,
                DType dtype);
/// inputs  by seat, `count` elements each; output may be the own one
void reduce_scatter(Session& s, std::span<const ConstBytes> inputs, Bytes output,
                    std::uint64_t count, DType dtype, Op op);
void all_to_all(Session& s, std::span<const ConstBytes> inputs,
                std::span<const std::uint64_t> input_counts, std::span<const Bytes> outputs,
                std::span<const std::uint64_t> output_counts, DType dtype);
/// outputs  empty but at the root
void gather(Session& s, ConstBytes input, std::span<const Bytes> outputs, std::uint64_t count,
            DType dtype, std::uint32_t root);
/// inputs  empty but at the root
void scatter(Session& s, std::span<const ConstBytes> inputs, Bytes output, std::uint64_t count,
             DType dtype, std::uint32_t root);
void barrier(Session& s);

}  // namespace tmc
