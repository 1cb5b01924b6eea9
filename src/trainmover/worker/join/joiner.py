"""A shadow run, and how it turns into a live rank.

The script runs in the sandbox as a rank, its collectives served from the record. After as many
shadow steps as are recorded it stands at a fetch. A warm-up ends there: `Unwind`. A held run stays
there, in case its rank is lost, until it is bound or the process has other work. A bound run parks
there: when the switchover comes it takes bulk state from its source, its record from the buddy of
the lost rank (or from the leaver itself), its place in the groups, and fetches the job's next
batch. If the rank stood elsewhere, the script goes its `Way` there first.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StateMismatch, TrainmoverError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    Held,
    Loaded,
    Parked,
    Records,
    Switch,
    Unproven,
    Warned,
)
from trainmover.sandbox.memory import private_bytes
from trainmover.sandbox.opened import Opened
from trainmover.sandbox.record import Record
from trainmover.sandbox.replayer import Replayer
from trainmover.state import rng
from trainmover.state.rehearsal import rehearse
from trainmover.state.script.variables import ADVICE, Difference, sentence
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.early import Early
from trainmover.worker.join.going_back import NoneWhole, take_back
from trainmover.worker.join.lookout import Foresight, Lookout
from trainmover.worker.join.taken import Taken, Unlike, take
from trainmover.worker.join.way import Ended, Silence, Way, like
from trainmover.worker.keep.first_steps import STEPS_MAX, FirstSteps
from trainmover.worker.member import Member
from trainmover.worker.standing import Unwind
from trainmover.worker.station import Station
from trainmover.worker.step.keeper import Moment, RankRecord, row_of
from trainmover.worker.step.ledger import Ledger


class Joiner(Member):
    """Runtime of a shadow run.

    opened      files, by the script so far
    run         its number: the machine's other workers have the same, no other run has
    bound_for   guarded by the standing's lock: the epoch that needs it; None while none does
    holds       whether it stays at its first step until it is bound; else, unbound, it is a warm-up
    switching   guarded by the standing's lock: its groups are being connected to peers
    complete    it has made all its shadow steps: the other workers need nothing more of it
    stands      set once it has come to where it waits; nobody loses patience with one that waits
    known_ms    longest run that this machine has proven; 0: none
    run_ms      until it came to where it waits
    given_up    somebody has: what it still does counts for nothing
    held_bytes  by how much the process has grown in this run, once it stands at its first step
    way         to where the rank stood, once its record is known
    travelling  the switchover it takes part in, while it is on that way
    silence     what answers its collectives there
    set_out     what it took of the state before it went that way
    broken_off  of the run before in this process, if all ranks go back: time has passed since
    early       what it takes of its rank's state before the pause of a move
    own_small   what the run's own small objects have come to where it takes state
    lookout     sees what becomes of the rank while the run stands in the sandbox
    refused     why this run must not become the rank, whoever runs it; "" if it may
    """

    is_shadow = True

    def __init__(
        self,
        rank: Rank,
        station: Station,
        record: Record,
        *,
        opened: Opened | None = None,
        run: int = 0,
        bound_for: Epoch | None = None,
        holds: bool = False,
        known_ms: int = 0,
        places: Records | None = None,
    ) -> None:
        super().__init__(rank, station)
        self.token = station.token
        self.recording.kept = FirstSteps(record.blob)
        self.replayer = Replayer(record)
        self.opened = opened or Opened()
        self.steps_recorded = record.steps
        self.run = run
        self.bound_for = bound_for
        self.holds = holds
        self.shadow_steps = 0
        self.known_ms, self.run_ms = known_ms, 0
        self.complete = False
        self.stands = threading.Event()
        self.given_up = False
        self.held_bytes = 0
        self._bytes_before = private_bytes()
        self.begun_ns = time.monotonic_ns()
        self.cancelled = threading.Event()
        self.early = Early(self.tracked, self.token)
        self.way: Way | None = None
        self.travelling: Switch | None = None
        self.set_out: Taken | None = None
        self.silence = Silence()
        self.broken_off: Ledger | None = None
        self.own_small: dict[str, bytes] = {}
        self._result: Any = None  # What a shadow step gave, if it was no tensor.
        self.lookout = Lookout(rank, places or {}, self.token, self.standing.changed)
        self.foresight = Foresight(self.variables, self.loops, self._own_variables)
        self.refused = ""
        groups.tap = self.replayer

    @property
    def steps(self) -> int:
        """Committed steps; in the sandbox, shadow steps."""
        if self.travelling is not None:
            return self.calls
        if self.is_shadow:
            return self.shadow_steps - self.in_step  # The one under way is not committed.
        return super().steps

    # --- in the sandbox ---------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A shadow step, a step passed over because it is committed, or a live one."""
        if self.in_step:
            return function(*args, **kwargs)
        if self.travelling is not None and self.way is not None:
            if self.way.in_loops:
                self.calls = Step(self.calls + (self.way.reached > 0))
                return like(self._result, torch.tensor(float("nan")))
            if self.calls < self.way.committed:
                return self._pass_over(self.way, self.travelling)
            self._arrive(self.travelling)
        if self.is_shadow:
            return self._shadow_step(function, args, kwargs)
        return super().run_step(function, args, kwargs)

    def _shadow_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.shadow_steps >= self.steps_recorded:
            raise self._no_fetch()
        self._unwind_if_over()
        self.shadow_steps += 1
        self.calls = Step(self.shadow_steps)
        self.reported.begin(function)
        self.in_step, self.passed = True, False
        self.replayer.begin_step()
        try:
            result = function(*args, **kwargs)
        finally:
            self.in_step = False
            self.replayer.end_step()
        self._result = None if isinstance(result, Tensor) else result
        return result

    def _no_fetch(self) -> StateMismatch:
        steps = self.steps_recorded
        if steps >= STEPS_MAX:
            happened = f"The script makes {steps} steps and more without a fetch from job.batches()"
            return StateMismatch(
                f"{happened}: a standby cannot take over where it does not fetch.",
                means="No standby can be warmed; the job trains on.",
                do="Draw the data of every step from job.batches().",
            )
        return StateMismatch(
            f"Rank {self.rank} fetched a batch after step {steps}; here the script goes on to "
            "another step without.",
            means="No standby can be warmed; the job trains on.",
            do="Where a script fetches must not depend on time, chance, or what it finds on disk.",
        )

    def pass_gate(self) -> None:
        """There is no gate in the sandbox."""
        if not self.is_shadow:
            super().pass_gate()

    def fetch(self, batches: Batches) -> Any:
        """Shadow steps done: unwind a warm-up, park a bound run."""
        if not self.is_shadow:
            return super().fetch(batches)
        self.loops.enter(batches)
        if self.travelling is None:
            self._unwind_if_over()
            if self.shadow_steps < self.steps_recorded:
                return self.take_next(batches)
            self._park()
        if self.travelling is None or self.way is None:
            return self.take_next(batches)
        return self._fetch_on_the_way(batches, self.travelling, self.way)

    def take_next(self, batches: Batches) -> Any:
        """In the sandbox no record says where the loop stands: ask it."""
        if not self.is_shadow:
            return super().take_next(batches)
        if self.travelling is None or self.way is None or self.way.in_loops:
            batch = self.loops.take(batches, rng.capture(), self.calls)
            self.variables.gave(batch)
            return batch
        if (state := self.way.rng_at_fetch()) is not None:
            rng.restore(state)
            moment = Moment(state, self.way.record.top.small)  # Small state: until `now` is loaded.
            self.draws.pass_by(self.place(moment))
        batch = self.loops.take(batches, rng.capture(), self.calls)
        self.way.check(batches, Step(self.calls + 1))
        self.draws.note(batches)
        self.variables.gave(batch)
        return batch

    # --- on the way to where the rank stood -------------------------------------------------------

    def _fetch_on_the_way(self, batches: Batches, order: Switch, way: Way) -> Any:
        if not way.in_loops:
            if self.calls < way.committed:
                return self.take_next(batches)  # Several fetches make a step.
            self._stand_at_last_fetch(way.record)
            self._arrive(order)
            return super().fetch(batches)
        if way.resumes(self.loops.ordinals):
            if not way.fetched_elsewhere(self.loops.member):
                return self._resume_loop(batches, order, way)
            if self.loops.is_main_or(way.draws_from):
                return self.take_next(batches)  # For a step that is passed over.
        self.loops.fetching.ended = True
        raise StopIteration

    def _resume_loop(self, batches: Batches, order: Switch, way: Way) -> Any:
        _, position, state, calls = way.record.positions[way.reached]
        self.calls = Step(calls)
        way.reached += 1
        if way.in_loops:
            self.loops.resume(position, [])
            rng.restore(state)
            return self.take_next(batches)
        self.loops.resume(position, way.record.beside)
        self.draws.stand_at(way.record)
        top = way.record.top
        self.tracked.load_small(top.small)
        rng.restore(top.rng)
        if way.record.now is None:
            self._arrive(order)
        elif not way.record.reserve:  # Large state is that of now already.
            self._check_variables(way, at_boundary=False)
        return self.take_next(batches)

    def _stand_at_last_fetch(self, record: RankRecord) -> None:
        """Of a rank with batches in reserve: this is the fetch that it stood at."""
        if record.complete and record.now is not None:
            self.tracked.load_small(record.now.small)
            rng.restore(record.now.rng)

    def _pass_over(self, way: Way, order: Switch) -> Any:
        """A step that is committed already: its result is the number it reported.

        No step follows the last one if the script of another rank has ended: what does is live.
        """
        self.calls, self.silence.values = Step(self.calls + 1), 0
        way.passes_over()
        self.draws.begin_step()
        self.draws.end_step()
        now = way.record.now
        if self.calls == way.committed and now is not None:
            self.tracked.load_small(now.small)
            rng.restore(now.rng)
            if not way.record.complete:
                self.deposit.gate_small = now.small
        if self.calls == way.committed and order.closing:
            self._arrive(order)
        return like(self._result, way.result_of(self.calls))

    def arrive_at_the_end(self) -> bool:
        """The script has ended on the way: its rank, the only one, was lost behind its last step.
        Take its place, to say so. False if the rank did not stand there, or a value is missing.

        Raises what `_arrive` does.
        """
        if not self.at_the_end or self.silence.values or self.travelling is None:
            return False
        self._arrive(self.travelling)
        return True

    @property
    def at_the_end(self) -> bool:
        """Whether it has passed over the rank's last step, once the script has ended."""
        way = self.way
        return way is not None and not way.in_loops and self.calls == way.committed

    def _arrive(self, order: Switch) -> None:
        """Here the rank stood: take its state once more and its place."""
        self.travelling = None
        self.own_small = self.tracked.small_states()
        assert self.bound_for is not None
        self._join(order, self.set_out)
        self._join_until(self.bound_for, order.epoch)

    # --- from the sandbox to the job --------------------------------------------------------------

    def _park(self) -> None:
        """Wait for the switchover; a held run first waits for somebody who needs it."""
        run_ms = (time.monotonic_ns() - self.begun_ns) // 1_000_000
        self.complete, self.run_ms = True, run_ms
        self.stands.set()
        self.held_bytes = max(0, private_bytes() - self._bytes_before)
        self.opened.end()
        self.opened.check()
        self.replayer.check()
        rehearse(self.tracked)
        trace = self.replayer.trace()
        self.recording.keep(self.recording.kept.record, self.replayer.step_trace())
        bound_for = self.bound_for
        if bound_for is None:
            self.lookout.begin()
            self._foresee()
            if not self.holds:
                raise Unwind
            self.say(Held(rank=self.rank, trace=trace, run_ms=run_ms, held_bytes=self.held_bytes))
            bound_for, run_ms = self._await_need(), 0
        self.say(Parked(rank=self.rank, epoch=bound_for, trace=trace, bind_ms=run_ms))
        self._join_until(bound_for, Epoch(0))

    def _await_need(self) -> Epoch:
        """The epoch it is bound for at last. Raises StateMismatch if it must not be: better now."""
        standing = self.standing
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

    def _foresee(self) -> None:
        record = self.lookout.take()
        if record is not None:
            self._refuse(self.foresight.differences(record))

    def _own_variables(self) -> bytes:
        return self.variables.capture(full=True)

    def _check_variables(self, way: Way, *, at_boundary: bool) -> None:
        """At the fetch where the rank stood. Raises StateMismatch if a variable of the script is
        another here than there: no step must count that is made with it."""
        batches = self.loops.main.batches()
        ended = batches is not None and batches.at_end
        found = self.variables.differences(
            way.record.variables, self._own_variables(), ended=ended, at_boundary=at_boundary
        )
        self._refuse(found)

    def _refuse(self, differences: list[Difference]) -> None:
        if not differences:
            return
        if self.refused:  # The script has caught it, and goes on.
            raise Unwind
        happened = sentence(self.rank, differences)
        self.refused = f"{happened}: {ADVICE}"
        raise StateMismatch(
            happened,
            means="The script keeps them itself, so no other machine has them.",
            do=f"{ADVICE[0].upper()}{ADVICE[1:]}.",
        )

    @property
    def waits_for_others(self) -> bool:
        """Whether the machine's other workers may have to do their part before it goes on."""
        return groups.meeting_inside or self.replayer.under_way > 0

    def _unwind_if_over(self) -> None:
        """Because other work waits, or one of the machine's other workers has left the run."""
        with self.standing.changed:
            if self.holds and self.bound_for is None and self.standing.recalled:
                raise Unwind
        if groups.deserted:
            raise Unwind

    def _join_until(self, bound_for: Epoch, done: Epoch) -> None:
        """A newer epoch while loading means: load again. Until live, or on the way."""
        while self.is_shadow and self.travelling is None:
            order = self._await_order(bound_for, done)
            done = order.epoch
            self._join(order)

    def _await_order(self, bound_for: Epoch, done: Epoch) -> Switch:
        standing = self.standing
        with standing.changed:
            while True:
                if standing.leave >= bound_for:
                    raise Unwind
                order = standing.switch
                oldest = max(bound_for, done + 1, standing.ordered)  # An earlier life had others.
                if order is not None and order.epoch >= oldest:
                    self.cancelled, self.switching = threading.Event(), True
                    return order
                standing.changed.wait()

    def forget(self) -> None:
        """As any member; nobody looks for the rank's records any more."""
        self.lookout.end()
        super().forget()

    def cancel(self) -> None:
        """Called by the control thread: whatever is being fetched is of no use any more."""
        self.cancelled.set()
        self.early.cancel()

    def take_early(self, source: str) -> None:
        """What of the rank's state does not change, while the job trains; in a thread of its own.
        Without it the pause is longer, and nothing else."""
        try:
            self.early.take(source)
        except PeerLost:
            pass  # The controller knows best who is gone.
        except TrainmoverError as error:
            self.say(Warned(rank=self.rank, text=f"{error.happened} (before the pause of a move)"))

    def _join(self, order: Switch, before: Taken | None = None) -> None:
        """Take state and place; but first go where the rank stood, if that is elsewhere.

        before  what was taken for the same order, if it went there
        """
        taken = self._take_and_connect(order)
        if taken is None:
            return
        if before is not None:
            taken = taken.after(before)
        self.gate.undo_wanted = bool(taken.header["undo"])
        self.updates.changes.early |= bool(taken.header["early"])
        if self.way is None:
            self.way = self._way_to(taken, order.committed)
            if self.way.leads_on_from(self.loops.ordinals, self.loops.member):
                self.travelling, self.set_out = order, taken
                self.silence = groups.tap = Silence()
                groups.roster.travel()
                return
            self._stand_at_fetch(self.way)
        # Bulk has the source's buffers.
        self.tracked.load_small(self.way.small_on_arrival(self.own_small, taken.header))
        ends = order.closing or self.over
        if not ends and (self.way.record.now is None or self.way.record.complete):
            self._check_variables(self.way, at_boundary=True)
        groups.tap = Ended() if ends else None
        groups.roster.arrive()
        with self.standing.changed:
            self.standing.committed, self.standing.gate = order.committed, Step(0)
        certificate = taken.certificate(order, self.rank, self.replayer.trace())
        self.say(Loaded(rank=self.rank, epoch=order.epoch, certificate=certificate))
        try:
            further = order.further.get(self.rank, "")
            self.deposit.follow(order.buddies[self.rank], order.epoch, further)
        except PeerLost as lost:
            self._give_up(order, lost)
            return
        self.boundary.say_switched(order.epoch)
        self.boundary.await_go(order.epoch)
        if self.standing.epoch == order.epoch:
            self.is_shadow = False

    def _take_and_connect(self, order: Switch) -> Taken | None:
        """State and groups at the same time: they share nothing but the processor.

        None if either could not be had.
        """
        self.snapshots.changed(order.snapshot_every)
        if order.back:
            self.snapshots.back_to(order.committed)
        with ThreadPoolExecutor(1, "tm-fetch") as pool:
            taking = pool.submit(self._take_back if order.back else self._take, order)
            try:
                self.boundary.connect(order)
                return taking.result()
            except (Drained, PeerLost) as lost:
                self._give_up(order, lost)  # Ends the fetch too: the pool waits for it.
                return None

    def _take(self, order: Switch) -> Taken:
        return take(
            order,
            self.rank,
            self.tracked,
            token=self.token,
            known=self.deposit.latest,  # The way led by it, and committed steps are never undone.
            early=self.early,
            cancelled=self.cancelled,
            say=self.say,
        )

    def _take_back(self, order: Switch) -> Taken:
        if self.broken_off is not None:
            self.ledger.go_on_from(self.broken_off)
        return take_back(
            order,
            self.rank,
            self.tracked,
            self.snapshots,
            token=self.token,
            cancelled=self.cancelled,
            say=self.say,
        )

    def _give_up(self, order: Switch, lost: Exception) -> None:
        self.cancelled.set()
        if isinstance(lost, Unlike):
            holders, unlike = lost.holders, lost.unlike
            fact = Unproven(rank=self.rank, epoch=order.epoch, holders=holders, unlike=unlike)
            self.say(fact)
        elif self.standing.ordered <= order.epoch:
            unusable = order.committed if isinstance(lost, NoneWhole) else Step(0)
            reason = str(lost).split("\n")[0]
            self.boundary.broken(reason, epoch=order.epoch, unusable=unusable)

    def _way_to(self, taken: Taken, committed: Step) -> Way:
        """Back to the last fetch of the rank; see `keeper` for what is passed over."""
        record = self.deposit.latest = taken.record
        self.deposit.samples.go_on_from(taken.samples)
        self.calls = Step(record.top_step - 1)
        rows = map(row_of, record.rows)
        self.ledger.take_over(row for row in rows if row.step <= committed)
        return Way(self.rank, record, committed)

    def _stand_at_fetch(self, way: Way) -> None:
        """The rank stood at this very fetch: nothing lies between.

        A loader that makes collectives as a pass begins made them long ago.
        """
        top, groups.tap = way.record.top, Silence()
        self.loops.resume(way.record.positions[0][1], way.record.beside)
        self.draws.stand_at(way.record)
        self.own_small = top.small
        rng.restore(top.rng)
        way.reached = 1
