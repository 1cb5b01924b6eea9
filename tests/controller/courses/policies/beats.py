# SPDX-License-Identifier: Apache-2.0
"""Heartbeats, memory, steps and incidents of machines of which one does what comes before a
failure: what `anomalies.look` says of it, and that it says nothing of the others.

All others speak every second, their memory wanders, their steps take as long as those of others.
"""

import random
from collections.abc import Callable

from trainmover.controller.events import AnomalyFound
from trainmover.controller.policies.anomalies.look import Look
from trainmover.controller.state import Incident, Job, Kind, Machine, Machines, Outcome, Phase
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.protocol.messages import JobSpec
from trainmover.simulator.happenings import Violation

SECOND_US = 1_000_000
HOUR_S, ROUND_S = 3600, 10
LATE_ROUNDS = 9
"""Of the last thirty: then it is no chance. Of fewer fewer do."""
MACHINES_MIN = 4
WHOLE = 64 << 30
KNOWN_S, SOON_S = 705, 480
BLOCK, USUAL_BLOCKS, CREEPS_BLOCKS = 16, 40, 15
HOW = ("late", "all late", "fills", "wanders", "creeps", "hardly", "quicker", "repeats", "moves")


class Beats:
    """how: what one does; name: who. told: seconds at which something was said of it."""

    def __init__(self, chance: random.Random, how: str) -> None:
        self.chance, self.how = chance, how
        count = chance.choice((2, 3, 4)) if how == "late" and chance.random() < 0.3 else 8
        self.few = count < MACHINES_MIN
        names = [MachineId(f"m{number}") for number in range(1, count + 1)]
        spec = JobSpec(run_id="beats", argv=[], machines=count)
        self.job = Job(
            spec=spec,
            phase=Phase.RUNNING,
            seats=tuple(names),
            machines=Machines({name: Machine(name, False, "v", name) for name in names}),
        )
        self.name = chance.choice(names)
        self.look = Look()
        self.now_s = chance.randrange(1000, 100_000)
        self.silent_s = 0
        self.free = WHOLE // 2
        self.told: list[tuple[int, AnomalyFound]] = []
        self.gone = MachineId("m99")

    def second(self) -> None:
        """One more."""
        self.now_s += 1
        now_us = self.now_s * SECOND_US
        for name in [*self.job.machines, self.gone]:
            late = self.silent_s and (name == self.name or self.how == "all late")
            if late and self.now_s % ROUND_S not in (0, ROUND_S - self.silent_s):
                continue
            mine = name == self.name
            free = self.free if mine else WHOLE // 8 + self.chance.randrange(WHOLE // 16)
            if self.how == "late":
                self.look.alive(name, now_us)
            else:
                self.look.heard(name, free, WHOLE, now_us)
        self._looks(self.look.look(self.job, now_us))

    def _looks(self, found: list[AnomalyFound]) -> None:
        for event in found:
            if event.machine != self.name:
                raise Violation(f"{event}, and only {self.name} {self.how}")
            if event.at_us != self.now_s * SECOND_US:
                raise Violation(f"{event} is said at {self.now_s} s")
            self.told.append((self.now_s, event))

    def rounds(self, count: int) -> None:
        for _ in range(count * ROUND_S):
            self.second()

    def the_only(self, sign: str, *, grave: bool) -> AnomalyFound:
        """What was said, once."""
        if len(self.told) != 1:
            raise Violation(f"{self.name} {self.how}; it was said: {self.told}")
        _, event = self.told[0]
        if (event.sign, event.grave) != (sign, grave):
            raise Violation(f"{self.name} {self.how}, and it is said {event}")
        return event

    def nothing(self) -> None:
        if self.told:
            raise Violation(f"{self.name} {self.how}, and it is said {self.told}")


