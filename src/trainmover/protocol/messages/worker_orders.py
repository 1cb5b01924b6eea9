# SPDX-License-Identifier: Apache-2.0
"""What workers are told, by way of their agent. Pure."""

import msgspec

from trainmover.ids import Epoch, Rank, Slot, Step
from trainmover.protocol.messages.agent_orders import Order


class WorkerOrder(Order, frozen=True):
    """Handed by the agent to every worker of its machine."""


class RunRank(WorkerOrder, frozen=True):
    """Run the script for real.

    buddies  the machine's ranks to the vault that keeps their records
    further  and to the one that keeps one more copy of their snapshots and first steps, if there
             is to be one
    """

    epoch: Epoch
    slot: Slot
    buddies: dict[Rank, str]
    further: dict[Rank, str] = {}


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """Where a record of first steps lies: under the name of `rank`, in one of `vaults`, the
    likeliest first. At last in a file, as what was compiled does: "" if there is none."""

    rank: Rank
    vaults: list[str]
    file: str = ""
    compiled: str = ""


Records = dict[Rank, list[Stored]]
"""Rank to the records of first steps that serve it, the best first: those of the machine's ranks,
and of ranks that their records refer to."""


class WarmUp(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot`, then unwind.

    run       number under which the machine's workers meet: no other run of the job has it
    known_ms  longest run that has come to its end on this machine; 0: none has yet
    """

    slot: Slot
    records: Records
    run: int = 0
    known_ms: int = 0


class Hold(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot`, and stay at its first step in case they
    are lost: a `Bind` to the same slot is then answered at once. Other work ends it.

    run, known_ms  as in `WarmUp`
    """

    slot: Slot
    records: Records
    run: int = 0
    known_ms: int = 0


class Bind(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot` and park before the next batch.

    run       as in `WarmUp`; that of a `Hold` whose run, under way or still to begin, is now bound
    known_ms  as in `WarmUp`
    """

    epoch: Epoch
    slot: Slot
    records: Records
    run: int = 0
    known_ms: int = 0


class StoreAt(WorkerOrder, frozen=True):
    """The stores were lost; new, empty ones are behind the listener at `address` (host:port).

    torch  where the workers of one machine reach torch's; its agent says that
    """

    address: str
    torch: str = ""


class KeepTold(WorkerOrder, frozen=True):
    """Of the agent itself: committed rows may be told in vain, since no controller says that
    it has them."""

    keep: bool


class Terminate(WorkerOrder, frozen=True):
    """Announce the SIGTERM by which the agent ends this process. A SIGTERM without this order is
    another's."""


class Discard(WorkerOrder, frozen=True):
    """Forget what was prepared for `epoch` and any pause asked for it."""

    epoch: Epoch


class PauseAt(WorkerOrder, frozen=True):
    """Raise the pause flag at your next gate; all ranks stop at the same boundary."""

    epoch: Epoch


class Interrupt(WorkerOrder, frozen=True):
    """The membership is broken. Drain, say your position, wait for the verdict of `epoch`."""

    epoch: Epoch


class KeepSnapshots(WorkerOrder, frozen=True):
    """Keep a snapshot of your state every so many committed steps; 0: no more.

    now  and one at the next gate
    """

    every: int
    now: bool = False


class GiveSnapshots(WorkerOrder, frozen=True):
    """Give the snapshots of your ranks after `step` to a vault, and say `Snapped`: no other process
    has them, and yours may be no good for a second run of the script.

    vaults  rank -> where to
    """

    epoch: Epoch
    step: Step
    vaults: dict[Rank, str]


class CutComplete(WorkerOrder, frozen=True):
    """Every rank's snapshot of `step` is safe: older ones are of no use any more."""

    step: Step


class Foreign(msgspec.Struct, frozen=True):
    """A snapshot of `rank`, which has no process any more, that rank `writer` is to write.

    vaults, processes  addresses of who has it; records: where the record of its first steps lies
    """

    writer: Rank
    rank: Rank
    vaults: list[str]
    processes: list[str]
    records: list[Stored]


class WriteCheckpoint(WorkerOrder, frozen=True):
    """Write your snapshot of `step` into the folder of checkpoints, beside the steps.

    foreign  what else is to be written, and by whom; who is named there for its own rank holds none
    """

    epoch: Epoch
    step: Step
    folder: str
    foreign: list[Foreign] = []


class Verdict(WorkerOrder, frozen=True):
    """Steps up to `committed` are committed. Apply or retry, then go to the boundary."""

    epoch: Epoch
    committed: Step


class Source(msgspec.Struct, frozen=True, array_like=True):
    """A rank that holds state, and where its worker gives it."""

    rank: Rank
    address: str


class Prepare(WorkerOrder, frozen=True):
    """Phase 1 for `epoch` in the background.

    early  joining rank to whoever has its state: what does not change can be taken already
    """

    epoch: Epoch
    early: dict[Rank, Source] = {}


class Switch(WorkerOrder, frozen=True):
    """Become epoch `epoch`.

    sources  joining rank to those whose state it takes: the first gives what is its own as well,
             the others hold the same bulk state, or some of those who do
    records  joining rank to the vaults that hold its record; empty when its first source is itself
    buddies  the machine's ranks to the vault that keeps their records from now on
    further  as in `RunRank`
    closing  a script has ended already: no step will follow, so no group is built again
    back     every rank joins with its snapshot of `committed`: from the process in `sources`, which
             may be its own, from a vault in `records`, or put together from `files`
    snapshot_every  see `KeepSnapshots`
    diverged   joining ranks that are to hold something else than they did: what the record tells of
             their state is no measure for their sources
    """

    epoch: Epoch
    committed: Step
    sources: dict[Rank, list[Source]]
    records: dict[Rank, list[str]]
    buddies: dict[Rank, str]
    closing: bool = False
    back: bool = False
    snapshot_every: int = 0
    files: dict[Rank, list[str]] = {}
    further: dict[Rank, str] = {}
    diverged: list[Rank] = []


class Go(WorkerOrder, frozen=True):
    """Every rank has switched: train."""

    epoch: Epoch


class Leave(WorkerOrder, frozen=True):
    """Your ranks live elsewhere now: unwind the script and say `Left`."""

    epoch: Epoch


class Ending(WorkerOrder, frozen=True):
    """The script of `rank` ended after `step`: whoever enters a later one says `WentOn`."""

    rank: Rank
    step: Step


class Exit(WorkerOrder, frozen=True):
    """Every rank is done: leave the process."""
