# SPDX-License-Identifier: Apache-2.0
"""A job whose machines do what they are told one after the other, in any order; it hears of it
twice, or late, or from who has no say."""

import random
from typing import Any

import msgspec

from courses.trained import Trained
from trainmover.controller.effects import Answer, Effect, Fence, Send
from trainmover.controller.state import Incident, Outcome
from trainmover.ids import Epoch, MachineId, Rank, Slot
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

MS = 1000
Said = tuple[MachineId, int | None, Any]
"""Machine, local rank or None for its agent, and what it says."""
MEMBERSHIP = (
    m.Interrupt | m.Verdict | m.Switch | m.Go | m.Prepare | m.PauseAt | m.Discard | m.Leave | m.Bind
)
ANYBODYS = m.VaultHeld | m.Committed
"""What counts whoever says it."""


class Staged(Trained):
    """`told` is what follows from the last that was heard; to_do: what machines were told before.
    Vaults are `NAME:1`. said_us: when what was last heard of all that was waited for."""

    def __init__(self, chance: random.Random, **knobs: Any) -> None:
        self.to_do: list[Effect] = []
        self.said_us: dict[type[Any], int] = {}
        super().__init__(chance, **knobs)

    def begins(self) -> None:
        self.trains()
        runs = [one.order.run for one in self.log if _is_in_sandbox(one)]  # type: ignore[union-attr]
        if len({*runs}) < len(runs):
            raise Violation(f"each run has a number of its own: {self.log}")
        self.goes_on()

    def goes_on(self) -> None:
        """Time does, to what is heard next."""
        self.now_us += MS
        self.to_do += self.told
        self.told.clear()

    def settles(self) -> None:
        self.told, self.to_do = [*self.to_do, *self.told], []
        super().settles()

    def catches_up(self, name: MachineId) -> None:
        """That machine does what it was told."""
        while its := [one for one in (*self.to_do, *self.told) if _is_run(one, name)]:
            self.to_do = [one for one in self.to_do if one not in its]
            self.told = [one for one in self.told if one not in its]
            for one in its:
                self._obeys(name, one.order)  # type: ignore[union-attr]

    def hears(self, said: Said) -> None:
        name, local, fact = said
        self.goes_on()
        if local is None:
            self.agent_says(name, fact)
        else:
            self.says(name, local, fact)

    def hears_all(self, facts: list[Said], what: str, *, but: int = 0) -> list[Said]:
        """In any order. What follows does with the last, and nothing does before. but: so many are
        not said. Returns those that are."""
        facts = self.chance.sample(facts, len(facts))
        first, last = facts[: max(0, len(facts) - max(but, 1))], facts[-1]
        for one in first:
            self._nothing_follows(one, what)
            self.said_us[type(one[2])] = self.now_us
            if self.chance.random() < 0.1:
                self._nothing_follows(one, f"{what}, twice")
        if wrong := self._without_say(last):
            self._nothing_follows(self.chance.choice(wrong), f"{what} but {last}")
        if but:
            return first
        self.hears(last)
        self.said_us[type(last[2])] = self.now_us
        return facts

    def _nothing_follows(self, said: Said, what: str) -> None:
        self.hears(said)
        if follows := [one for one in self.told if not isinstance(one, Send) or _counts(one)]:
            raise Violation(f"{what} is not all there with {said}, and there follows {follows}")

    def _without_say(self, said: Said) -> list[Said]:
        """The same, of the epoch before, or from a machine that has other ranks."""
        name, local, fact = said
        wrong: list[Said] = []
        if hasattr(fact, "epoch") and not isinstance(fact, m.Parked):
            late = msgspec.structs.replace(fact, epoch=Epoch(fact.epoch - 1))
            wrong.append((name, local, late))
        if hasattr(fact, "rank") and not isinstance(fact, ANYBODYS):
            others = [one for one in self.job.seats if one != name and one in self.job.machines]
            wrong += [(one, local, fact) for one in others]
        return wrong

    # --- what follows ---------------------------------------------------------------------------

    def follows(self, orders: dict[MachineId, m.Order], what: str) -> None:
        """These, once, and no others."""
        sent = [one for one in self.told if isinstance(one, Send) and _counts(one)]
        if sorted((one.machine, repr(one.order)) for one in sent) != sorted(
            (name, repr(order)) for name, order in orders.items()
        ):
            raise Violation(f"{what}: {orders} were to follow, and there do {sent}")

    def other(self) -> list[Effect]:
        """What is no order."""
        return [one for one in self.told if isinstance(one, Answer | Fence)]

    def ends(self, words: str, code: int = 1) -> None:
        end = self.end()
        if end is None or end.code != code or words not in end.text or self.job.code != code:
            raise Violation(f"the job was to end with {code}, {words!r}: {end}")
        if any(one.outcome is Outcome.OPEN for one in self.job.incidents) or self.job.change:
            raise Violation(f"the job has ended: {self.job.incidents}, {self.job.change}")

    def is_marked(self, one: Incident, mark: str) -> None:
        if one.marks.get(mark) != self.now_us:
            raise Violation(f"{mark} is over at {self.now_us}: {one}")

    # --- what machines say ----------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        """Of the change under way."""
        return self.job.epoch_last

    def ranks_of(self, slots: list[int]) -> list[Rank]:
        return [rank for slot in sorted(slots) for rank in self.job.spec.ranks(Slot(slot))]

    def each(self, seats: dict[int, MachineId], kind: Any, **fields: Any) -> list[Said]:
        """That of all ranks of these slots, by the machine that has each."""
        return [
            (name, rank % self.nproc, kind(rank=rank, epoch=self.epoch, **fields))
            for slot, name in seats.items()
            for rank in self.ranks_of([slot])
        ]

    def park(self, joiners: dict[int, MachineId]) -> list[Said]:
        return [
            said
            for slot, name in joiners.items()
            for rank in self.ranks_of([slot])
            for said in self.each({slot: name}, m.Parked, trace=self.trace(rank), bind_ms=1)
            if said[2].rank == rank
        ]

    def load(self, joiners: dict[int, MachineId], sources: dict[Rank, Rank]) -> list[Said]:
        return [
            (name, rank % self.nproc, self.loaded(rank, sources[rank]))
            for slot, name in joiners.items()
            for rank in self.ranks_of([slot])
        ]

    def loaded(self, rank: Rank, source: Rank, *, wrong: bool = False) -> m.Loaded:
        certificate = m.Certificate(
            rank=rank, source_rank=source, step=self.step, epoch=self.epoch, source_digest="d",
            joiner_digest="other" if wrong else "d", trace="t", position="", bytes=8, state_ms=1.0,
        )  # fmt: skip
        return m.Loaded(rank=rank, epoch=self.epoch, certificate=certificate)

    def address(self, rank: int) -> str:
        """Where its state is had from, as long as it is with who has the seat."""
        slot, local = divmod(rank, self.nproc)
        return f"{self.job.seats[slot]}/{local}"


def _is_in_sandbox(one: Effect) -> bool:
    return isinstance(one, Send) and isinstance(one.order, m.WarmUp | m.Hold)


def _is_run(one: Effect, name: MachineId) -> bool:
    """Whether it is told to start processes, or to run something in them."""
    if not isinstance(one, Send) or one.machine != name:
        return False
    return isinstance(one.order, m.StartWorkers | m.WarmUp | m.Hold | m.Leave)


def _counts(sent: Send) -> bool:
    return isinstance(sent.order, MEMBERSHIP)
