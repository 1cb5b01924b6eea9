# SPDX-License-Identifier: Apache-2.0
"""What breaks in a job that trains, one after the other, while machines do at once what they are
told: who takes which ranks, what that has cost, and what it was said to cost beforehand."""

import random
from statistics import median

from courses.trained import SECOND_US, Trained
from trainmover.controller.change import options
from trainmover.controller.effects import Closed
from trainmover.controller.events import AgentSaid, Lost, MachineJoined, MachinesLost, MoveRequested
from trainmover.controller.state import Incident, MachineState, Option, Outcome, Phase
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

MEDIAN_MS, WARM_MS, RUN_MS = 100.0, 50.0, 20.0
WAIT_S = 30
CUT, EVERY = Step(4), 5
KEPT, FEW = 8, 4
"""Incidents that a job knows whole, and certificates of those before."""


class Course:
    """cost: way -> what it has cost each time. cut: all have taken snapshots; known: where they
    still are."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        machines, standbys = chance.choice(((2, 1), (3, 2), (4, 3)))
        self.nproc = chance.choice((1, 1, 2))
        self.wait_s = chance.choice((0, WAIT_S))
        self.known = True
        self.cut, self.stops = chance.random() < 0.5, chance.random() < 0.5
        self.job = Trained(
            chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=self.wait_s,
            snapshot_every=EVERY if self.cut else 0,
            no_standby="checkpoint" if self.stops else "end",
        )  # fmt: skip
        self.job.trains()
        for rank in self.job.ranks if self.cut else ():
            slot = (rank // self.nproc + 1) % machines
            snapped = m.Snapped(
                rank=Rank(rank), epoch=self.job.job.epoch, step=CUT, vault=f"m{slot + 1}:1",
                bytes=7, cost_us=10, step_us=100_000,
            )  # fmt: skip
            self.job.rank_says(rank, snapped)
        self.job.settles()
        self.cost: dict[str, list[float]] = {}

    def goes(self, way: str) -> None:
        """One thing more happens, and is over."""
        job, chance = self.job, self.chance
        before, epoch = [*job.job.seats], job.job.epoch
        slot = chance.randrange(len(before))
        name = before[slot]
        spare = [one for one in job.job.machines.values() if one.id not in before]
        ready = [one.id for one in spare if one.state is MachineState.WARM]
        holds = [one.id for one in spare if one.held == slot]
        job.now_us += SECOND_US
        job.gap_us = 1000 * chance.randrange(150, 900)
        job.step = Step(job.step + 3)
        known = {one: median(its) for one, its in self.cost.items()}
        self._happens(way, name, slot)
        one = job.job.incidents[-1]
        self._may_go_back({option.name: option for option in one.options}, way)
        job.settles()
        job.rests(1)
        one = next(i for i in job.job.incidents if i.number == one.number)
        self._is_over(one, way, name, slot, before, epoch)
        joiner = job.job.seats[slot]
        if joiner != name and joiner not in (holds or ready):
            raise Violation(f"{joiner} takes slot {slot}; {holds or ready} are readier")
        if way != "move":
            self._was_weighed(one, way, name, known, ran=joiner not in holds)
        self.cost.setdefault(way, []).append(job.gap_us / 1000 - MEDIAN_MS)
        if way == "loss":
            self._returns(name)

    def _happens(self, way: str, name: MachineId, slot: int) -> None:
        job = self.job
        match way:
            case "link":
                for rank in job.job.spec.ranks(slot)[:1]:  # type: ignore[arg-type]
                    said = m.Interrupted(rank=rank, epoch=job.job.epoch, reason="reset by peer")
                    job.says(name, rank % job.nproc, said)
            case "loss":
                lost = Lost(machine=name, why="its link has ended", heard_us=job.now_us - 900)
                job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
            case "crash":
                gone = m.WorkerExited(
                    local_rank=0, pid=job.job.machines[name].pids[0], code=-11, note="it was hit"
                )
                job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=gone))
            case "move":
                job.hear(MoveRequested(at_us=job.now_us, request="m", machine=name))

    def _is_over(
        self,
        one: Incident,
        way: str,
        name: MachineId,
        slot: int,
        before: list[MachineId],
        epoch: int,
    ) -> None:
        job = self.job
        if one.outcome is not Outcome.DONE or job.job.change is not None:
            raise Violation(f"{way} of {name} is not over: {one}, {job.job.change}")
        others = [seat for at, seat in enumerate(job.job.seats) if at != slot]
        if others != [seat for at, seat in enumerate(before) if at != slot]:
            raise Violation(f"{way} of {name}: {before} have become {job.job.seats}")
        moved = job.job.seats[slot] != name
        if moved is not (way != "link") or job.job.epoch != epoch + 1:
            raise Violation(f"{way} of {name}: {job.job.seats[slot]} has it, {job.job.epoch}")
        cost = job.gap_us / 1000 - MEDIAN_MS
        heard_us = {"loss": job.now_us - SECOND_US - 900}.get(way, job.now_us - SECOND_US)
        said = (one.downtime_ms, one.step_ms, one.rung, min(one.marks.values()), one.step)
        truth = (cost, MEDIAN_MS, int(way != "move"), heard_us, job.step)
        if said != truth:
            raise Violation(f"{way} of {name}: {one}; in truth it is {truth}")
        took_ms = sum(one.phases_ms.values())
        if abs(took_ms - (max(one.marks.values()) - heard_us) / 1000) > 1e-6:
            raise Violation(f"{way} of {name} has phases {one.phases_ms} by {one.marks}")
        words = {
            "loss": f"{name} was lost: its link has ended", "crash": "it was hit",
            "link": "reset by peer", "move": "a move was asked for",
        }[way]  # fmt: skip
        about = None if way == "link" else name
        lost = (name,) if way in ("loss", "crash") else ()
        if words not in one.cause or one.machine != about or (way == "loss" and one.lost != lost):
            raise Violation(f"{way} of {name}: {one}")
        ways = {"link": options.RETRY, "move": "", "loss": options.STANDBY}
        if options.way_of(one) != ways.get(way, options.STANDBY):
            raise Violation(f"{way} of {name} was {options.way_of(one)}: {one}")

    def _was_weighed(
        self, one: Incident, way: str, name: MachineId, known: dict[str, float], *, ran: bool
    ) -> None:
        """By what has been measured until then."""
        said = {option.name: option for option in one.options}
        if way == "link":
            retry = said[options.RETRY]
            if retry.ms != known.get("link") or retry.why:
                raise Violation(f"a step was run again before at {known}: {retry}")
            return
        replaced = [ms for how in ("loss", "crash") for ms in self.cost.get(how, [])]
        switch = median(replaced) if replaced else known.get("move")
        cost = None if switch is None else switch + (RUN_MS if ran else 0.0)
        standby, process, wait = (
            said[options.STANDBY], said[options.PROCESS], said[options.WAIT],
        )  # fmt: skip
        if standby.ms != cost or str(one.joiner) not in standby.why:
            raise Violation(f"{cost} ms by {self.cost}, ran {ran}: {standby}")
        fresh = WARM_MS if way == "crash" else None
        if process.ms != fresh or (way == "loss") is not (process.why == f"{name} is gone"):
            raise Violation(f"{way} of {name}: {process}")
        if wait.ms != (1000.0 * self.wait_s or None):
            raise Violation(f"{self.wait_s} s may be waited: {wait}")

    def _may_go_back(self, said: dict[str, Option], way: str) -> None:
        """To a cut of which nothing has gone since, where there is one; and end with it."""
        known, self.known = self.known, self.known and (way == "link" or not self.cut)
        if not said or not known:
            return
        back, stop = said[options.BACK], said.get(options.STOP)
        ms = EVERY * MEDIAN_MS if self.cut and any(self.cost.values()) else None
        words = f"of step {CUT}; up to {EVERY} steps" if self.cut else "there is none at hand"
        if back.ms != ms or words not in back.why:
            raise Violation(f"{ms} ms, {words!r}: {back}")
        if stop is not None and (stop.ms != (ms if self.stops else None) or not stop.why):
            raise Violation(f"it may end with what it has, {self.stops}, {ms} ms: {stop}")

    def _returns(self, name: MachineId) -> None:
        """Whoever was lost comes back as a standby."""
        job = self.job
        job.now_us += 3600 * SECOND_US
        job.hear(
            MachineJoined(at_us=job.now_us, machine=name, standby=True, vault=f"{name}:2", host="h")
        )
        job.started += 1
        job.comes_up(name)
        job.rests(1)


def _one_after_the_other(chance: random.Random) -> None:
    course = Course(chance)
    for _ in range(chance.randint(2, 7)):
        course.goes(chance.choice(("link", "loss", "crash", "move")))


def _long_ago(chance: random.Random) -> None:
    """Of what is long over the job keeps what still decides something; the whole of it is told
    once."""
    course = Course(chance)
    count = chance.randint(KEPT + 1, KEPT + 4)
    for _ in range(count):
        course.goes(chance.choice(("link", "loss")))
    known = course.job.job
    told = [one.incident for one in course.job.log if isinstance(one, Closed)]
    numbers = [one.number for one in (*told, *known.incidents)]
    if numbers != [*range(1, count + 1)] or len(known.incidents) != KEPT:
        raise Violation(f"{count} are over: told are {told}, left {known.incidents}")
    if len(known.briefs) != len(told):
        raise Violation(f"of {told} the job knows {known.briefs}")
    for short, whole in zip(known.briefs, told, strict=True):
        for name in ("number", "kind", "rung", "joiner", "cause", "outcome", "marks", "failed"):
            if getattr(short, name) != getattr(whole, name):
                raise Violation(f"{name} of {whole} still counts: {short}")
        if short.downtime_ms != whole.downtime_ms or short.machine != whole.machine:
            raise Violation(f"what {whole} has cost still counts: {short}")
        if short.positions or short.held or short.options or len(short.ranks) > 1:
            raise Violation(f"what all ranks have said for {whole} counts no more: {short}")
        if whole.certificates and short.certificates != whole.certificates[-FEW:]:
            raise Violation(f"that state was moved is known: {short}")


def _nobody_is_left(chance: random.Random) -> None:
    """No standby: the job waits as long as it may, or ends at once."""
    wait_s = chance.choice((0, WAIT_S))
    job = Trained(chance, machines=3, standbys=0, wait_s=wait_s)
    job.trains()
    name = chance.choice(job.names)
    lost = Lost(machine=name, why="its link has ended", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    words = f"{name} was lost: its link has ended; 1 machine must be replaced and 0 standbys are"
    if not wait_s:
        _ends(job, words)
        return
    if (
        job.end() is not None
        or not job.job.change
        or job.job.change.missing != {job.names.index(name)}
    ):
        raise Violation(f"{name} is lost, and {wait_s} s may be waited: {job.job.change}")
    job.settles()
    job.passes(wait_s * SECOND_US - 1)
    if chance.random() < 0.5:
        new = MachineId("m9")
        job.names.append(new)
        job.hear(
            MachineJoined(at_us=job.now_us, machine=new, standby=True, vault="m9:1", host="h9")
        )
        job.comes_up(new)
        job.rests(1)
        if new not in job.job.seats or job.job.incidents[-1].outcome is not Outcome.DONE:
            raise Violation(f"{new} has come, and {job.job.seats} have ranks: {job.job.change}")
        return
    if job.end() is not None:
        raise Violation(f"{wait_s} s are not over, and the job has ended: {job.end()}")
    job.passes(1)
    _ends(job, f"{words} left, and none has come in {wait_s} s")


def _thrice(chance: random.Random) -> None:
    """A step that fails three times, whoever makes it, is not tried again."""
    job = Trained(chance, machines=3, standbys=3, wait_s=60)
    job.trains()
    job.commits_first = False
    for turn in range(1, 4):
        slot = chance.randrange(3)
        name = job.job.seats[slot]
        job.now_us += SECOND_US
        pid = job.job.machines[name].pids[0]
        exited = m.WorkerExited(local_rank=0, pid=pid, code=1)
        job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=exited))
        if (job.end() is None) and turn == 3:
            job.settles()
        if turn < 3 and job.end() is not None:
            raise Violation(f"the step has failed {turn} times: {job.end()}")
        if turn < 3:
            job.rests(1)
    end = next((one for one in (*job.log, *job.told) if type(one).__name__ == "End"), None)
    if end is None or getattr(end, "code", 0) != 1 or "3 times" not in getattr(end, "text", ""):
        raise Violation(f"the step has failed three times: {end}")


def _ends(job: Trained, words: str) -> None:
    end = job.end()
    if end is None or end.code != 1 or words not in end.text:
        raise Violation(f"the job was to end, {words!r}: {end}")
    last = job.job.incidents[-1] if job.job.incidents else None
    if job.job.phase is not Phase.ENDED or job.job.change is not None:
        raise Violation(f"the job has ended, and is {job.job.phase}")
    if last is not None and last.outcome is Outcome.OPEN:
        raise Violation(f"the job has ended, and {last} is open")


def play(chance: random.Random) -> None:
    """One job."""
    often = _one_after_the_other
    chance.choice((often, often, often, _nobody_is_left, _thrice, _long_ago))(chance)
