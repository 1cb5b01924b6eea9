# SPDX-License-Identifier: Apache-2.0
"""Machines that say what machines say that fail: who is believed to, what is said of it, whose
ranks go; and what of that stays when people speak for it or against it."""

import random
from dataclasses import dataclass

from courses.trained import SECOND_US, Trained
from trainmover.controller.events import (
    AnomalyFound,
    CordonRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    UncordonRequested,
)
from trainmover.controller.policies.anomalies.known import Finding
from trainmover.controller.state import Kind
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

MINUTE_US, HOUR_US = 60 * SECOND_US, 3600 * SECOND_US
GRAVE = {"gpu": "a GPU is broken", "memory": "its memory is broken", "disk lost": "a disk is lost"}
OFTEN = {"corrected": "errors were corrected", "heat": "it is too hot"}
TOO_MANY = 10
"""Lines at once."""
ONE_IN = 4
"""So many machines may be taken out."""


@dataclass
class Seen:
    """What is to be known of one machine and sign."""

    at_us: int
    name: MachineId
    sign: str
    text: str
    done: str
    times: int = 1


class Course:
    """seen: in order. out: who is believed to fail. kept: whom people keep out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.policy = chance.choice(("act", "act", "act", "watch", "off"))
        machines, standbys = chance.choice(((2, 1), (3, 2), (6, 2), (6, 3)))
        self.job = Trained(
            chance, machines=machines, standbys=standbys, wait_s=60, anomalies=self.policy
        )
        self.job.trains()
        self.seen: list[Seen] = []
        self.out: set[MachineId] = set()
        self.kept: dict[MachineId, str] = {}

    def says(self, name: MachineId, sign: str, line: str, count: int) -> None:
        self.job.agent_says(name, m.Sign(symptom=sign, line=line, count=count))

    def is_seen(self, name: MachineId, sign: str, text: str, *, grave: bool, times: int) -> None:
        """By the job, which has not been told to do anything since."""
        if self.policy == "off":
            return
        now_us = self.job.now_us
        for one in self.seen:
            if (one.name, one.sign) == (name, sign) and now_us - one.at_us < HOUR_US:
                one.times += times
                return
        done = self._done(name, grave=grave)
        if done.startswith("its ranks") or done == "it takes no ranks":
            self.out.add(name)
            self.kept.setdefault(name, f"about to fail: {text}")
        self.seen.append(Seen(now_us, name, sign, text, done, times))

    def _done(self, name: MachineId, *, grave: bool) -> str:
        if not grave:
            return "this alone is no reason to move it"
        if name in self.out:
            return "it takes no ranks already"
        if self.policy != "act":
            return "nothing is done; --anomalies act would give its ranks to a standby"
        if len(self.out.intersection(self.job.job.machines)) >= max(
            1, len(self.job.job.machines) // ONE_IN
        ):
            return "nothing is done: so many machines at once are hardly what is broken"
        return "its ranks go to a standby" if name in self.was_seated else "it takes no ranks"

    def happens(self) -> None:
        """Something is seen of one machine."""
        chance, job = self.chance, self.job
        name = chance.choice([*job.job.machines])
        self.was_seated = [*job.job.seats]
        last = self.seen[-1] if self.seen else None
        if last is not None and last.sign in GRAVE and chance.random() < 0.4:
            if last.name in job.job.machines:
                self.says(last.name, last.sign, "Xid 79", 2)
                text = f"{GRAVE[last.sign]}: Xid 79"
                self.is_seen(last.name, last.sign, text, grave=True, times=2)
            return
        way = chance.choice(("grave", "grave", "few", "many", "slow", "found", "unknown", "gone"))
        match way:
            case "grave":
                sign = chance.choice([*GRAVE])
                times = chance.randint(1, 3)
                self.says(name, sign, "Xid 79", times)
                self.is_seen(name, sign, f"{GRAVE[sign]}: Xid 79", grave=True, times=times)
            case "few":
                self.says(name, "network", "Link is Down", TOO_MANY - 1)
                job.now_us += HOUR_US // 2
            case "many" | "slow":
                self._counts(name, slow=way == "slow")
            case "found":
                grave = chance.random() < 0.6
                found = AnomalyFound(
                    at_us=job.now_us, machine=name, sign="late", text="it is", grave=grave
                )
                job.hear(found)
                self.is_seen(name, "late", "it is", grave=grave, times=1)
            case "unknown":
                self.says(name, "of another version", "?", 99)
            case "gone":
                found = AnomalyFound(
                    at_us=job.now_us, machine=MachineId("m77"), sign="late", text="it is",
                    grave=True,
                )  # fmt: skip
                job.hear(found)

    def _counts(self, name: MachineId, *, slow: bool) -> None:
        """Lines that come now and then everywhere: one a minute is usual."""
        job, sign = self.job, self.chance.choice([*OFTEN])
        job.now_us += HOUR_US
        if slow:
            for _ in range(30):
                self.says(name, sign, "CE", 1)
                job.now_us += MINUTE_US
            return
        other = next(one for one in job.names if one != name)
        self.says(name, sign, "CE", TOO_MANY - 4)
        if other in job.job.machines:
            self.says(other, sign, "CE", 1)
        self.says(name, "stall", "soft lockup", 4)
        job.now_us += 2 * MINUTE_US
        self.says(name, sign, "CE", 5)
        self.are_known()
        more = self.chance.randint(1, 3)
        self.says(name, sign, "CE 7", more)
        lines = TOO_MANY - 1 + more
        text = f"{lines} lines more than 1 a minute; the newest: {OFTEN[sign]}: CE 7"
        self.is_seen(name, sign, text, grave=True, times=more)
        job.now_us += HOUR_US

    def are_known(self) -> None:
        """All that was seen, and who takes no ranks for it."""
        said = [
            (one.at_us, one.machine, one.sign, one.text, one.done, one.times)
            for one in self.job.job.anomalies.findings
        ]
        truth = [(o.at_us, o.name, o.sign, o.text, o.done, o.times) for o in self.seen]
        if said != truth:
            raise Violation(f"seen was {truth}, known is {said}")
        cordons = {name: one.reason for name, one in self.job.job.cordoned.items()}
        if cordons != self.kept:
            raise Violation(f"{self.kept} are to be kept out, and {cordons} are")
        spared = {name for name, one in self.job.job.cordoned.items() if one.spared}
        if spared != {name for name, why in self.kept.items() if why.startswith("about to fail")}:
            raise Violation(f"a policy keeps out some of {self.kept}, and as it is said {spared}")
        failing = {name for name, one in self.job.job.cordoned.items() if one.failing}
        if failing != self.out:
            raise Violation(f"{self.out} are about to fail, and {failing} are believed to be")

    def are_moved(self) -> None:
        """Ranks of who is believed to fail, as far as there are standbys for them."""
        job = self.job
        before = [*job.job.seats]
        moves = len(job.job.incidents)
        job.rests(2)
        free = [name for name in job.job.machines if name not in before and name not in self.kept]
        go = [name for name in before if name in self.out]
        stay = [name for name in job.job.seats if name in self.out]
        if len(stay) != max(len(go) - len(free), 0):
            raise Violation(f"{self.out} are about to fail, {free} are free: {job.job.seats}")
        if {*job.job.seats} & {*self.kept} - {*before}:
            raise Violation(f"{self.kept} take no ranks: {job.job.seats}")
        for one in job.job.incidents[moves:]:
            leavers = [one.machine, *(leaver for leaver, _ in one.further)]
            words = "; ".join(f"{name} is {self.kept[name]}" for name in leavers if name)
            if one.kind is not Kind.MOVE or one.cause != words:
                raise Violation(f"{leavers} were moved, since {words}: {one}")


def _signs(chance: random.Random) -> None:
    course = Course(chance)
    for _ in range(chance.randint(2, 6)):
        course.job.now_us += chance.choice((SECOND_US, MINUTE_US, HOUR_US + SECOND_US))
        course.happens()
        course.are_known()
        course.are_moved()
    _people(course)
    course.happens()
    course.are_known()


def _people(course: Course) -> None:
    """Somebody keeps it out, or lets it in; or it is lost, and comes again."""
    job, chance = course.job, course.chance
    if not course.out:
        return
    name = chance.choice(sorted(course.out))
    match chance.choice(("cordon", "uncordon", "lost")):
        case "cordon":
            asked = CordonRequested(at_us=job.now_us, request="c", machine=name, reason="dust")
            job.hear(asked)
            course.kept[name] = "dust"
        case "uncordon":
            job.hear(UncordonRequested(at_us=job.now_us, request="u", machine=name))
            course.kept.pop(name)
            course.out.discard(name)
        case "lost":
            lost = Lost(machine=name, why="it is", heard_us=job.now_us)
            job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
            job.rests(1)
            back = MachineJoined(
                at_us=job.now_us, machine=name, standby=True, vault=f"{name}:2", host=name
            )
            job.hear(back)
    course.are_known()


def _two_reasons(chance: random.Random) -> None:
    """One seems about to fail, others will be taken away: all go, the one first; and what people
    have said of a machine before is what is said of it."""
    spares = chance.choice((1, 2, 5))
    job = Trained(chance, machines=4, standbys=spares, wait_s=60, anomalies="act")
    job.trains()
    fails, *go = chance.sample(job.job.seats, 3)
    left_s = dict(zip(go, chance.sample((40, 90, 300), 2), strict=True))
    people = chance.random() < 0.4
    if people:
        job.hear(CordonRequested(at_us=job.now_us, request="c", machine=fails, reason="dust"))
    link = m.Interrupted(rank=Rank(0), epoch=job.job.epoch, reason="reset by peer")
    job.says(job.job.seats[0], 0, link)  # While members change they wait for their turn.
    said: list[tuple[MachineId, m.AgentFact]] = [(fails, m.Sign(symptom="gpu", line="Xid 79"))]
    said += [(name, m.Leaving(left_ms=1000 * its)) for name, its in left_s.items()]
    also = job.names[-1] if spares > 4 else go[0]  # It may have no ranks to give up.
    dusty = CordonRequested(at_us=job.now_us, request="d", machine=also, reason="dust")
    if chance.random() < 0.5:
        job.hear(dusty)
    if spares > 4:
        said.append((also, m.Leaving(left_ms=20_000)))
    before = job.job.cordoned.get(also)
    for name, fact in chance.sample(said, len(said)):
        job.agent_says(name, fact)
    reason = "it will be taken away" if before is None else "dust"
    if job.job.cordoned[also].reason != reason:
        raise Violation(f"{also} is kept out, {reason!r}: {job.job.cordoned[also]}")
    begun_us = job.now_us
    job.rests(1)
    moves = [one for one in job.job.incidents if one.kind is Kind.MOVE]
    soonest = sorted(go, key=lambda name: left_s[name])
    why = f"{fails} is {'dust' if people else 'about to fail: a GPU is broken: Xid 79'}"
    words = f"{', '.join(soonest)} will be taken away, in {left_s[soonest[0]]} s; {why}"
    if spares < 3:
        words = why
    if not moves or moves[0].cause != words or moves[0].marks["begun"] != begun_us:
        raise Violation(f"{words!r} is so, {spares} are free: {moves[:1]}")
    order = [fails, *soonest] if spares >= 3 else [fails]
    if [moves[0].machine, *(one for one, _ in moves[0].further)] != order:
        raise Violation(f"{order} are to go: {moves[0]}")
    stays = [fails, *soonest][spares:]
    if [name for name in stays if name not in job.job.seats]:
        raise Violation(f"{spares} can take ranks, and {stays} stay: {job.job.seats}")


def _many(chance: random.Random) -> None:
    """The newest are kept."""
    job = Trained(chance, machines=2, standbys=1, anomalies="watch")
    job.trains()
    count = chance.choice((64, 70))
    for number in range(count):
        found = AnomalyFound(
            at_us=job.now_us, machine=job.names[0], sign=f"s{number}", text="", grave=False
        )
        job.hear(found)
    kept: tuple[Finding, ...] = job.job.anomalies.findings
    if [one.sign for one in kept] != [f"s{number}" for number in range(count - 64, count)]:
        raise Violation(f"of {count} the newest 64 are to be kept: {kept}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_signs, _signs, _signs, _two_reasons, _two_reasons, _many))(chance)
