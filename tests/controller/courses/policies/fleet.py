# SPDX-License-Identifier: Apache-2.0
"""Steps of ranks of which is known who takes longer, since when and why: what `pace` says of them.

All others take exactly as long as they always do, so all that is said can be told beforehand. Who
is slow is found after five steps, or half a second; is told again after 50 more, then 100; and
nothing is said of anybody else. A move is measured by eight steps, of which the first four on a
machine do not count.
"""

import random
from dataclasses import dataclass
from statistics import median

from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.facts import Facts
from trainmover.controller.policies.stragglers.known import Effect, SlowMove, Stragglers
from trainmover.controller.policies.stragglers.pace import Judged, Pace
from trainmover.controller.state import Change, Incident, Job, Kind, Outcome, Phase, Stage
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import JobSpec, Recorded, Took
from trainmover.simulator.happenings import Violation

KNOWN, KNOWN_OF_ALL = 120, 190
"""Steps by which it is known what is usual, of a rank and of all of them."""
ROWS = {5: 5, 6: 6, 7: 6, 10: 7, 14: 8, 20: 11}
"""So many of the last steps are looked at; how many of them are slow by no chance, and the most."""
LATEST, USUAL = 40, 60
LASTS_US = 500_000
AGAIN, OVER = 50, 10
SETTLES, MEASURED = 4, 8
SHOWN = 24
SUSPICIOUS = 2
KINDS = (
    "machine", "machine", "late", "rank", "network", "hub", "everybody", "hovers", "one way",
)  # fmt: skip
WAYS = {"network", "hub"}
LITTLE = 1.05
QUIET = ("hovers", "one way")
"""Of these nothing is to be said."""


@dataclass
class Trouble:
    """kind: as it is to be said; since: the first step of it; by: so many times as long, or so much
    of a step that two wait for each other. behind: after a move a rank that takes a little longer
    than others, but is not slow."""

    kind: str
    slot: int
    since: int
    by: float
    peers: tuple[int, ...] = ()
    told: int = 0
    due: int = 0
    suspected: int = 0
    measured: int = 0
    begins: bool = False
    behind: int | None = None


