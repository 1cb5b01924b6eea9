# SPDX-License-Identifier: Apache-2.0
"""What an agent knows about its workers' place in the job, and what follows for their output. Pure.

An agent decides little: the controller does. It must know which ranks its workers have, only so
that a line of output can be shown under the right name, and so that nothing of a shadow run is.
"""

from dataclasses import dataclass, replace

from trainmover.ids import Rank, Slot
from trainmover.protocol.messages import Bind, Go, Hold, Leave, LogSpec, Order, RunRank, WarmUp

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.5
STREAM_BITS = {"stdout": 1, "stderr": 2}


def pause_s(attempt: int, chance: float) -> float:
    """Seconds to wait before the controller is dialled again. chance: from 0 to 1.

    Never the same for all machines: they lose it at the same moment.
    """
    return min(PAUSE_S_MAX, PAUSE_S_MIN * 2.0 ** min(attempt, 10)) * (0.5 + chance / 2)


@dataclass(frozen=True)
class Place:
    """Where this machine's workers stand.

    slot  the ranks they run as, in the sandbox too; None before any order
    live  whether they run for real; what a sandbox prints is not shown
    bound whether the next `Go` makes them live
    """

    slot: Slot | None = None
    live: bool = False
    bound: bool = False


def place_after(place: Place, order: Order) -> Place:
    """The place once `order` has been handed to the workers."""
    match order:
        case RunRank(slot=slot):
            return Place(slot=slot, live=True, bound=True)
        case WarmUp(slot=slot) | Hold(slot=slot):
            return Place(slot=slot)
        case Bind(slot=slot):
            return Place(slot=slot, bound=True)
        case Go():
            return replace(place, live=place.bound)
        case Leave():
            return replace(place, live=False, bound=False)
        case _:
            return place


def in_words(before: Place, after: Place, nproc: int) -> str:
    """Return what a change of place means, for people; "" if nothing became or left a rank."""
    if before.live == after.live:
        return ""
    if after.slot is None or not after.live:
        return "its ranks are on another machine"
    first = after.slot * nproc
    return f"has rank {first}" if nproc == 1 else f"has ranks {first}-{first + nproc - 1}"


def shown_as(place: Place, log: LogSpec, nproc: int, local_rank: int, stream: str) -> Rank | None:
    """The rank under which a line of this worker goes to the screen; None: it does not.

    A teed stream is always shown, a redirected one never.
    """
    if not place.live or place.slot is None:
        return None
    rank = Rank(place.slot * nproc + local_rank)
    bit = STREAM_BITS[stream]
    if log.tee.get(local_rank, 0) & bit:
        return rank
    if log.redirects.get(local_rank, 0) & bit:
        return None
    return rank if log.show is None or rank in log.show else None


def written(log: LogSpec, local_rank: int, stream: str) -> bool:
    """Whether a stream goes to a file: if it was named, or if a directory and no stream was."""
    if log.log_dir is None:
        return False
    if not log.tee and not log.redirects:
        return True
    bits = log.tee.get(local_rank, 0) | log.redirects.get(local_rank, 0)
    return bool(bits & STREAM_BITS[stream])
