# SPDX-License-Identifier: Apache-2.0
"""What breaks in a job, one after the other, and what is to begin then: with whom, and what is
noted of it."""

import random
from dataclasses import dataclass, field
from typing import Any

from courses.change.staged import Staged
from trainmover.controller.effects import Fence, Send
from trainmover.controller.events import AgentSaid, Lost, MachinesLost, StoreMoved
from trainmover.controller.state import Incident, Kind, Outcome, Stage
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


@dataclass
class Breach:
    """names: machines that are concerned; about: what it says of itself."""

    how: str
    names: list[MachineId] = field(default_factory=list)
    words: str = ""


class Broken:
    """seats: slot -> machine that trains; joiners: slot -> machine that takes it; parked: those
    that have said so. base: the last step that all have made. verdict: what was decided since;
    failing: the step that did not come through. tries: in a row, since the last step."""

    def __init__(
        self,
        chance: random.Random,
        *,
        sizes: tuple[tuple[int, int], ...] = ((2, 2), (3, 2), (3, 3), (4, 3)),
        alike: bool = True,
        made: Step = Step(4),
        **knobs: Any,
    ) -> None:
        """sizes: machines and standbys. made: the last step before."""
        self.chance = chance
        machines, standbys = chance.choice(sizes)
        self.nproc = chance.choice((1, 1, 2))
        self.job = Staged(
            chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=60, **knobs
        )
        self.job.step, self.job.alike = made, alike
        self.job.begins()
        self.seats = dict(enumerate(self.job.job.seats))
        self.joiners: dict[int, MachineId] = {}
        self.parked: set[tuple[MachineId, Rank]] = set()
        self.base = self.job.step
        self.verdict: Step | None = None
        self.troubles = chance.choice((0, 1, 1, 2))
        self.cost_ms, self.tries = 0.0, 0
        self.failing: Step | None = None
        self.held: dict[MachineId, dict[Rank, list[Step]]] = {}
        self.sources: dict[Rank, list[Rank]] = {}

    @property
    def stays(self) -> dict[int, MachineId]:
        return {slot: name for slot, name in self.seats.items() if slot not in self.joiners}

    @property
    def spare(self) -> list[MachineId]:
        busy = {*self.stays.values(), *self.joiners.values()}
        return [name for name in self.job.job.machines if name not in busy]

    @property
    def one(self) -> Incident:
        return self.job.job.incidents[-1]

    # --- what breaks ------------------------------------------------------------------------------

    def breaks(self, breach: Breach) -> None:
        """A new epoch for all, and machines for what is vacant: those that were to join before, if
        they still live."""
        job, names = self.job, breach.names
        before, had, epoch = job.job.incidents, dict(self.joiners), job.epoch
        at_rest = job.job.change is None
        job.goes_on()
        self.happens(breach)
        gone = [name for name in names if name not in job.job.machines]
        vacant = {slot for slot, name in self.seats.items() if name in names} | {*had}
        change = job.job.change
        if change is None or {*change.joiners} != vacant or job.epoch != epoch + 1:
            raise Violation(f"{breach}: slots {vacant} are vacant; {change}")
        if (change.kind, change.stage, change.epoch) != (Kind.RECOVERY, Stage.DRAIN, job.epoch):
            raise Violation(f"{breach}: a recovery begins, {change}")
        kept = {slot: name for slot, name in had.items() if name not in names}
        spare = {*self.spare, *names} - {*gone}
        self.joiners = {int(slot): name for slot, name in change.joiners.items()}
        self._take_over(breach, kept, spare)
        fenced = [one.machine for one in job.told if isinstance(one, Fence)]
        if fenced != gone:
            raise Violation(f"{breach}: {gone} are shut out, {fenced}")
        self._is_noted(breach, before, gone)
        self.tries += not gone and (at_rest or self.one.machine is None)
        if job.job.retries != self.tries:
            raise Violation(f"{self.tries} attempts in a row: {job.job.retries}")

    def happens(self, breach: Breach) -> None:
        job = self.job
        if breach.how == "loss":
            lost = [
                Lost(machine=name, why=breach.words, heard_us=job.now_us - 700 - at)
                for at, name in enumerate(breach.names)
            ]
            job.hear(MachinesLost(at_us=job.now_us, lost=lost))
        elif breach.how == "crash":
            (name,) = breach.names
            pid = job.job.machines[name].pids[0]
            fact = m.WorkerExited(local_rank=0, pid=pid, code=1, note=breach.words)
            job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=fact))
        elif breach.how == "raise":
            (name,) = breach.names
            slot = next(slot for slot, one in self.seats.items() if one == name)
            rank = self.chance.choice(job.ranks_of([slot]))
            raised = m.Raised(
                rank=rank, step=Step(self.base + 1), error=breach.words, traceback="line 3",
                misled=job.job.change is None,
            )  # fmt: skip
            job.says(name, rank % self.nproc, raised)
        elif breach.how == "link":
            change = job.job.change
            now = job.job.epoch if change is None else change.epoch
            rank = self.chance.choice(job.ranks_of([*self.stays]))
            said = m.Interrupted(rank=rank, epoch=now, reason=breach.words)
            job.says(self.stays[rank // self.nproc], rank % self.nproc, said)
        else:
            job.hear(StoreMoved(at_us=job.now_us, address=breach.words))

    def _take_over(self, breach: Breach, kept: dict[int, MachineId], spare: set[MachineId]) -> None:
        """Who is not bound yet is, in this epoch."""
        job = self.job
        names = [*self.joiners.values()]
        new = {slot: name for slot, name in self.joiners.items() if kept.get(slot) != name}
        if any(self.joiners.get(slot) != name for slot, name in kept.items()):
            raise Violation(f"{breach}: {kept} were to join, and {self.joiners} are")
        if len({*names}) < len(names) or not {*new.values()} <= spare:
            raise Violation(f"{breach}: {spare} may join, and {self.joiners} do")
        new_here = {*new.values(), *breach.names}
        self.parked = {one for one in self.parked if one[0] not in new_here}
        orders: dict[MachineId, list[m.Order]] = {}
        for one in job.told:
            if isinstance(one, Send):
                orders.setdefault(one.machine, []).append(one.order)
        for name in new.values():
            job.catches_up(name)
        bound = {
            one.machine: one.order
            for one in job.told
            if isinstance(one, Send) and isinstance(one.order, m.Bind)
        }
        told = {name: (order.slot, order.epoch) for name, order in bound.items()}
        if told != {name: (slot, job.epoch) for slot, name in new.items()}:
            raise Violation(f"{breach}: {new} are to be bound: {bound}")
        left = [
            n for n in job.job.machines if m.Interrupt(epoch=job.epoch) not in orders.get(n, ())
        ]
        if left:
            raise Violation(f"{breach}: {left} are not told of epoch {job.epoch}")
        if breach.how == "store":
            first = {name: its[0] for name, its in orders.items() if its}
            if any(first[n] != m.StoreAt(address=breach.words) for n in job.job.machines):
                raise Violation(f"{breach.words} is told first: {first}")

    def _is_noted(
        self, breach: Breach, before: tuple[Incident, ...], gone: list[MachineId]
    ) -> None:
        """It explains a link that broke before; what else was open has come to nothing."""
        job, one = self.job, self.one
        last = before[-1] if before and before[-1].outcome is Outcome.OPEN else None
        marks = {"heard": job.now_us, "detect": job.now_us}
        if gone:
            marks["heard"] -= 699 + len(gone)
        if same := last is not None and last.machine is None:
            marks["heard"] = min(marks["heard"], last.marks["heard"])
            marks["detect"] = last.marks["detect"]
        number = (before[-1].number if before else 0) + (not same)
        self.cost_ms *= same
        ranks = tuple(job.ranks_of([*self.joiners]))
        said = (one.number, one.kind, one.outcome, one.rung, one.epoch, one.ranks, one.lost)
        truth = (number, Kind.RECOVERY, Outcome.OPEN, 1, job.epoch, ranks, tuple(gone))
        words = breach.words in one.cause or breach.how == "store"
        if gone:
            verb = "was" if len(gone) == 1 else "were"
            names = " and ".join([*filter(None, [", ".join(gone[:-1])]), gone[-1]])
            words = one.cause == f"{names} {verb} lost: {breach.words}"
        if said != truth or one.marks != marks or not words:
            raise Violation(f"{breach}: {truth}, {marks}; noted is {one}")
        about: list[MachineId | None] = [*breach.names] or [None]
        if breach.how == "store" and last is not None:
            about = [last.machine]
        if one.machine not in about:
            raise Violation(f"{breach} is of {about}: {one}")
        if (one.joiner in self.joiners.values()) is not bool(self.joiners):
            raise Violation(f"{breach}: {self.joiners} join: {one}")
        if last is not None and not same:
            old = next(i for i in job.job.incidents if i.number == last.number)
            if old.outcome is not Outcome.FAILED or not old.note.startswith("overtaken: "):
                raise Violation(f"{breach} has overtaken {old}")

    def trouble(self, stage: str) -> Breach | None:
        """Something more that can break now; None: nothing that would begin all again."""
        chance, words = self.chance, f"w{self.job.now_us}"
        ways: list[tuple[str, list[MachineId]]] = []
        if self.joiners:
            ways += [("crash", [chance.choice([*self.joiners.values()])])]
        if len(self.stays) > 1:
            ways += [("crash", [chance.choice([*self.stays.values()])])]
        if self.spare:
            ways += [("loss", [name]) for name in self.joiners.values()]
            if len(self.stays) > 1:
                ways += [("loss", [chance.choice([*self.stays.values()])])] * 2
        if stage in ("drain", "commit") and len(self.stays) > 1:
            ways += [("raise", [chance.choice([*self.stays.values()])])]
        if stage in ("switch", "commit"):
            ways += [("link", [])]
        if stage == "switch":
            ways += [("store", [])]
        ways = [(how, its) for how, its in ways if how not in ("crash", "raise") or self.spare]
        if not ways:
            return None
        how, names = chance.choice(ways)
        return Breach(how, names, words)
