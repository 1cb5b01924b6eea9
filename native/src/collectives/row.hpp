// SPDX-License-Identifier: Apache-2.0
// Large sums where hosts are in a row, each with consecutive seats.
//
// A partial sum travels from the first host to the last, so that the order of additions is that of the
// seats. On each host everybody shows its elements to its neighbours, and each worker among them adds one
// part of them. Piece follows piece. Wherever the seats are in such a row, a byte of a sum crosses from
// one host to the next once; from every seat to every other one it would cross as often as a host has
// seats.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/collectives.hpp"

namespace tmc {

/// In place, on every seat.
void reduce_in_row(Session& s, Bytes data, std::uint64_t count, DType dtype, Op op);

/// As `reduce_scatter`. All inputs of a seat together must fit `kWireChunk`.
void reduce_scatter_in_row(Session& s, std::span<const ConstBytes> inputs, Bytes output, std::size_t count,
                           DType dtype, Op op);

}  // namespace tmc
