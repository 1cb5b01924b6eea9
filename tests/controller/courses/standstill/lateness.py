"""Members change, and some ranks do not come to where all others wait.

How long each may take it has said. Who goes round for longer is ended then, and nobody else; who
stands in its own business meanwhile is as soon as all others are known to wait. A machine that is
to take ranks has to leave those that it had within twenty seconds, and to execute something.
"""

import random

from courses.standstill.watched import LOOKS_US, Watched
from courses.trained import SECOND_US
from trainmover.controller.change.price import can_be_replaced
from trainmover.controller.clock import tick_due
from trainmover.controller.events import (
    Lost,
    MachinesLost,
    MoveRequested,
)
from trainmover.controller.state import Stage
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

LEAVES_US, END_US, DEAF_US = 20 * SECOND_US, 2 * SECOND_US, 10 * SECOND_US
MINUTE_US = 60 * SECOND_US
DEADLINE_MS = 1000
CUT = 6


class Job(Watched):
    """
    patience  rank -> milliseconds that it may take to its boundary, as it says; 0: any number
    silent    ranks that do not say where they stand; going: those that do not come out of the
              script; raw: those that do not come up to the place where a joiner waits; apart:
              those that do not switch
    """

    def __init__(self, chance: random.Random, **knobs: object) -> None:
        self.patience: dict[int, int] = {}
        self.silent: set[int] = set()
        self.going: set[int] = set()
        self.raw: set[int] = set()
        self.apart: set[int] = set()
        nproc = chance.choice((1, 1, 2))
        known: dict[str, object] = {
            "machines": chance.choice((2, 3, 4)),
            "standbys": 1,
            "wait_s": 60,
            "nproc": nproc,
        }
        super().__init__(chance, **{**known, **knobs})

    def says(self, name: MachineId, local: int, fact: object) -> None:
        match fact:
            case m.Position(rank=rank) if rank in self.silent:
                return
            case m.AtBoundary(rank=rank) if rank in self.mute:
                return
            case m.Switched(rank=rank) if rank in self.apart:
                return
            case m.Parked(rank=rank) if rank in self.raw:
                return
            case m.Left() if self.nproc * self.names.index(name) + local in self.going:
                return
            case m.Position(rank=rank, epoch=epoch, committed=step):
                fact = m.Position(
                    rank=rank, epoch=epoch, committed=step, gate=Step(0),
                    patience_ms=self.patience.get(rank, 0),
                )  # fmt: skip
        super().says(name, local, fact)

    def lose(self, name: MachineId) -> None:
        lost = Lost(machine=name, why="its link has ended", heard_us=self.now_us)
        self.hear(MachinesLost(at_us=self.now_us, lost=[lost]))

    def breaks(self) -> None:
        """A link, and with it the step."""
        cut = m.Interrupted(rank=Rank(0), epoch=self.job.epoch, reason="reset by peer")
        self.rank_says(0, cut)

    def ended(self) -> dict[MachineId, m.EndWorker]:
        """Who is to end; all else is done."""
        found = dict(self.orders(m.EndWorker))
        self.settles()
        return found

    def nobody(self, why: str) -> None:
        gone = self.fenced()
        if (ended := self.ended()) or gone:
            raise Violation(f"{why}, and {ended} are to end, {gone} to go")

    def is_ended(self, ranks: list[int], words: str) -> None:
        """One process on each of their machines: that of the first of them."""
        first = {self.at(rank)[0]: rank for rank in sorted(ranks, reverse=True)}
        self.are_ended({self.at(rank): f"rank {rank} on {name}" for name, rank in first.items()})
        for name, one in self.job.hanging.condemned.items():
            if words not in one.cause:
                raise Violation(f"{name} keeps the others waiting, {words!r}: {one.cause!r}")

    def are_ended(self, places: dict[tuple[MachineId, int], str]) -> None:
        """And if one is not within two seconds, its machine goes, unless that ends the job."""
        ended = self.ended()
        said = {(name, one.local_rank): one for name, one in ended.items()}
        if said.keys() != places.keys():
            raise Violation(f"{[*places]} keep the others waiting, and {ended} are to end")
        for (name, local), one in said.items():
            if one.pid != self.job.machines[name].pids[local]:
                raise Violation(f"worker {local} of {name} is another process than {one}")
            if not one.why.startswith(places[name, local]):
                raise Violation(f"{places[name, local]} is to end, for {one.why!r}")
        if places and self.chance.random() < 0.3:
            self.passes(END_US - 1)
            self.nobody("they have yet to end")
            self.passes(1)
            first = min(name for name, _ in places)
            goes = [first] if can_be_replaced(self.job, first) else []
            if self.fenced() != goes:
                raise Violation(f"{first} did not end its process: {self.fenced()}")


