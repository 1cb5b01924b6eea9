# SPDX-License-Identifier: Apache-2.0
"""Own times of all ranks, step by step, and what follows from them: `Judged`.

A rank is compared with the other ranks of its role in the same step. What nobody shares a role with
is compared with nobody. Whose slowness it is:

    network    two machines wait for each other, longer than they did (`ways`)
    machine    what is kept from running: it is no longer on its processor than others
    rank       what runs for longer: it has more to do, wherever it is. (Or its processor has become
               slower, which looks the same from here.)
    everybody  the median of a role takes longer than it did

It lives beside the job and is not replayed: a controller that comes back begins to look anew. What
it finds is an event, and what is done about it follows from that.
"""

import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import islice

from trainmover.controller.change.incidents import found, open_incident
from trainmover.controller.compare.roles import roles
from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.policies.stragglers.answer import BUSIER
from trainmover.controller.policies.stragglers.excess import (
    LASTS_US,
    Others,
    is_slow,
    may_be_slow,
    slow_for,
)
from trainmover.controller.policies.stragglers.known import Effect, SlowMove
from trainmover.controller.policies.stragglers.ways import Pending, Ways
from trainmover.controller.state import Job, Outcome, Phase
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Took

HISTORY = 256
SETTLES = 4
"""Steps of a rank on a machine before it is looked at: the first ones find its memory cold."""
MEASURED = 8
"""Steps from which is told whether a move has helped."""
OVER = 10
"""Steps after which one that was slow is so no more."""
AGAIN, AGAIN_MAX = 50, 1600
"""Steps after which one that is still slow is told again."""
BASE = 64
"""Steps of a role before it is compared with what it was."""
SHOWN = 24

Judged = SlowSuspected | SlowFound | SlowMeasured
Heed = Callable[[MachineId, Rank, float, float], None]
"""Machine, rank, own time and that of others."""


class Kind(StrEnum):
    """Whose slowness it is."""

    MACHINE = "machine"
    RANK = "rank"
    NETWORK = "network"
    EVERYBODY = "everybody"


class Sample:
    """One step of one rank, beside the others of its role. Microseconds."""

    __slots__ = ("cpu", "others_cpu", "own", "slow", "usual")

    def __init__(self, own: int, usual: float, cpu: int, others_cpu: float) -> None:
        self.own, self.usual, self.cpu, self.others_cpu = own, usual, cpu, others_cpu
        self.slow = is_slow(own, usual)


class _Seen:
    """Of one rank, on one machine. told: the step at which it is told again; None: never was.
    since: steps that it has made since it was told first, with others of its machine maybe."""

    def __init__(self, machine: MachineId) -> None:
        self.machine = machine
        self.settles = SETTLES
        self.samples: deque[Sample] = deque(maxlen=HISTORY)
        self.slow = 0
        self.told: int | None = None
        self.since = 0
        self.again = AGAIN

    def add(self, sample: Sample) -> tuple[int, int]:
        """How many slow ones, and samples, there are more now."""
        if self.settles:
            self.settles -= 1
            return 0, 0
        self.since += 1
        full = len(self.samples) == HISTORY
        lost = full and self.samples[0].slow
        self.samples.append(sample)
        self.slow += sample.slow - lost
        return sample.slow - lost, int(not full)

    def last(self, count: int) -> list[Sample]:
        """The newest first."""
        return list(islice(reversed(self.samples), count))

    def mostly_slow(self, count: int) -> bool:
        return 2 * sum(sample.slow for sample in self.last(count)) > count

    def clear(self) -> None:
        self.samples.clear()
        self.slow, self.told, self.again = 0, None, AGAIN


class _Role:
    """Ranks that run the same. slow, seen: steps of all that are not known to be slow.

    late     who was slow in the last step, or is known to be slow
    medians  of its steps; base: of the older ones; flags: which were slow beside that
    """

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self.ranks = ranks
        self.slow = self.seen = 0
        self.pending = Pending()
        self.late: list[Rank] = []
        self.medians: deque[float] = deque(maxlen=HISTORY)
        self.flags: deque[bool] = deque(maxlen=HISTORY)
        self.base = 0.0


