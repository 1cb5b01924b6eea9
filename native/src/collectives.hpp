// The algorithms, written once for all transports.
//
// A seat shows what its neighbours need in its slot, sends what distant seats need over their wire,
// and takes its own share likewise. Where nobody is near, or nobody is far, that half is empty.
//
// Sums are taken in the order of the seats, element by element, by whoever owns a slice of the
// tensor. So neither the transport, nor the place of a seat, nor how a tensor is cut changes a bit.
//
// n seats, m bytes per seat. Bytes that one seat sends over wires when all are distant:
//   all_reduce      2 m (n-1)/n, in two steps; small tensors (n-1) m in one
//   reduce          m (n-1)/n and m/n, in two steps
//   all_gather, all_to_all, reduce_scatter   (n-1) m, in one step
//   broadcast       at most m log2(hosts), by the root of the tree
//   gather, scatter m, or (n-1) m by the root
// Where both transports occur, all_reduce, broadcast and all_gather let each byte cross to a host
// once and spread it there through memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "session.hpp"

namespace tmc {

using Bytes = std::byte*;
using ConstBytes = const std::byte*;

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
