"""The first calls on a new communicator: memory is taken, connections are made, rounding is proved.

NCCL chooses rings, trees and protocols for the seats that it finds, and the order in which it adds
follows from that: with another machine in the group sums may round otherwise, and the job would go
on with other bits than the undisturbed one, which nobody would see. So every communicator of a
group adds the same numbers first, in three sizes, and what comes out is compared with the epoch
before."""

from typing import TYPE_CHECKING

import torch
import xxhash
from torch import Tensor

from trainmover.comm.nccl.library import SUM
from trainmover.comm.nccl.types import nbytes
from trainmover.errors import StateMismatch

if TYPE_CHECKING:
    from trainmover.comm.nccl.session import NcclSession

_FLOAT32, _UINT8 = 7, 1
_ELEMENTS = (33, 4_099, 262_147)


def prove(session: "NcclSession") -> str:
    """Hash of what the communicator makes of fixed numbers. Raises as a call does."""
    found = xxhash.xxh3_128()
    for elements in _ELEMENTS:
        for output in _calls(session, elements):
            found.update(output.cpu().numpy().tobytes())
    return found.hexdigest()


def _calls(session: "NcclSession", elements: int) -> list[Tensor]:
    """Outputs of an all_reduce, an all_gather and a reduce_scatter, once they are final."""
    size, library = session.size, session.library
    chance = torch.Generator().manual_seed(1_000 * elements + session.seat)
    given = session.on_device(torch.randn(elements * size, generator=chance))
    total, gathered = given.clone(), session.on_device(torch.empty(elements * size * size))
    part = session.on_device(torch.empty(elements))
    at, to, own = given.data_ptr(), gathered.data_ptr(), part.data_ptr()
    whole = total.data_ptr()
    session.run_now(
        lambda on: library.all_reduce(whole, whole, given.numel(), _FLOAT32, SUM, *on),
        lambda on: library.all_gather(at, to, nbytes(given), _UINT8, *on),
        lambda on: library.reduce_scatter(at, own, elements, _FLOAT32, SUM, *on),
    )
    return [total, gathered, part]


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
