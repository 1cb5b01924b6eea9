# SPDX-License-Identifier: Apache-2.0
"""Snapshots that a process keeps of its rank's state: when one is due, which stay, who gets one.

    due, or asked for -> flag, at a gate -> took, at the boundary -> given to a vault, or refused
                                               -> completed, on all ranks: older ones go
                                               -> spoiled, on one: void, on all, at the next gate

Two are held at most: the newest that is complete on all ranks, and one on its way to be. They
outlive the run of the script: to go back is to run it again with one of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Snapped

WANTED, BUSY, VOID = 1, 2, 3
"""What a rank raises at its gate: of all ranks' flags the highest counts."""


class OfRank(Protocol):
    """A snapshot."""

    @property
    def rank(self) -> int: ...
    @property
    def step(self) -> int: ...


Held = TypeVar("Held", bound=OfRank)


@dataclass(frozen=True)
class Put(Generic[Held]):
    """A snapshot to be given to a vault; "": to none. further: to that one, `vault` has it."""

    snapshot: Held
    epoch: Epoch
    vault: str
    cost_us: int
    step_us: int
    further: str = ""

    def said(self, nbytes: int, refused: str = "") -> Snapped:
        """What is told of it."""
        return Snapped(
            rank=Rank(self.snapshot.rank),
            epoch=self.epoch,
            step=Step(self.snapshot.step),
            vault=self.vault,
            bytes=nbytes,
            cost_us=self.cost_us,
            step_us=self.step_us,
            refused=refused,
            further=self.further,
        )


