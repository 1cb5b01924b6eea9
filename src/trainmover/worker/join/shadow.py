# SPDX-License-Identifier: Apache-2.0
"""A run of the script in the sandbox: shadow steps, and the fetch where it stands behind them.

Collectives are served from the record. After as many steps as are recorded the run stands at a
fetch, and stays there, in case its rank is lost, until it is bound or the process has other work.
A warm-up is unwound there.
"""

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Held, Parked, Records
from trainmover.sandbox.process.memory import device_bytes, private_bytes
from trainmover.sandbox.process.opened import Opened
from trainmover.sandbox.process.overlay import Overlay
from trainmover.sandbox.record import Record
from trainmover.sandbox.replayer import Replayer
from trainmover.state.rehearsal import rehearse
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.lookout import Lookout
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.repeat import Repeat
from trainmover.worker.keep.first_steps import STEPS_MAX, FirstSteps
from trainmover.worker.member import Member
from trainmover.worker.standing import Unwind
from trainmover.worker.step.given import number_of
from trainmover.worker.step.keeper import RankRecord

TRIAL_S = 30.0
"""For a trial: its standby takes longer to be bound meanwhile. Who takes the rank in earnest would
need that time, too."""


def never_due(rank: Rank, record: RankRecord) -> bool:
    """Nothing is tried."""
    return False