class Pace:
    """Of one job, as one controller has heard it.

    heed  is told of every step of a rank that is compared, as `anomalies.look` wants it
    """

    def __init__(self, heed: Heed = lambda machine, rank, own, usual: None) -> None:
        self._heed = heed
        self._epoch = Epoch(-1)
        self._known: dict[Rank, int] | None = None
        self._roles: dict[int, _Role] = {}
        self._seen: dict[Rank, _Seen] = {}
        self._ways = Ways()
        self._machine_of: dict[Rank, MachineId] = {}
        self._measured = 0

    def take(
        self, job: Job, epoch: Epoch, told: Iterable[tuple[Rank, Took]], at_us: int
    ) -> list[Judged]:
        """What is known by these steps of ranks, and was not before: of one step, since the job is
        another afterwards."""
        if job.spec.stragglers == "off":
            return []
        self._follow(job)
        if not self._known or epoch != self._epoch:
            return []
        found: list[Judged] = []
        for rank, took in told:
            role = self._roles[self._known[rank]]
            if all_told := role.pending.add(rank, took, len(role.ranks)):
                self._add(role, all_told)
                found = found or self._judge(job, role, took.step, at_us)
            if self._ways.add(rank, took, self._machine_of):
                found = found or self._judge_ways(job, took.step, at_us)
        return found

    def _follow(self, job: Job) -> None:
        """Who is where; a rank on another machine is seen for the first time."""
        known = roles(job)
        if job.epoch == self._epoch and known is self._known:
            return
        if known != self._known:
            numbers = sorted(set(known.values()))
            of = {n: [rank for rank, one in known.items() if one == n] for n in numbers}
            self._roles, self._seen = {n: _Role(ranks) for n, ranks in of.items()}, {}
        self._epoch, self._known = job.epoch, known
        self._machine_of = {rank: job.seats[rank // job.spec.nproc] for rank in known or ()}
        self._ways.follow(job.seats)
        for role in self._roles.values():
            role.pending.clear()
            for rank in role.ranks:
                machine = job.seats[rank // job.spec.nproc]
                if rank not in self._seen or self._seen[rank].machine != machine:
                    self._uncount(role, self._seen.get(rank))
                    self._seen[rank] = _Seen(machine)

    @staticmethod
    def _uncount(role: _Role, seen: _Seen | None) -> None:
        """What it has shown is no measure of the others."""
        if seen is not None and seen.told is None:
            role.slow -= seen.slow
            role.seen -= len(seen.samples)

    def _add(self, role: _Role, told: dict[Rank, Took]) -> None:
        if len(role.ranks) > 1:
            self._compare(role, told)
        # Of two the quicker one: that the other is slow is not everybody's slowness.
        self._note_median(role, statistics.median_low(took.own_us for took in told.values()))

    def _judge(self, job: Job, role: _Role, step: Step, at_us: int) -> list[Judged]:
        """What follows from the step that was added last; nothing while members change."""
        if not _at_rest(job):
            return []
        found: list[Judged] = []
        for rank in role.late:
            self._note_over(rank)
            if not found:
                found += self._slow(job, role, rank, step, at_us)
        if not found:
            found += self._everybody(job, role, step, at_us)
        if not found:
            found += self._helped(job, at_us)
        if not found and job.spec.stragglers == "act":  # Nobody gets ready for what is only said.
            found += self._suspected(job, role, step, at_us)
        return found

    def _note_over(self, rank: Rank) -> None:
        seen = self._seen[rank]
        if seen.told is not None and seen.since >= OVER and not seen.mostly_slow(OVER):
            seen.clear()

    def _slow(self, job: Job, role: _Role, rank: Rank, step: Step, at_us: int) -> list[SlowFound]:
        """One that was not known to be slow, or is to be told again."""
        seen = self._seen[rank]
        if seen.told is not None:
            return [self._found(job, rank, step, OVER, at_us)] if step >= seen.told else []
        if not seen.samples or not seen.samples[-1].slow:
            return []
        flags = [sample.slow for sample in reversed(seen.samples)]
        least = LASTS_US // seen.samples[-1].own
        steps = slow_for(flags, role.slow, role.seen, least)
        return [self._found(job, rank, step, steps, at_us)] if steps else []

    def _suspected(self, job: Job, role: _Role, step: Step, at_us: int) -> list[SlowSuspected]:
        """The first that may be slow, and is not known to be."""
        for rank in role.late:
            seen = self._seen[rank]
            if seen.told is not None or not seen.samples or not seen.samples[-1].slow:
                continue
            flags = [sample.slow for sample in seen.last(OVER)]
            if may_be_slow(flags, role.slow, role.seen):
                return [
                    SlowSuspected(at_us=at_us, epoch=job.epoch, machine=seen.machine, step=step)
                ]
        return []

    def _compare(self, role: _Role, told: dict[Rank, Took]) -> None:
        owns = Others(took.own_us for took in told.values())
        cpus = Others(took.cpu_us for took in told.values())
        role.late = []
        for rank in role.ranks:
            took, seen = told[rank], self._seen[rank]
            usual = owns.median(took.own_us)
            self._heed(seen.machine, rank, took.own_us, usual)
            sample = Sample(took.own_us, usual, took.cpu_us, cpus.median(took.cpu_us))
            slow, more = seen.add(sample)
            if seen.told is None:
                role.slow += slow
                role.seen += more
            if sample.slow or seen.told is not None:
                role.late.append(rank)

    def _found(self, job: Job, rank: Rank, step: Step, steps: int, at_us: int) -> SlowFound:
        """With the other ranks of its machine that are slow, too."""
        machine = self._seen[rank].machine
        there = job.spec.ranks(slot) if (slot := job.slot_of(machine)) is not None else [rank]
        slow = [one for one in there if self._is_slow_too(one, steps)]
        for one in slow:
            self._tell(self._role_of(one), self._seen[one], step)
        return _finding(job, self._seen[rank], slow, step, steps, at_us)

    def _is_slow_too(self, rank: Rank, steps: int) -> bool:
        return self._seen[rank].mostly_slow(steps)

    def _role_of(self, rank: Rank) -> _Role:
        assert self._known is not None
        return self._roles[self._known[rank]]

    def _tell(self, role: _Role, seen: _Seen, step: Step) -> None:
        self._uncount(role, seen)
        seen.since = seen.since if seen.told is not None else 0
        seen.told = step + seen.again
        seen.again = min(2 * seen.again, AGAIN_MAX)

    def _note_median(self, role: _Role, median: float) -> None:
        before = len(role.medians)
        if before >= BASE and (not role.base or len(role.flags) % (BASE // 4) == 0):
            role.base = statistics.median(islice(role.medians, before - BASE // 4))
        role.medians.append(median)
        if role.base:
            role.flags.append(is_slow(median, role.base))

    def _everybody(self, job: Job, role: _Role, step: Step, at_us: int) -> list[SlowFound]:
        if not role.flags or not role.flags[-1]:
            return []
        least = LASTS_US // max(round(role.medians[-1]), 1)
        steps = slow_for([*reversed(role.flags)], sum(role.flags), len(role.flags), least)
        if not steps:
            return []
        own_us = statistics.median(islice(reversed(role.medians), steps))
        usual_us = role.base
        role.medians.clear()
        role.flags.clear()
        role.base = 0.0
        found = SlowFound(
            at_us=at_us, epoch=job.epoch, machine=None, kind=Kind.EVERYBODY, ranks=[*role.ranks],
            step=step, steps=steps, own_ms=_ms(own_us), usual_ms=_ms(usual_us),
        )  # fmt: skip
        return [found]

    def _judge_ways(self, job: Job, step: Step, at_us: int) -> list[Judged]:
        """Of machines that are as quick as others."""
        if not _at_rest(job):
            return []
        way = self._ways.slow(step, lambda machine, steps: self._is_late(job, machine, steps))
        if way is None:
            return []
        slot = job.slot_of(way.machine)
        ranks = [] if slot is None else job.spec.ranks(slot)
        found = SlowFound(
            at_us=at_us, epoch=job.epoch, machine=way.machine, kind=Kind.NETWORK, peer=way.peer,
            ranks=ranks, step=step, steps=way.steps, own_ms=_ms(way.own_us),
            usual_ms=_ms(way.usual_us),
        )  # fmt: skip
        return [found]

    def _is_late(self, job: Job, machine: MachineId, steps: int) -> bool:
        slot = job.slot_of(machine)
        ranks = [] if slot is None else job.spec.ranks(slot)
        return any(self._is_slow_too(rank, steps) for rank in ranks)

    def _helped(self, job: Job, at_us: int) -> list[SlowMeasured]:
        """Whether the last move for slowness has."""
        move = job.stragglers.moves[-1] if job.stragglers.moves else None
        if move is None or move.incident == self._measured or not _waits(job, move):
            return []
        ranks = job.spec.ranks(move.slot)
        if any(len(self._seen[rank].samples) < MEASURED for rank in ranks):
            return []
        self._measured = move.incident
        if move.kind == Kind.NETWORK:
            own_us, usual_us = self._ways.of(move.joiner, MEASURED)
            return [_measured(job, move, own_us, usual_us, 0.0, at_us)]
        last = [self._seen[rank].last(MEASURED) for rank in ranks]
        each = [medians(one) for one in last]
        own_us, usual_us, busier = max(each, key=lambda of: of[0] - of[1])
        return [_measured(job, move, own_us, usual_us, busier, at_us)]


def _at_rest(job: Job) -> bool:
    """Whether no change is under way, nor has just been."""
    return job.phase is Phase.RUNNING and job.change is None and open_incident(job) is None


def _waits(job: Job, move: SlowMove) -> bool:
    """Whether it is done and not measured, and who has joined still has those ranks."""
    past = found(job, move.incident)
    done = past is not None and past.outcome is Outcome.DONE
    return done and move.effect is Effect.OPEN and job.seats[move.slot] == move.joiner


def _measured(
    job: Job, move: SlowMove, own_us: float, usual_us: float, busier: float, at_us: int
) -> SlowMeasured:
    return SlowMeasured(
        at_us=at_us, epoch=job.epoch, incident=move.incident, own_ms=_ms(own_us),
        usual_ms=_ms(usual_us), steps=MEASURED, busier=busier,
    )  # fmt: skip


def _finding(
    job: Job, seen: _Seen, slow: list[Rank], step: Step, steps: int, at_us: int
) -> SlowFound:
    own_us, usual_us, busier = medians(seen.last(steps))
    kind = Kind.MACHINE if busier < BUSIER else Kind.RANK
    shown = [_ms(s.own) for s in reversed(seen.last(steps + SHOWN))]
    since = min(steps, SHOWN)
    return SlowFound(
        at_us=at_us, epoch=job.epoch, machine=seen.machine, kind=kind, ranks=slow, step=step,
        steps=steps, own_ms=_ms(own_us), usual_ms=_ms(usual_us), busier=busier,
        before=shown[:-steps][-SHOWN:], since=shown[-since:],
    )  # fmt: skip


def medians(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Own time, that of others, and the part of the difference that was spent on the processor.

    Each step is compared with the same one of others: all may have become slower meanwhile, and
    medians of either alone would be of different times.
    """
    own_us = _median(s.own for s in samples)
    more_us = _median(s.own - s.usual for s in samples)
    busy_us = _median(s.cpu - s.others_cpu for s in samples)
    busier = busy_us / max(more_us, 1.0)
    return own_us, own_us - more_us, round(min(max(busier, 0.0), 1.0), 3)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _ms(us: float) -> float:
    return round(us / 1000, 3)