class Cuts(Generic[Held]):
    """Of one process.

    every             committed steps from one to the next; 0: none is wanted. A process that
                      holds none, as the first time and after its rank was taken, wants one now
    asked             one is wanted at the next gate
    checkpoint_every  one is wanted at each multiple of it; 0: at none
    further           vault that is to have one more copy of each; "": none is
    complete          step of the newest that all ranks have
    """

    def __init__(self, checkpoint_every: int = 0) -> None:
        self.every = 0
        self.asked = False
        self.further = ""
        self.complete = Step(0)
        self.held: dict[Step, Held] = {}
        self._checkpoint_every = checkpoint_every
        self._asked_since: Step | None = None
        self._given: tuple[Step, str, str] | None = None
        self._own_is_kept = self._waits_for_own = False
        self._is_spoiled = False

    # --- when one is due --------------------------------------------------------------------------

    def keep(self, every: int, *, now: bool) -> None:
        """As the controller wants it."""
        self.every, self.asked = every, self.asked or now

    def flag(self, rank: Rank, step: Step) -> int:
        """What to raise at the gate of `step`."""
        if self._is_spoiled:
            return VOID
        if self._asked_since is None:
            self._asked_since = step
        if any(held > self.complete for held in self.held):
            return BUSY  # Wanted or not: others may have heard of it that want the next one.
        last = self.complete if self.of(rank, self.complete) is not None else Step(0)
        due = self.every and (not last or step - last >= self.every)
        return WANTED if due or self.asked or self._is_past_multiple(step, last) else 0

    def _is_past_multiple(self, step: Step, last: int) -> bool:
        """Whether a checkpoint is to be made of this step. One that could not be taken at its
        multiple is taken as soon as it can."""
        assert self._asked_since is not None
        every, last = self._checkpoint_every, max(last, self._asked_since - 1)
        return bool(every) and step // every > last // every

    def agreed(self, flag: int) -> list[Held]:
        """All ranks have come through a gate, and this was the highest flag: what it makes void."""
        if flag != VOID:
            return []
        self._is_spoiled, self.asked = False, True
        return self._drop(at for at in self.held if at > self.complete)

    def spoiled(self, snapshot: Held) -> bool:
        """What was to become of it is of no one moment. False: it was dropped before."""
        if not self.has(snapshot):
            return False
        self._drop([Step(snapshot.step)])
        self._is_spoiled = True
        return True

    def took(
        self, snapshot: Held, *, epoch: Epoch, vault: str, cost_us: int, step_us: int
    ) -> Put[Held]:
        """The state was copied; it is to be given to the buddy's vault."""
        self.asked = False
        self.held[Step(snapshot.step)] = snapshot
        return Put(snapshot, epoch, "" if self._only_written else vault, cost_us, step_us)

    @property
    def _only_written(self) -> bool:
        """Whether they are taken for checkpoints alone: then no vault gets any."""
        return not self.every and not self._own_is_kept and self._checkpoint_every > 0

    def keep_own(self) -> None:
        """Ranks hold what no other does: vaults are to have their snapshots, and no step is made
        before they have the first one."""
        self._own_is_kept = self._waits_for_own = True

    @property
    def waits_for_own(self) -> bool:
        """Whether ranks wait for the next one to be complete."""
        return self._waits_for_own

    def first_of_own(self) -> bool:
        """Whether the one that was just taken is the first since; once."""
        first, self._waits_for_own = self._waits_for_own, False
        return first

    # --- who has one ------------------------------------------------------------------------------

    def of(self, rank: Rank, step: Step) -> Held | None:
        """What is held here."""
        held = self.held.get(step)
        return held if held is not None and held.rank == rank else None

    def has(self, snapshot: Held) -> bool:
        """Whether this very one is still held here: one that was dropped is given to nobody."""
        return self.of(Rank(snapshot.rank), Step(snapshot.step)) is snapshot

    def mend(self, whole: Held) -> bool:
        """What is held here of that rank and step is damaged: hold this one. False: none is."""
        if self.of(Rank(whole.rank), Step(whole.step)) is None:
            return False
        self.held[Step(whole.step)] = whole
        return True

    def given(
        self, put: Put[Held], refused: str, nbytes: int
    ) -> tuple[Snapped | None, Put[Held] | None]:
        """The vault has it, or has refused it: what to tell, and what to give next. That one more
        copy was refused is no news: there is one."""
        if put.further and refused:
            return None, None
        if not refused:
            self._given = (Step(put.snapshot.step), put.vault, put.further)
        more = self.further not in ("", put.vault) and not put.further and not refused
        return put.said(nbytes, refused), replace(put, further=self.further) if more else None

    def follow(self, rank: Rank, vault: str, epoch: Epoch, further: str = "") -> Put[Held] | None:
        """The rank has another buddy: it is to have the newest complete snapshot; and so is
        `further`, if there is to be one more copy."""
        self.further = further
        snapshot = self.of(rank, self.complete)
        known = self._only_written or self._given == (self.complete, vault, further)
        return None if snapshot is None or known else Put(snapshot, epoch, vault, 0, 0)

    def give(self, rank: Rank, step: Step, vault: str, epoch: Epoch) -> Put[Held] | Snapped:
        """Nobody else has this one; what to tell at once if it is not here either."""
        snapshot = self.of(rank, step)
        if snapshot is not None:
            return Put(snapshot, epoch, vault, 0, 0)
        return Snapped(
            rank=rank, epoch=epoch, step=step, vault="", bytes=0, cost_us=0, step_us=0,
            refused="its process does not have it",
        )  # fmt: skip

    # --- which go ---------------------------------------------------------------------------------

    def completed(self, step: Step) -> list[Held]:
        """All ranks have theirs of `step`: older ones go."""
        self.complete = step
        return self._drop(at for at in self.held if at < step)

    def changed(self, every: int) -> list[Held]:
        """Members change: what is not complete by now will never be, and goes."""
        self.every, self._is_spoiled = every, False
        return self._drop(at for at in self.held if at > self.complete)

    def back_to(self, step: Step) -> list[Held]:
        """The steps after it are undone, and so is what was complete among them: they come again,
        in other snapshots."""
        self.complete = min(self.complete, step)
        self._asked_since = None
        if self._given is not None and self._given[0] > step:
            self._given = None
        return self._drop(at for at in self.held if at > self.complete)

    def clear(self) -> list[Held]:
        """The job starts anew."""
        gone = [*self.completed(Step(0)), *self.changed(0)]
        self._given = self._asked_since = None
        self._own_is_kept = self._waits_for_own = False
        return gone

    def _drop(self, steps: Iterable[Step]) -> list[Held]:
        return [self.held.pop(at) for at in list(steps)]