class Fleet:
    def __init__(self, chance: random.Random) -> None:
        """over: ranks that were slow, and are so no more."""
        self.chance = chance
        self.nproc = chance.choice((1, 1, 1, 2))
        stages = chance.choice((1, 1, 2))
        self.slots = stages * chance.choice((3, 4) if self.nproc > 1 else (2, 3, 4))
        self.step_us = chance.choice((40_000, 100_000, 250_000, 600_000))
        self.acts = chance.random() < 0.5
        spec = JobSpec(
            run_id="fleet",
            argv=[],
            machines=self.slots,
            nproc=self.nproc,
            stragglers="act" if self.acts else "watch",
        )
        self.ranks = [Rank(rank) for rank in range(self.slots * self.nproc)]
        self.apart = self.nproc > 1 and chance.random() < 0.5  # Each of a machine has its own.
        self.role = {rank: rank // self.nproc % stages for rank in self.ranks}
        if self.apart:
            self.role = {rank: 2 * its + rank % 2 for rank, its in self.role.items()}
        recorded = {
            rank: Recorded(rank=rank, step=Step(3), trace=f"p{self.role[rank]}", digest="", bytes=1)
            for rank in self.ranks
        }
        self.job = Job(
            spec=spec,
            phase=Phase.RUNNING,
            seats=tuple(MachineId(f"m{slot + 1}") for slot in range(self.slots)),
            epoch=Epoch(1),
            recorded=Facts(recorded),
        )
        self.pace = Pace(self._heeded)
        self.step = 0
        self.trouble: Trouble | None = None
        self.rests = True
        self.own: dict[int, dict[Rank, int]] = {}
        self.heeds = 0
        self.first_way: Trouble | None = None
        self.joined = 0
        self.over: set[Rank] = set()

    # --- what is so -----------------------------------------------------------------------------

    def _slower(self, rank: Rank) -> float:
        trouble = self.trouble
        if trouble is None:
            return 1.0
        if rank == trouble.behind:
            return LITTLE
        here = trouble.slot == rank // self.nproc
        match trouble.kind:
            case "machine" | "hovers" if here:
                return trouble.by
            case "rank" if rank == trouble.slot * self.nproc:
                return trouble.by
            case "everybody" if self.role[rank] == self.role[Rank(trouble.slot * self.nproc)]:
                return trouble.by
        return 1.0

    def _usual_us(self, rank: Rank) -> int:
        return self.step_us * (2 + self.role[rank]) // 2

    def _took(self, rank: Rank, step: int) -> Took:
        own_us = round(self._usual_us(rank) * self._slower(rank))
        busy = self.trouble is not None and self.trouble.kind == "rank"
        cpu_us = (own_us if busy else self._usual_us(rank)) * 3 // 4
        self.own.setdefault(step, {})[rank] = own_us
        return Took(step=Step(step), own_us=own_us, cpu_us=cpu_us, waits_us=self._waits(rank))

    def _waits(self, rank: Rank) -> dict[Rank, int]:
        """Of those between whom the way is slow each waits for the other; where only one does it is
        no way."""
        trouble = self.trouble
        if trouble is None or not trouble.peers:
            return {}
        at = rank // self.nproc
        if trouble.kind == "one way" and at != trouble.slot:
            return {}
        ends = (
            trouble.peers if at == trouble.slot else (trouble.slot,) if at in trouble.peers else ()
        )
        more = 1 if at == trouble.slot else 2
        return {Rank(end * self.nproc): more * self._way_us(max(end, at)) for end in ends}

    def _way_us(self, slot: int) -> int:
        """To each of its peers another time."""
        assert self.trouble is not None
        return round(self.step_us * self.trouble.by) + 1000 * slot

    def _longer(self, step: int) -> Took:
        """As it is not."""
        return Took(step=Step(step), own_us=9 * self.step_us, cpu_us=0)

    # --- what is said ---------------------------------------------------------------------------

    def go(self, steps: int) -> None:
        """Let all make so many, and tell them one after the other, some of them several at once."""
        until = self.step + steps
        while self.step < until:
            block = range(self.step + 1, min(self.step + self.chance.randint(1, 3), until) + 1)
            told = {rank: [self._took(rank, step) for step in block] for rank in self.ranks}
            order = self.chance.sample(self.ranks, len(self.ranks))
            last = list({self.role[rank]: rank for rank in order}.values())
            for rank in order:
                if rank not in last:
                    self._take(rank, told[rank])
            for at, step in enumerate(block):
                self.step = step
                for rank in last:
                    self._take(rank, [told[rank][at]])
                self._is_all_told()

    def _take(self, rank: Rank, told: list[Took]) -> None:
        late = [(rank, self._longer(told[0].step))]
        if self.pace.take(self.job, Epoch(self.job.epoch - 1), late, self.step):
            raise Violation("what is told of an epoch that is over counts")
        pairs = [(rank, took) for took in told]
        for event in self.pace.take(self.job, self.job.epoch, pairs, self.step):
            self._is_so(event)

    def _heeded(self, machine: MachineId, rank: Rank, own: float, usual: float) -> None:
        self.heeds += 1
        step = self.step
        if self.job.seats[rank // self.nproc] != machine:
            raise Violation(f"rank {rank} is not on {machine}")
        others = [us for one, us in self.own[step].items() if self.role[one] == self.role[rank]]
        others.remove(self.own[step][rank])
        if own != self.own[step][rank] or usual != median(others):
            raise Violation(f"of rank {rank} others take {usual}, in truth {median(others)}")

    def _is_so(self, event: Judged) -> None:
        trouble = self.trouble
        if not self.rests:
            raise Violation(f"members change, and it is said {event}")
        if isinstance(event, SlowMeasured):
            self._is_measured(event)
            return
        if trouble is None or trouble.kind in QUIET:
            raise Violation(f"all are as usual: {event}")
        count = self.step - trouble.since + 1
        if isinstance(event, SlowSuspected):
            trouble.suspected += 1
            slow = trouble.kind in ("machine", "rank")
            if not slow or event.machine != self.job.seats[trouble.slot] or not self.acts:
                raise Violation(f"{event}: {trouble}")
            if event.step != self.step or trouble.told or trouble.suspected > 1 + self.apart:
                raise Violation(f"{event} after {count} steps: {trouble}")
            if self.nproc == 1 and count != SUSPICIOUS and not trouble.begins:
                raise Violation(f"{event} after {count} steps")
            return
        self._is_found(event, trouble, count)

    def _least(self, usual_us: int) -> int:
        return next(row for row in ROWS if row >= LASTS_US // usual_us)

    def _is_found(self, event: SlowFound, trouble: Trouble, count: int) -> None:
        alone = self.nproc == 1 or self.apart
        exact = (alone and not trouble.begins) or trouble.kind == "everybody"
        if trouble.kind in WAYS:
            exact = trouble.kind == "network" and self.first_way is trouble
        rank = self._of_whom(event, trouble)
        own_us, usual_us = round(self._usual_us(rank) * self._slower(rank)), self._usual_us(rank)
        if trouble.kind in WAYS:
            usual_us = round(median(self.own[self.step].values()))
            own_us = usual_us + self._way_us(max(trouble.slot, self._farthest(trouble)))
            least = self._least(usual_us)
        else:
            least = self._least(own_us)
        again = trouble.told > 0
        steps = OVER if again else least if exact else event.steps
        in_time = (
            count == ROWS[least]
            if exact
            else ROWS[least] <= count <= (KNOWN if trouble.begins else LATEST)
        )
        if not again and not in_time:
            raise Violation(f"after {count} steps it is said {event}: {trouble}")
        if again and (trouble.kind == "everybody" or count != trouble.due):
            raise Violation(f"after {count} steps it is said again {event}: {trouble}")
        trouble.due = count + (AGAIN << trouble.told)
        trouble.told += 1
        kind = "network" if trouble.kind == "hub" else trouble.kind
        said = (event.kind, event.step, event.steps, event.own_ms, event.usual_ms)
        truth = (kind, self.step, steps, round(own_us / 1000, 3), round(usual_us / 1000, 3))
        if said != truth:
            raise Violation(f"{event}; in truth it is {truth}")
        self._is_about(event, trouble)

    def _of_whom(self, event: SlowFound, trouble: Trouble) -> Rank:
        """Whose time is said, of those that are slow there."""
        first = Rank(trouble.slot * self.nproc)
        if trouble.kind != "machine" or not self.apart:
            return first
        is_his = lambda rank: round(self.own[self.step][rank] / 1000, 3) == event.own_ms  # noqa: E731
        return next(filter(is_his, event.ranks), first)

    def _farthest(self, trouble: Trouble) -> int:
        return max(trouble.peers, key=lambda peer: max(peer, trouble.slot))

    def _is_about(self, event: SlowFound, trouble: Trouble) -> None:
        seats, first = self.job.seats, trouble.slot * self.nproc
        there = [Rank(first + local) for local in range(self.nproc)]
        machine: MachineId | None = seats[trouble.slot]
        ends = {machine, *(seats[peer] for peer in trouble.peers)}
        match trouble.kind:
            case "everybody":
                machine = None
                there = [r for r in self.ranks if self.role[r] == self.role[Rank(first)]]
            case "rank":
                there = [Rank(first)]
            case "network":
                if {event.machine, event.peer} != ends or event.machine != min(ends, key=str):
                    raise Violation(f"{event} is between {ends}")
                machine = event.machine
                slot = seats.index(machine) if machine is not None else 0
                there = [Rank(slot * self.nproc + local) for local in range(self.nproc)]
            case "hub":
                if event.peer != seats[self._farthest(trouble)]:
                    raise Violation(f"{event}; the longest way is to {self._farthest(trouble)}")
        if event.machine != machine or sorted(event.ranks) != there:
            raise Violation(f"{event} is of {machine} and {there}")
        if event.machine is None or event.peer is not None:
            return
        busier = 0.75 if trouble.kind == "rank" else 0.0
        if abs(event.busier - busier) > 0.01:
            raise Violation(f"{event} is busier by {busier}")
        self._shows(event, self._of_whom(event, trouble))

    def _shows(self, event: SlowFound, rank: Rank) -> None:
        """The steps it took since it is slow, and as many before as are shown."""
        own = [self.own[step][rank] / 1000 for step in range(SETTLES + 1, self.step + 1)]
        mine, before = own[-event.steps :], own[: -event.steps]
        if rank in self.over:  # Of what was before that nothing is kept.
            before = before[-max(len(event.before), 1) :]
        if event.since != mine[-SHOWN:] or event.before != before[-SHOWN:]:
            raise Violation(f"{event} shows other steps than were made: {mine}, {before[-SHOWN:]}")

    # --- moves ----------------------------------------------------------------------------------

    def move(self) -> None:
        """Somebody else takes the slot that is in trouble."""
        trouble, self.joined = self.trouble, self.joined + 1
        assert trouble is not None
        last = {self.role[rank]: rank for rank in self.ranks}.values()
        for rank in {*self.ranks} - {*last}:  # A step is cut short, and made again.
            self.pace.take(self.job, self.job.epoch, [(rank, self._longer(self.step + 1))], 0)
        joiner = MachineId(f"j{self.joined}")
        seats = list(self.job.seats)
        leaver, seats[trouble.slot] = seats[trouble.slot], joiner
        epoch = Epoch(self.job.epoch + 1)
        kind = "network" if trouble.kind == "hub" else trouble.kind
        counts = self.chance.random() < 0.7
        why_not = "" if counts else self.chance.choice(("is measured", "has failed", "went on"))
        outcome = Outcome.FAILED if why_not == "has failed" else Outcome.DONE
        effect = Effect.VAIN if why_not == "is measured" else Effect.OPEN
        known = self._incident(outcome, joiner)
        took = MachineId("j0") if why_not == "went on" else joiner
        move = SlowMove(
            Slot(trouble.slot), leaver, took, known.number, 2.0, 1.0, effect=effect, kind=kind
        )
        moves = (*self.job.stragglers.moves, move)
        self.job = replace(
            self.job, seats=tuple(seats), epoch=epoch, incidents=(*self.job.incidents, known),
            stragglers=Stragglers(moves=moves),
        )  # fmt: skip
        trouble.since, trouble.kind, trouble.peers = self.step + 1, "moved", ()
        if self.chance.random() < 0.6:
            trouble.behind = trouble.slot * self.nproc + self.chance.randrange(self.nproc)
        self.go(SETTLES + MEASURED + 20)
        if trouble.measured != counts:
            raise Violation(f"{move} {why_not}: it was measured {trouble.measured} times")

    def _is_measured(self, event: SlowMeasured) -> None:
        trouble, move = self.trouble, self.job.stragglers.moves[-1]
        if trouble is None or trouble.kind != "moved":
            raise Violation(f"nothing was moved: {event}")
        trouble.measured += 1
        rank = Rank(trouble.slot * self.nproc if trouble.behind is None else trouble.behind)
        usual_us = self._usual_us(rank)
        own_us = usual_us * self._slower(rank)
        if move.kind == "network":
            own_us = usual_us = round(median(self.own[self.step].values()))
        own_ms, usual_ms = round(own_us / 1000, 3), round(usual_us / 1000, 3)
        said = (event.incident, event.own_ms, event.usual_ms, event.steps, event.busier)
        if said != (move.incident, own_ms, usual_ms, MEASURED, 0.0):
            raise Violation(f"{event}: {move} takes {own_ms} ms of {usual_ms}")
        count = self.step - trouble.since + 1
        if count != SETTLES + MEASURED:
            raise Violation(f"{event} after {count} steps")
        moves = (*self.job.stragglers.moves[:-1], replace(move, effect=Effect.HELPED))
        if self.chance.random() < 0.5:
            self.job = replace(self.job, stragglers=Stragglers(moves=moves))

    # --- all of it ------------------------------------------------------------------------------

    def _is_all_told(self) -> None:
        if self.heeds != len(self.ranks) * self.step:
            raise Violation(f"of {self.step} steps {self.heeds} were heeded")

    def stand(self, steps: int) -> None:
        """For a while an incident is open, or members change: nothing is said, and all is seen."""
        calm = self.job
        if self.chance.random() < 0.5:
            one = self._incident(Outcome.OPEN, "")
            self.job = replace(calm, incidents=(*calm.incidents, one))
        else:
            change = Change(Kind.MOVE, Epoch(calm.epoch + 1), Stage.BIND, 0, {}, {})
            self.job = replace(calm, change=change)
        self.rests = False
        self.go(steps)
        self.rests, self.job = True, calm

    def _incident(self, outcome: Outcome, joiner: str) -> Incident:
        number = self.job.incidents[-1].number + 1 if self.job.incidents else 1
        return Incident(
            number=number, kind=Kind.MOVE, machine=None, joiner=MachineId(joiner), ranks=(),
            cause="", rung=0, epoch=self.job.epoch, outcome=outcome,
        )  # fmt: skip

    def begin(self) -> None:
        """One is slow from the first step on: nothing is said before it is known what is usual."""
        recorded, slot = self.job.recorded, self.chance.randrange(self.slots)
        self.job = replace(self.job, recorded=Facts())
        if self.pace.take(self.job, self.job.epoch, [(self.ranks[0], self._longer(0))], 0):
            raise Violation("something is said of ranks of which nothing is recorded")
        self.job = replace(self.job, recorded=recorded)
        trouble = self.trouble = Trouble("machine", slot, 1, 1.5, (), begins=True)
        alike = sum(self.role[rank] == self.role[Rank(slot * self.nproc)] for rank in self.ranks)
        self.go(SETTLES + USUAL // alike)
        if trouble.told:
            raise Violation(f"nobody can know yet who is slow: {trouble}")
        self.go(LATEST + KNOWN)
        if not trouble.told:
            raise Violation(f"nobody says who is slow: {trouble}")

    def suffer(self, kind: str) -> None:
        """One trouble from its beginning to its end."""
        by = self.chance.choice((1.25, 1.5, 2.0, 3.0))
        if kind in {*WAYS, "one way"}:
            by = self.chance.choice((0.3, 0.5, 1.0))
        elif kind == "hovers":
            by = 1.09
        peers: tuple[int, ...] = ()
        slot = self.chance.randrange(self.slots)
        others = [one for one in range(self.slots) if one != slot]
        if kind in ("network", "one way", "late"):
            peers = (self.chance.choice(others),)
        elif kind == "hub":
            slot, peers = 0, (*sorted(self.chance.sample(range(1, self.slots), 2)),)
        said = "machine" if kind == "late" else kind
        trouble = self.trouble = Trouble(said, slot, self.step + 1, by, peers)
        if kind in WAYS and self.first_way is None:
            self.first_way = trouble
        self.go(self.chance.choice((45, 60, 230)))
        count = self.step - trouble.since + 1
        if trouble.told and kind != "everybody" and self.chance.random() < 0.5:
            self.stand(max(trouble.due - count, 0) + 5)
            trouble.due = self.step - trouble.since + 2
            self.go(3)
        if bool(trouble.told) is (kind in QUIET):
            raise Violation(f"{trouble} was told {trouble.told} times")
        exactly = self.acts and self.nproc == 1 and kind in ("machine", "rank")
        if exactly and not trouble.suspected:
            raise Violation(f"{trouble} was never suspected")
        if kind in ("machine", "network", "hub") and self.chance.random() < 0.5:
            self.move()
        self.over |= {rank for rank in self.ranks if self._slower(rank) > 1.0}
        self.trouble = None
        self.go(self.chance.choice((30, 60)))


def play(chance: random.Random) -> None:
    """One fleet, and two or three troubles."""
    fleet = Fleet(chance)
    if chance.random() < 0.2:
        fleet.begin()
        return
    kinds = chance.sample(KINDS, 2)
    if {*kinds} <= {*WAYS, "late"} or (fleet.slots == 2 and "hub" in kinds):
        kinds = ["machine", "network"]
    fleet.go(KNOWN_OF_ALL if "everybody" in kinds else KNOWN)
    if "everybody" in kinds:
        kinds = sorted(kinds, key=lambda kind: kind != "everybody")
    for kind in kinds:
        if chance.random() < 0.3:
            fleet.stand(5)
        fleet.suffer(kind)
