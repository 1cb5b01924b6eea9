# SPDX-License-Identifier: Apache-2.0
"""What is done about a machine that is said to be slow, and what is made of how that went."""

import random

from courses.trained import Trained
from trainmover.controller.change import options
from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.policies.stragglers.known import Effect
from trainmover.controller.state import Outcome
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

USUAL_MS, PAUSE_MS, FEW_MS = 100.0, 500.0, 0.4
STEPS_LEFT = 1000


class Course:
    def __init__(self, chance: random.Random, policy: str = "act", length: int = 0) -> None:
        self.chance = chance
        self.job = Trained(
            chance, machines=3, standbys=3, nproc=chance.choice((1, 2)), wait_s=60,
            stragglers=policy,
        )  # fmt: skip
        self.job.length = length
        self.job.trains()

    def found(
        self, slot: int, own_ms: float, kind: str = "machine", peer: int | None = None
    ) -> SlowFound:
        job = self.job.job
        everybody = kind == "everybody"
        event = SlowFound(
            at_us=self.job.now_us,
            epoch=job.epoch,
            machine=None if everybody else job.seats[slot],
            kind=kind,
            ranks=job.spec.ranks(slot),  # type: ignore[arg-type]
            step=Step(40),
            steps=7,
            own_ms=own_ms,
            usual_ms=USUAL_MS,
            peer=None if peer is None else job.seats[peer],
        )
        self.job.hear(event)
        return event

    def measured(self, own_ms: float, *, busier: float = 0.0, old: bool = False) -> None:
        job = self.job.job
        self.job.hear(
            SlowMeasured(
                at_us=self.job.now_us,
                epoch=job.epoch,
                incident=job.stragglers.moves[-1].incident - old,
                own_ms=own_ms,
                usual_ms=USUAL_MS,
                steps=8,
                busier=busier,
            )
        )

    def nothing(self, event: SlowFound, words: str) -> None:
        job = self.job.job
        found = job.stragglers.findings[-1] if job.stragglers.findings else None
        if found is None or found.found != event or words not in found.done:
            raise Violation(f"{event} is to be said, with {words!r}: {found}")
        if job.change is not None or job.cordoned or self.job.told:
            raise Violation(f"nothing is to be done about {event}: {self.job.told}")

    def moves(self, event: SlowFound, slot: int, leaver: MachineId, words: str) -> None:
        """And it is done."""
        job = self.job
        one = job.job.incidents[-1] if job.job.incidents else None
        if one is None or one.machine != leaver or one.outcome is not Outcome.OPEN:
            raise Violation(f"{leaver} was to be moved for {event}: {one}")
        if words not in one.cause or not one.cause.endswith(("steps 34 to 40", "steps 34 to 40)")):
            raise Violation(f"{one.cause!r} is to say {words!r} of {event}")
        more_ms = event.own_ms - event.usual_ms
        left = job.length - 40 if job.length else STEPS_LEFT
        said = {option.name: option.ms for option in one.options}
        if said.get(options.LEAVE) != more_ms * left or said.get(options.STANDBY) != PAUSE_MS:
            raise Violation(f"{left} steps more, each {more_ms} ms longer: {one.options}")
        cordon = job.job.cordoned.get(leaver)
        if cordon is None or not cordon.spared or not cordon.reason.startswith("slow: "):
            raise Violation(f"{leaver} is slow: {cordon}")
        done = job.job.stragglers.findings[-1].done
        if done != f"they are moved to {one.joiner}":
            raise Violation(f"{leaver} is moved to {one.joiner}, and it is said {done!r}")
        job.rests(2)
        if job.job.seats[slot] != one.joiner or leaver in job.job.seats:
            raise Violation(f"{leaver} was to be moved to {one.joiner}: {job.job.seats}")
        move = job.job.stragglers.moves[-1]
        truth = (slot, leaver, one.joiner, one.number, event.own_ms, event.usual_ms, event.kind)
        kept = (
            move.slot, move.leaver, move.joiner, move.incident, move.own_ms, move.usual_ms,
            move.kind,
        )  # fmt: skip
        if kept != truth or move.effect is not Effect.OPEN:
            raise Violation(f"{truth} was moved, and kept is {move}")