# --- whose script goes on -------------------------------------------------------------------------


def _goes_round(chance: random.Random) -> None:
    """Ranks that are not at their boundary when their own time is over, or run on where all go
    back."""
    back = chance.random() < 0.5
    job = Job(chance, watch=chance.random() < 0.9, snapshot_every=5 if back else 0)
    job.alike = not back
    job.trains()
    if back:
        _cut(job)
    ranks = [*job.ranks]
    late = sorted(chance.sample(ranks, chance.randint(1, len(ranks))))
    soon, later = chance.choice(((1, 900), (300, 900), (2_000, 60_000)))
    job.patience = {rank: chance.choice((soon, later, 0)) for rank in ranks}
    gone = chance.choice(job.names[: len(job.job.seats)]) if back or chance.random() < 0.3 else None
    if back:
        job.going = {*late}
        job.raw = {*ranks} - {*late}
    else:
        job.mute = {*late}
    if gone is None:
        job.breaks()
    else:
        late = [rank for rank in late if job.at(rank)[0] != gone]
        job.lose(gone)
    job.settles()
    change = job.job.change
    waits = [rank for rank in late if job.patience[rank]]
    if not late or change is None or change.stage is not Stage.BOUNDARY:
        if late:
            raise Violation(f"ranks {late} are awaited: {change}")
        return
    if change.back is not back:
        raise Violation(f"there is no other copy: {back}, and all go back: {change}")
    first = min((job.patience[rank] for rank in waits), default=10**6)
    job.passes(1000 * first - 1)
    job.nobody(f"each of {late} may take {first} ms")
    job.passes(1)
    over = [rank for rank in waits if job.patience[rank] == first] if job.job.spec.watch else []
    job.is_ended(over, f"for {first / 1000:.0f} s after that was interrupted: its script goes on")


def _cut(job: Job) -> None:
    """All ranks' snapshots are in vaults of two machines."""
    for rank in job.ranks:
        name, local = job.at(rank)
        behind = job.names[(job.names.index(name) + 1) % len(job.job.seats)]
        said = m.Snapped(
            rank=Rank(rank), epoch=job.job.epoch, step=Step(CUT), vault=f"{behind}:1", bytes=7,
            cost_us=10, step_us=100_000, further=f"{job.names[-1]}:1",
        )  # fmt: skip
        job.says(name, local, said)
    job.settles()


def _does_not_leave(chance: random.Random) -> None:
    """Who has just given up its ranks is to take others, and does not come out of the script."""
    job = Job(chance, nproc=chance.choice((1, 2, 2)))
    job.trains()
    leaver, other = chance.sample(job.job.seats, 2)
    slot, ranks = job.names.index(other), job.job.spec.ranks(job.job.slot_of(leaver) or 0)  # type: ignore[arg-type]
    stays = sorted(chance.sample([*ranks], chance.randint(1, len(ranks))))
    job.going = {*stays}
    job.hear(MoveRequested(at_us=job.now_us, request="m", machine=leaver))
    job.settles()
    if job.job.change is not None or leaver in job.job.seats:
        raise Violation(f"{leaver} was to be moved: {job.job.change}")
    job.step = Step(job.step + 1)
    job.lose(other)
    job.settles()
    change = job.job.change
    if change is None or change.joiners != {slot: leaver}:
        raise Violation(f"only {leaver} is left to take slot {slot}: {change}")
    job.passes(LEAVES_US - 1)
    job.nobody(f"{leaver} may take {LEAVES_US} us")
    if chance.random() < 0.5:
        left, job.going = job.going, set()
        for rank in left:
            job.says(leaver, rank % job.nproc, m.Left())
        job.passes(1)
        job.nobody(f"{leaver} has left")
        return
    job.passes(1)
    local = stays[0] % job.nproc
    takes = job.job.spec.ranks(slot)[local]
    job.are_ended({(leaver, local): f"rank {takes} on {leaver} did not leave its step for 20 s"})


# --- who stands meanwhile -------------------------------------------------------------------------