def _late(beats: Beats) -> None:
    """One, or all; of a few nobody can say who is the odd one."""
    calm = beats.chance.choice((0, 5, 40))
    beats.rounds(calm)
    beats.silent_s = 4
    begun_s = beats.now_s
    beats.rounds(LATE_ROUNDS + 2)
    if beats.how == "all late" or beats.few:
        beats.nothing()
        return
    event = beats.the_only("late", grave=True)
    rounds = (beats.told[0][0] - begun_s + ROUND_S - 1) // ROUND_S
    if rounds > LATE_ROUNDS + 1 or (calm == 40 and rounds < LATE_ROUNDS):
        raise Violation(f"after {rounds} rounds it is said {event}")
    late, of = (int(word) for word in event.text.split() if word.isdecimal())
    if not (LATE_ROUNDS if calm == 40 else 3) <= late <= rounds or not late <= of <= 30:
        raise Violation(f"after {rounds} rounds, {calm} before: {event}")
    if calm == 40 and of != 30:
        raise Violation(f"thirty rounds are looked at: {event}")
    beats.rounds(HOUR_S // ROUND_S - 15)
    if len(beats.told) > 1:
        raise Violation(f"it is said again within an hour: {beats.told}")
    beats.rounds(30)
    if len(beats.told) != 2:
        raise Violation(f"{beats.name} is still late after an hour: {beats.told}")


def _fills(beats: Beats) -> None:
    """It has so much left, and loses the same every second."""
    chance = beats.chance
    lasts_s = chance.randrange(900, 1300)
    each = WHOLE // 6 // lasts_s
    beats.free = each * lasts_s
    begun_s = beats.now_s
    for _ in range(lasts_s - 30):
        beats.free -= each
        beats.second()
    event = beats.the_only("filling", grave=False)
    said_s = beats.told[0][0] - begun_s
    left_s = lasts_s - said_s
    if not SOON_S - 60 < left_s < SOON_S + 60 and not 0 <= said_s - KNOWN_S <= 2 * ROUND_S:
        raise Violation(f"{left_s} s are left, after {said_s} s it is said {event}")
    minutes, free = int(event.text.split("about ")[1].split()[0]), each * left_s
    if abs(60 * minutes - left_s) > 60 or f"{free / 1e9:.1f} of" not in event.text:
        raise Violation(f"{left_s} s are left, {free} bytes: {event}")


def _wanders(beats: Beats) -> None:
    """Much is taken, and given back, or less and less is; or what is left is no matter."""
    percent = WHOLE // 100
    ways: list[Callable[[int], float]] = [
        lambda at: 50 - at / 80,
        lambda at: 17 - (at % 500) / 60,
        lambda at: 3 + (15 - at / 120) * (at % 100) / 100,
        lambda at: 18 - 15 * (at % 100) / 100 * at / 1500,
    ]
    way = beats.chance.choice(ways)
    for second in range(1500):
        beats.free = round(percent * way(second))
        beats.second()
    beats.nothing()


def _creeps(beats: Beats) -> None:
    """Its steps become longer beside those of others, by 8 %; by 3 % is no matter."""
    chance, look, name = beats.chance, beats.look, beats.name
    usual, rank = 100_000.0, Rank(beats.job.seats.index(name))
    for_good = chance.choice((0.9, 1.0, 1.2))
    more = {"creeps": 0.08, "hardly": 0.03, "quicker": -0.08}[beats.how]
    for at in (MachineId("m98"), name):  # On another machine it was another.
        for _ in range(BLOCK * USUAL_BLOCKS):
            look.took(at, rank, usual * for_good * (1.5 if at != name else 1.0), usual)
    for blocks in range(1, 3 * CREEPS_BLOCKS):
        for _ in range(BLOCK):
            look.took(name, rank, usual * (for_good + more), usual)
        before = len(beats.told)
        beats.rounds(1)
        if len(beats.told) > before and not 0 <= blocks - CREEPS_BLOCKS <= 1:
            raise Violation(f"after {blocks} blocks of steps it is said {beats.told[-1]}")
    if beats.how != "creeps":
        beats.nothing()
        return
    event = beats.the_only("creeps", grave=False)
    if f"rank {rank} " not in event.text or " 8% longer" not in event.text:
        raise Violation(f"rank {rank} takes 8 % longer: {event}")


def _repeats(beats: Beats) -> None:
    """Five of five on one of eight machines are no chance, four are; nor are those of the script,
    of more than an hour ago, or planned."""
    chance, name = beats.chance, beats.name
    beats.rounds(2)
    now_us = beats.now_s * SECOND_US
    counts = [_incident(number, name, now_us - number * SECOND_US) for number in range(1, 6)]
    why = chance.choice(("", "", "planned", "script", "old", "other", "few"))
    fifth = counts[-1]
    match "planned" if beats.how == "moves" else why:
        case "planned":
            fifth = replace(fifth, kind=Kind.MOVE)
        case "script":
            fifth = replace(fifth, cause=f"{name}: rank 1 raised ValueError")
        case "old":
            fifth = replace(fifth, marks={"heard": now_us - (HOUR_S + 60) * SECOND_US})
        case "other":
            fifth = replace(fifth, machine=next(one for one in beats.job.seats if one != name))
    counts[-1] = fifth
    told = why == "" and beats.how == "repeats"
    if why == "few" and beats.how == "repeats":
        counts.pop()
    beats.job = replace(beats.job, incidents=tuple(reversed(counts)))
    beats.rounds(3)
    if not told:
        beats.nothing()
        return
    event = beats.the_only("repeats", grave=True)
    if not event.text.startswith("5 incidents"):
        raise Violation(f"5 incidents have begun on {name}: {event}")


def _incident(number: int, machine: MachineId, at_us: int) -> Incident:
    return Incident(
        number=number, kind=Kind.RECOVERY, machine=machine, joiner=None, ranks=(),
        cause=f"{machine} was lost: its link has ended", rung=1, epoch=Epoch(number),
        outcome=Outcome.DONE, marks={"heard": at_us},
    )  # fmt: skip


ACTS = {
    "late": _late, "all late": _late, "fills": _fills, "wanders": _wanders, "creeps": _creeps,
    "hardly": _creeps, "quicker": _creeps, "repeats": _repeats, "moves": _repeats,
}  # fmt: skip


def play(chance: random.Random) -> None:
    """Eight machines, or a few, of which one does something."""
    beats = Beats(chance, chance.choice(HOW))
    ACTS[beats.how](beats)
    if chance.random() < 0.2:
        beats.job, beats.told = replace(beats.job, phase=Phase.ENDING), []
        beats.rounds(2)
        beats.nothing()