def _said_only(chance: random.Random) -> None:
    """It is not one machine, or not worth it, or was not asked for."""
    how = chance.choice(("watch", "rank", "everybody", "little", "late", "old"))
    length = 45 if how == "late" else 0
    course = Course(chance, "watch" if how == "watch" else "act", length)
    slot = chance.randrange(3)
    own_ms = USUAL_MS + FEW_MS if how == "little" else 130.0
    if how == "old":
        before = course.job.job
        course.job.hear(
            SlowFound(
                at_us=1, epoch=Epoch(before.epoch - 1), machine=before.seats[slot], kind="machine",
                ranks=[], step=Step(4), steps=7, own_ms=130.0, usual_ms=USUAL_MS,
            )
        )  # fmt: skip
        if course.job.job.stragglers != before.stragglers or course.job.told:
            raise Violation("what was found in an epoch that is over counts")
        return
    event = course.found(slot, own_ms, how if how in ("rank", "everybody") else "machine")
    words = {
        "watch": "--stragglers act would move them to m4",
        "rank": "they have more to do than others",
        "everybody": "all are, so no machine would be faster",
        "little": f"a move costs 500 ms, and {STEPS_LEFT} steps do not bring that back",
        "late": "a move costs 500 ms, and 5 steps do not bring that back",
    }[how]
    course.nothing(event, words)


def _helps(chance: random.Random) -> None:
    course = Course(chance, length=chance.choice((0, 2000)))
    slot = chance.randrange(3)
    leaver = course.job.job.seats[slot]
    event = course.found(slot, 130.0)
    course.moves(event, slot, leaver, f"{leaver} is slow: 130.0 ms a step of its own, 100.0 of its")
    again = course.found(slot, 130.0)
    if course.job.job.stragglers.findings[-1].done != "they have just come there, and are measured":
        raise Violation(f"{again}: {course.job.job.stragglers.findings[-1]}")
    course.job.told.clear()
    course.measured(130.0, old=True)
    if course.job.job.stragglers.moves[-1].effect is not Effect.OPEN:
        raise Violation("what was measured of another move counts")
    after_ms = chance.choice((100.0, 112.0))
    course.measured(after_ms)
    move = course.job.job.stragglers.moves[-1]
    repaid = round((course.job.gap_us / 1000 - 100.0) / (130.0 - after_ms), 1)
    if (move.effect, move.own_after_ms, move.repaid_steps) != (Effect.HELPED, after_ms, repaid):
        raise Violation(f"30 ms more were, {after_ms - 100} are, repaid by {repaid} steps: {move}")
    note = course.job.job.incidents[-1].note
    if f"it has helped: 130.0 ms of 100.0 usual before, {after_ms} of 100.0 after" not in note:
        raise Violation(f"{move}: {note!r}")
    if leaver not in course.job.job.cordoned or course.job.told:
        raise Violation(f"{leaver} is slow, and may take ranks: {course.job.job.cordoned}")
    course.measured(900.0)
    if course.job.job.stragglers.moves[-1] != move:
        raise Violation("what has been measured is measured again")