def _stands_meanwhile(chance: random.Random) -> None:
    """One in its script or at a fetch, and all others are seen to wait; or some are not."""
    job = Job(chance, machines=chance.choice((3, 4)))
    job.trains()
    gone = chance.choice(job.job.seats) if chance.random() < 0.5 else None
    one, other = chance.sample([rank for rank in job.ranks if job.at(rank)[0] != gone], 2)
    stage = chance.choice((Stage.DRAIN, Stage.BOUNDARY))
    awaited = job.silent if stage is Stage.DRAIN else job.mute
    awaited.add(one)
    sees = chance.choice(("all", "all", "not one", "not the new one"))
    if sees == "not one":
        awaited.add(other)
    elif sees == "not the new one" and gone is not None:
        job.raw.add(job.nproc * job.names.index(gone) + chance.randrange(job.nproc))
    else:
        sees = "all"
    if gone is None:
        job.breaks()
    else:
        _goes(job, gone)
    job.settles()
    if job.job.change is None or job.job.change.stage is not stage:
        raise Violation(f"rank {one} is awaited: {job.job.change}")
    where = chance.choice(("script", "script", "fetch", "call"))
    _stands(job, one, where)
    if where == "call":
        job.passes(SECOND_US)
        job.nobody(f"rank {one} waits for others")
        return
    if sees != "all":
        job.nobody(f"{sees} is seen to wait")
        job.passes(SECOND_US // 2 - 1)
        job.nobody(f"{sees} is seen to wait")
        job.passes(1)
    job.is_ended([one], "its script" if where == "script" else "fetching a batch")


def _goes(job: Job, name: MachineId) -> None:
    """The machine, or a process on it; where its ranks stood counts no more."""
    local = job.chance.randrange(job.nproc)
    if job.chance.random() < 0.5:
        _stands(job, job.nproc * job.names.index(name) + local, "script")
    if job.chance.random() < 0.5:
        job.lose(name)
    else:
        exited = m.WorkerExited(local_rank=local, pid=job.pid(name, local), code=-9)
        job.agent_says(name, exited)


def _stands_at_the_switch(chance: random.Random) -> None:
    """There ranks wait for the runtime, and for each other's machines."""
    job = Job(chance)
    job.trains()
    one = chance.choice([*job.ranks])
    job.apart.add(one)
    job.breaks()
    job.settles()
    if job.job.change is None or job.job.change.stage is not Stage.SWITCH:
        raise Violation(f"rank {one} has yet to switch: {job.job.change}")
    _stands(job, one, chance.choice(("script", "fetch")))
    job.passes(5 * SECOND_US)
    job.nobody("it may take long to meet")


def _stands(job: Job, rank: int, where: str) -> None:
    fact = m.Stands(
        rank=Rank(rank), epoch=job.job.epoch, step=Step(5), where=where, counts={"w": 7},
        still_ms=1500, deadline_ms=DEADLINE_MS, call="all_reduce" if where == "call" else "",
    )  # fmt: skip
    job.rank_says(rank, fact)


def _executes_nothing(chance: random.Random) -> None:
    """A process of the machine that is to take the ranks, or of one that keeps its own; of a
    process that ends soon it is of no account."""
    job = Job(chance)
    job.trains()
    gone, stays = chance.sample(job.job.seats, 2)
    slot, local = job.names.index(gone), chance.randrange(job.nproc)
    rank = job.nproc * slot + local
    name, state = job.names[-1], chance.choice(("stopped", "deaf"))
    if joins := chance.random() < 0.5:
        job.raw.add(rank)
    else:
        name, rank = stays, job.nproc * job.names.index(stays) + local
        job.silent.add(rank)
    job.lose(gone)
    job.settles()
    pid = job.job.machines[name].pids[local]
    job.agent_says(name, m.WorkerState(local_rank=local, pid=pid, state=state))
    if not joins:
        job.nobody("it does so for no time")
    after_us = SECOND_US if state == "stopped" else DEAF_US
    job.passes(after_us - 1)
    job.nobody(f"it does so for less than {after_us} us")
    job.passes(1)
    words = f"rank {rank} on {name} stood still for {after_us / SECOND_US:.1f} s: its process"
    job.are_ended({(name, local): words})


def _is_well(chance: random.Random) -> None:
    """Where all train nobody has to look, but once a minute at standbys."""
    job = Job(chance, standbys=chance.choice((0, 1)))
    job.trains()
    spares = len(job.names) - len(job.job.seats)
    now_us = job.now_us
    _stands(job, chance.choice([*job.ranks]), "script")
    job.told.clear()
    due = [tick_due(job.job, now_us, now_us + us) for us in (MINUTE_US - 1, MINUTE_US)]
    if due != [False, bool(spares)]:
        raise Violation(f"{spares} standbys are looked at once a minute: {due}")
    name = job.names[0]
    stopped = m.WorkerState(local_rank=0, pid=job.pid(name, 0), state="stopped")
    job.agent_says(name, stopped)
    due = [tick_due(job.job, now_us, now_us + us) for us in (LOOKS_US - 1, LOOKS_US)]
    if due != [False, True]:
        raise Violation(f"who is stopped is looked at five times a second: {due}")


STORIES = (
    _goes_round, _goes_round, _does_not_leave, _does_not_leave, _stands_meanwhile,
    _stands_meanwhile, _executes_nothing, _is_well, _stands_at_the_switch,
)  # fmt: skip


def play(chance: random.Random) -> None:
    """One change of members."""
    chance.choice(STORIES)(chance)
