# SPDX-License-Identifier: Apache-2.0
"""The first calls on a new communicator: memory is taken, connections are made, rounding is proved.

NCCL chooses rings, trees and protocols for the seats that it finds, and the order in which it adds
follows from that: with another machine in the group sums may round otherwise, and the job would go
on with other bits than the undisturbed one, which nobody would see. So every communicator of a
group adds the same numbers first, in four sizes, and what comes out is compared with the epoch
before. All stand still meanwhile, and memory is full: however many seats there are, it takes 48 MiB
at most, and a few milliseconds.
"""

from typing import TYPE_CHECKING

import torch
import xxhash
from torch import Tensor

from trainmover.comm.nccl.library import SUM
from trainmover.comm.nccl.types import nbytes
from trainmover.errors import StateMismatch
from trainmover.torch_internals.tensors import numpy_of

if TYPE_CHECKING:
    from trainmover.comm.nccl.session import NcclSession

_FLOAT32, _UINT8 = 7, 1
_ELEMENTS = (33, 4_099, 262_147, 4 << 20)
"""The last is of the size of what training reduces: NCCL chooses by size too."""
_PERIOD = 65_537


def prove(session: "NcclSession") -> str:
    """Hash of what the communicator makes of fixed numbers. Raises as a call does."""
    found = xxhash.xxh3_128()
    chance = torch.Generator().manual_seed(session.seat)
    values = session.on_device(torch.randn(_PERIOD, generator=chance))
    for elements in _ELEMENTS:
        for sums in _added(session, values, elements):
            found.update(memoryview(numpy_of(sums.cpu())))
    return found.hexdigest()


def _added(session: "NcclSession", values: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """Return what a reduce_scatter and an all_reduce of so many numbers, or a few more, come to.

    An all_gather is made beside them for its connections: it adds nothing.
    """
    size, library = session.size, session.library
    count = -(-elements // size)
    total = values.repeat(-(-count * size // len(values)))[: count * size]
    gathered, part = torch.empty_like(total), torch.empty_like(total[:count])
    at, to, own = total.data_ptr(), gathered.data_ptr(), part.data_ptr()
    session.run_now(
        lambda on: library.all_gather(at, to, nbytes(part), _UINT8, *on),
        lambda on: library.reduce_scatter(at, own, count, _FLOAT32, SUM, *on),
        lambda on: library.all_reduce(at, at, total.numel(), _FLOAT32, SUM, *on),
    )
    return part, total


def check_same(group: str, before: str, now: str) -> None:
    """Raises StateMismatch if the group adds otherwise than it did."""
    if before and before != now:
        raise StateMismatch(
            f"NCCL adds in another order than before in group {group}: it has chosen other ways "
            "between the machines that are in it now.",
            means="Every number from here on could differ from the undisturbed run's, in the last "
            "bits first.",
            do="Fix the choice for all machines alike (NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS "
            "and NCCL_MAX_NCHANNELS), and use machines of one kind.",
        )