def _in_vain(chance: random.Random) -> None:
    """It was the ranks: their machine is free, and they are never moved again."""
    course = Course(chance)
    slot = chance.randrange(3)
    leaver, event = course.job.job.seats[slot], course.found(slot, 130.0)
    course.moves(event, slot, leaver, f"{leaver} is slow")
    own_ms, busier = chance.choice(((128.0, 0.0), (139.0, 0.0), (170.0, 0.9)))
    course.measured(own_ms, busier=busier)
    move = course.job.job.stragglers.moves[-1]
    if move.effect is not Effect.VAIN or course.job.job.cordoned or course.job.job.change:
        raise Violation(f"{own_ms} ms after 130, {busier} of it busier: {move}")
    if not course.job.job.incidents[-1].note.startswith("it was in vain"):
        raise Violation(f"{move}: {course.job.job.incidents[-1].note!r}")
    course.job.settles()
    again = course.found(slot, 140.0)
    course.nothing(again, "a move was in vain before")
    suspected = SlowSuspected(
        at_us=course.job.now_us, epoch=course.job.job.epoch,
        machine=course.job.job.seats[slot], step=Step(50),
    )  # fmt: skip
    course.job.hear(suspected)
    if course.job.orders(m.Hold):
        raise Violation("a standby gets ready for what would not be done")
    other = (slot + 1) % 3
    leaver = course.job.job.seats[other]
    event = course.found(other, 140.0)
    if course.job.job.change is None or course.job.job.incidents[-1].machine != leaver:
        raise Violation(f"{leaver} is slow, whatever another slot's ranks are: {event}")


def _worse(chance: random.Random) -> None:
    """It is moved once more, and the machine that it came to is kept out in its turn."""
    course = Course(chance)
    slot = chance.randrange(3)
    leaver, event = course.job.job.seats[slot], course.found(slot, 130.0)
    course.moves(event, slot, leaver, f"{leaver} is slow")
    joiner = course.job.job.seats[slot]
    course.measured(150.0)
    one, moves = course.job.job.incidents[-1], course.job.job.stragglers.moves
    if moves[0].effect is not Effect.WORSE or len(moves) != 2 or one.machine != joiner:
        raise Violation(f"150 ms after 130: {moves}, {one}")
    if f"{joiner} is slower than {leaver} was: 150.0 ms a step" not in one.cause:
        raise Violation(f"{joiner} is slower than {leaver}: {one.cause}")
    if {*course.job.job.cordoned} != {joiner}:
        raise Violation(f"{joiner} is the slow one: {course.job.job.cordoned}")
    course.job.rests(2)
    if joiner in course.job.job.seats:
        raise Violation(f"{joiner} was to be moved: {course.job.job.seats}")
    third = course.job.job.seats[slot]
    course.measured(190.0)
    if course.job.job.change is not None or course.job.job.seats[slot] != third:
        raise Violation("it is moved a third time")
    if course.job.job.cordoned:
        raise Violation(f"nobody was slow: {course.job.job.cordoned}")


def _way(chance: random.Random) -> None:
    """One end of a way is moved; if that was in vain, the other one."""
    course = Course(chance)
    slot, peer = chance.sample(range(3), 2)
    seats = course.job.job.seats
    event = course.found(slot, 130.0, "network", peer)
    words = (
        f"the way between {seats[slot]} and {seats[peer]} is slow: they wait for each other 30.0"
    )
    course.moves(event, slot, seats[slot], words)
    course.measured(129.0)
    seats = course.job.job.seats
    course.job.settles()
    event = course.found(slot, 130.0, "network", peer)
    one = course.job.job.incidents[-1]
    if one.machine != seats[peer] or course.job.job.change is None:
        raise Violation(f"the move of {seats[slot]} was in vain, {seats[peer]} is next: {one}")


def _suspected(chance: random.Random) -> None:
    """A standby holds the run of who may be slow, if none does."""
    policy = chance.choice(("act", "watch"))
    course = Course(chance, policy)
    slot = chance.randrange(3)
    machine = course.job.job.seats[slot]
    epoch, old = course.job.job.epoch, chance.random() < 0.3
    holds = [one.id for one in course.job.job.machines.values() if one.held == slot]
    suspected = SlowSuspected(
        at_us=course.job.now_us, epoch=Epoch(epoch - old), machine=machine, step=Step(9)
    )
    course.job.hear(suspected)
    held = [order.slot for _, order in course.job.orders(m.Hold)]
    gets_ready = policy == "act" and not old and not holds
    if held != ([slot] if gets_ready else []):
        raise Violation(f"{machine} may be slow, {policy}, {holds} hold its run: {held}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_said_only, _helps, _in_vain, _worse, _way, _suspected))(chance)
