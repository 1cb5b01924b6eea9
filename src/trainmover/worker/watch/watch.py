# SPDX-License-Identifier: Apache-2.0
"""A thread that looks, ten times a second, whether the rank still moves.

It reads numbers that are there anyway (steps, gates, collectives begun), so that the step's path
has next to no work with it. Who stands for longer than its deadline is told of once, with where it
stands; the controller compares that with the others (`controller/standstill/hanging.py`).

Inside a step of a function whose steps are known the deadline comes from those (`deadline.py`).
Everywhere else it is a minute: between two steps a script may evaluate, or write a file, for the
first time after a day. A rank that compiles, or whose script has said that this takes long, stands
with good reason; so does one that waits for a change of members, unless it is its script that keeps
the others waiting.

Time is counted in looks: a process that was itself not let run has not stood. And each look leaves
a mark in a file, by which the agent sees that the process still executes Python.
"""

import os
import threading
from collections.abc import Callable, Hashable

from trainmover.comm import groups
from trainmover.ids import Epoch
from trainmover.protocol.messages import Moves, Stands, Watched, WorkerFact
from trainmover.worker.member import Member
from trainmover.worker.watch.deadline import BEFORE_S, LONGER_AGAIN, Deadline
from trainmover.worker.watch.footing import QUICK, Footing, Pulse
from trainmover.worker.watch.sight import CALL, COMPILE, FETCH, SCRIPT, Sight, look

LOOK_S = 0.1
LOOK_AGAIN = 5
TOLD_AGAIN = 10
CHANGED = 1.25
FLOW_BYTES = 32 * 1024
"""If so many come from one look to the next, the call goes on: it is large, or the network slow."""


class Watch:
    """Of one process, for all ranks it will have.

    member  runtime of the script's run; None between runs
    """

    def __init__(
        self,
        member: Callable[[], Member | None],
        say: Callable[[WorkerFact], None],
        pulse: Pulse,
        *,
        false_alarms: float,
    ) -> None:
        self._member = member
        self._say = say
        self._pulse = pulse
        self._false_alarms = false_alarms
        self._deadlines: dict[str, Deadline] = {}
        self._outside = False
        self._longest_outside = 0
        self._looks = 0
        self._main = threading.main_thread()
        self._place: Hashable = None
        self._still = 0
        self._received = 0
        self._said: Sight | None = None
        self._said_in = Epoch(0)
        self._footing: Footing | None = None
        self._steps = 0
        self._unfit = 0
        self._told: tuple[int, str] = (-1, "")
        self._told_at = 0

    def start(self) -> None:
        """Until the process ends."""
        threading.Thread(target=self._run, name="tm-watch", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """One look."""
        self._looks += 1
        self._pulse.beat(self._looks)
        if not self._main.is_alive():
            os._exit(1)  # What ended it is on stderr; a process without it does nothing any more.
        member = self._member()
        if member is None or not member.standing.live or member.over or member.boundary.closing:
            self._place, self._still, self._said = None, 0, None
            return
        self._learn(member)
        declared = member.declared[-1] if member.declared else ""
        self._tell(member, declared)
        place, flows = _place(member), self._flows()
        if place != self._place or declared or flows:
            if self._outside and not declared:
                self._longest_outside = max(self._longest_outside, self._still)
            self._place, self._still, self._outside = place, 0, not member.in_step
            if self._said is not None:
                self._moved(member)
            return
        self._still += 1
        if self._still * LOOK_S > self._limit_s(member):
            self._stood(member)

    def _flows(self) -> bool:
        """Whether a call that has begun brings something, however long it takes."""
        before, self._received = self._received, groups.received()
        return self._received - before >= FLOW_BYTES

    def _limit_s(self, member: Member) -> float:
        """How long the rank may stand where it is."""
        if member.in_step:
            known = self._deadlines.get(member.footing.function)
            return BEFORE_S if known is None else known.seconds
        return max(BEFORE_S, LONGER_AGAIN * LOOK_S * self._longest_outside)

    def _stood(self, member: Member) -> None:
        """Say so, once for each place; it may go from one to another without what is counted."""
        if self._said is not None and self._still % LOOK_AGAIN:
            return
        sight = _seen(self._main.ident or 0)
        own = sight.where in (SCRIPT, FETCH)
        if sight.where == COMPILE or not own:  # The time is not the step's own.
            self._unfit = member.footing.made + 1
        if sight.where == COMPILE or (_held(member) and not own):
            return
        if self._said is None or sight.where != self._said.where:
            self._said, self._said_in = sight, member.standing.epoch
            self._say_stands(member, sight)

    def _say_stands(self, member: Member, sight: Sight) -> None:
        fact = Stands(
            rank=member.rank,
            epoch=self._said_in,
            step=member.calls,
            where=sight.where,
            counts=groups.positions(),
            call=sight.call,
            group=sight.group,
            place=sight.place,
            still_ms=round(self._still * LOOK_S * 1000),
            deadline_ms=round(self._limit_s(member) * 1000),
        )
        self._say(fact)

    def _moved(self, member: Member) -> None:
        self._said = None
        if member.standing.epoch == self._said_in:
            self._say(Moves(rank=member.rank, epoch=self._said_in))

    def _learn(self, member: Member) -> None:
        """Take in the steps since the last look, but for those in which it rightly stood."""
        footing = member.footing
        if footing is not self._footing:
            self._footing, self._steps, self._unfit = footing, 0, 0
        known, self._steps = max(self._steps, self._unfit), footing.made
        if member.declared:
            self._unfit = self._steps + 1
            return
        for name, step_s in footing.newest(self._steps - known):
            if name not in self._deadlines:
                self._deadlines[name] = Deadline(self._false_alarms)
            self._deadlines[name].learn(step_s)
            if self._deadlines[name].seconds < BEFORE_S:
                self._pulse.quick[name] = QUICK

    def _tell(self, member: Member, declared: str) -> None:
        """For the status, when it is another than was told last; at most once a second."""
        before_ms, before = self._told
        quickest_s = min((one.seconds for one in self._deadlines.values()), default=BEFORE_S)
        now_ms = 0 if declared else round(quickest_s * 1000)
        close = now_ms <= before_ms * CHANGED and before_ms <= now_ms * CHANGED
        if declared == before and close:
            return
        if self._looks - self._told_at < TOLD_AGAIN and before_ms >= 0:
            return
        self._told, self._told_at = (now_ms, declared), self._looks
        self._say(Watched(rank=member.rank, deadline_ms=now_ms, paused=declared))


def _held(member: Member) -> bool:
    """Whether a change of members holds the rank."""
    standing = member.standing
    return standing.pending or standing.paused or groups.draining or standing.exit


def _place(member: Member) -> Hashable:
    """What changes when the rank moves."""
    standing = member.standing
    step = (standing.epoch, member.calls, member.in_step, member.passed)
    gate = (standing.committed, standing.gate, member.footing.made)
    return step, gate, tuple(groups.positions().items())


def _seen(thread: int) -> Sight:
    """Where it stands. Frameworks also wait in C++, beneath the script, for calls with a future."""
    sight = look(thread)
    if sight.where == SCRIPT and groups.unfinished:
        return Sight(CALL, "a call in the background", place=sight.place)
    return sight