class Shadow:
    """One run in the sandbox, up to the fetch where it stands. Main thread only, but for what the
    control thread and `Patience` read.

    member      as which it runs
    opened      files, by the script so far
    run         its number: the machine's other workers have the same, no other run has
    bound_for   guarded by the standing's lock: the epoch that needs it; None while none does
    holds       whether it stays at its first step until it is bound; else, unbound, it is a warm-up
    replayer    serves its collectives
    recorded    steps in the record
    steps       made so far, with the one under way
    number      what the last one gave, if it was a number; else NaN
    complete    it has made all its shadow steps: the other workers need nothing more of it
    stands      set once it has come to where it waits; nobody loses patience with one that waits
    known_ms    longest run that this machine has proven; 0: none
    run_ms      until it came to where it waits
    given_up    somebody has: what it still does counts for nothing
    held_bytes  by how much the process has grown in this run, once it stands at its first step
    device_bytes  what torch's allocator holds of its GPU then
    tries       where its rank has come, if it is a warm-up that goes there: see `trial`
    outdated    the same, if it was held and gives way to such a run
    yields      it is of no use but for that: it ends when other work waits
    is_due      whether one is, for a rank that has come to the fetch of that record
    leave_no_traces  called before it sets out
    overlay     where it writes instead, until it is the rank
    lookout     sees what becomes of the rank while the run stands
    refusal     why it must not become the rank, if that is so
    """

    def __init__(
        self,
        member: Member,
        record: Record,
        token: bytes,
        *,
        opened: Opened | None = None,
        run: int = 0,
        bound_for: Epoch | None = None,
        holds: bool = False,
        known_ms: int = 0,
        places: Records | None = None,
        yields: bool = False,
        is_due: Callable[[Rank, RankRecord], bool] = never_due,
        leave_no_traces: Callable[[], None] = lambda: None,
        overlay: Overlay | None = None,
    ) -> None:
        self.member = member
        self.opened = opened or Opened()
        self.run = run
        self.bound_for = bound_for
        self.holds = holds
        self.replayer = Replayer(record)
        self.recorded = record.steps
        self.steps = 0
        self.number = float("nan")
        self.complete = False
        self.stands = threading.Event()
        self.known_ms, self.run_ms = known_ms, 0
        self.given_up, self.yields = False, yields
        self.tries: RankRecord | None = None
        self.outdated: RankRecord | None = None
        self._is_due, self._tries_until_s = is_due, math.inf
        self._leave_no_traces = leave_no_traces
        self.overlay = overlay or Overlay()
        self.held_bytes = self.device_bytes = 0
        self._standing, self._say = member.standing, member.say
        self.lookout = Lookout(member.rank, places or {}, token, self._standing.changed)
        self.refusal = Refusal(member.rank, member.loops, member.script_graph)
        self.repeat = Repeat(member, self.replayer, self.refusal)
        self._bytes_before = private_bytes()
        self._begun_ns = time.monotonic_ns()
        member.recording.kept = FirstSteps(record.blob)
        groups.tap = self.replayer

    @property
    def is_proven(self) -> bool:
        """Whether ranks wait for this run, and this machine has made one before that proved it."""
        return self.bound_for is not None and self.known_ms > 0

    # --- its steps --------------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One shadow step. Raises StateMismatch behind the last that is recorded."""
        member = self.member
        self._count_step(function)
        frame = sys._getframe(1)
        self.repeat.begin_step()
        if 1 < self.steps == self.recorded and not self.is_proven and self.repeat.is_possible:
            self.repeat.make_once(function, args, kwargs, frame)
            member.reported.begin(function)
        member.in_step, member.passed, member.updated = True, False, False
        try:
            with self.repeat.looking():
                result = function(*args, **kwargs)
        except (Exception, SystemExit):
            self._count_none()
            raise
        finally:
            member.in_step = False
            self.replayer.end_step()
        self.repeat.end_step()
        number = number_of(result)
        self.number = float("nan") if number is None else number
        member.kinds.note(member.reported.code, result)
        return result

    def enter_step(self, function: Any) -> None:
        """The script is about to make a step. Raises StateMismatch behind the last recorded."""
        member = self.member
        self._count_step(function)
        member.in_step, member.passed, member.updated = True, False, False

    def leave_step(self) -> None:
        """It has made it, or has left it without an update."""
        self.member.in_step = False
        self.replayer.end_step()
        self._count_none()

    def _count_step(self, function: Callable[..., Any]) -> None:
        if self.is_done:
            raise _no_fetch(self.member.rank, self.recorded)
        self.unwind_if_over()
        self.steps += 1
        self.member.calls = Step(self.steps)
        self.member.reported.begin(function)
        self.replayer.begin_step()

    def _count_none(self) -> None:
        """As in a live run: if the script goes on behind a step without an update, it was none."""
        if not self.member.updated:
            self.steps -= 1
            self.member.calls = Step(self.steps)

    def take_next(self, batches: Batches) -> Any:
        """The next batch of the loop just entered. No record says where that stands: ask it."""
        member = self.member
        return member.take_unmarked(batches, member.standing_at())

    @property
    def is_done(self) -> bool:
        """Whether all shadow steps are made: at the next fetch it parks."""
        return self.steps >= self.recorded

    def trace(self) -> str:
        """Return the trace of its steps."""
        return self.replayer.trace()

    # --- where it stands --------------------------------------------------------------------------

    def park(self) -> Epoch | RankRecord:
        """The epoch that it is bound for, once it is and stands where it waits for the switchover;
        where its rank has come for a warm-up that tries the way there.

        Raises Unwind if none needs it, StateMismatch if it must not become the rank.
        """
        self.run_ms = (time.monotonic_ns() - self._begun_ns) // 1_000_000
        self.complete = True
        self.stands.set()
        self.held_bytes = max(0, private_bytes() - self._bytes_before)
        self.device_bytes = device_bytes()
        self.opened.end()
        self.opened.check()
        self.overlay.check()
        self.replayer.check()
        rehearse(self.member.tracked)
        trace, recording = self.trace(), self.member.recording
        recording.first_trace = trace
        recording.keep(recording.kept.record, self.replayer.step_trace())
        rank, bound_for, bind_ms = self.member.rank, self.bound_for, self.run_ms
        if bound_for is None:
            self.lookout.begin()
            self._foresee()
            if not self.holds:
                return self._set_out()
            bound_for, bind_ms = self._hold(trace), 0
        self._say(Parked(rank=rank, epoch=bound_for, trace=trace, bind_ms=bind_ms))
        return bound_for

    def _set_out(self) -> RankRecord:
        """To where its rank has come. Raises Unwind if that is not to be tried."""
        self.tries = self._due()
        if self.tries is None:
            raise Unwind
        self.yields, self._tries_until_s = True, time.monotonic() + TRIAL_S
        self._leave_no_traces()
        return self.tries

    def _hold(self, trace: str) -> Epoch:
        """Wait until somebody needs it."""
        self._give_way()
        self._say(
            Held(
                rank=self.member.rank,
                trace=trace,
                run_ms=self.run_ms,
                held_bytes=self.held_bytes,
                device_bytes=self.device_bytes,
            )
        )
        return self._await_need()

    def _await_need(self) -> Epoch:
        """The epoch it is bound for at last. Raises StateMismatch if it must not be: better now."""
        standing = self._standing
        while True:
            with standing.changed:
                while self.bound_for is None and not self.lookout.has_seen:
                    if standing.recalled or standing.exit:
                        raise Unwind
                    standing.changed.wait()
                if self.bound_for is not None:
                    self.lookout.end()
                    return self.bound_for
            self._foresee()
            self._give_way()

    def _give_way(self) -> None:
        """To a run that tries the way to where the rank has come, if that is due. Raises Unwind."""
        there = self._due()
        if there is None:
            return
        with self._standing.changed:
            if self.bound_for is None:
                self.holds, self.outdated = False, there
                raise Unwind

    def _due(self) -> RankRecord | None:
        """Where its rank has come, if the way there is to be tried."""
        there = self.refusal.elsewhere
        return there if there is not None and self._is_due(self.member.rank, there) else None

    def _foresee(self) -> None:
        self.refusal.foresee(self.lookout.take())

    # --- when it is over --------------------------------------------------------------------------

    @property
    def is_only_held(self) -> bool:
        """Whether it is held, and no epoch needs it so far. Called under `changed`."""
        return self.holds and self.bound_for is None

    @property
    def waits_for_others(self) -> bool:
        """Whether the machine's other workers may have to do their part before it goes on."""
        return groups.meeting_inside or self.replayer.under_way > 0

    def unwind_if_over(self) -> None:
        """Because other work waits, or one of the machine's other workers has left the run; a trial
        when it takes too long."""
        with self._standing.changed:
            if self.is_only_held and self._standing.recalled:
                raise Unwind
            if self.yields and (self._standing.recalled or self._standing.exit):
                raise Unwind
        if time.monotonic() > self._tries_until_s:
            raise Unwind
        if groups.deserted:
            raise Unwind

    def end(self) -> None:
        """The script has ended: what it opens is no affair of the sandbox any more, and nobody
        looks for the rank's records."""
        self.opened.end()
        self.lookout.end()


def _no_fetch(rank: Rank, steps: int) -> StateMismatch:
    if steps >= STEPS_MAX:
        happened = f"The script makes {steps} steps and more without a fetch from job.batches()"
        return StateMismatch(
            f"{happened}: a standby cannot take over where it does not fetch.",
            means="No standby can be warmed; the job trains on.",
            do="Draw the data of every step from job.batches().",
        )
    return StateMismatch(
        f"Rank {rank} fetched a batch after step {steps}; here the script goes on to "
        "another step without.",
        means="No standby can be warmed; the job trains on.",
        do="Where a script fetches must not depend on time, chance, or what it finds on disk.",
    )
