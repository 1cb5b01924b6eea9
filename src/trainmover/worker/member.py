# SPDX-License-Identifier: Apache-2.0
"""A live rank's runtime: the step as a transaction.

The step (design: "the step is a transaction"):

    run_step   remember what a retry needs; run the function; on an abort put back and run it again
    gate       in the first optimizer.step(): record safe with the buddy, then one tiny all-reduce
               over all ranks; whoever comes through knows that step k is committed everywhere.
           What comes behind it is not made again: who is lost there takes all back to a snapshot
    settle     between steps: if a newer epoch was ordered (or a pause agreed), wait for the
               switchover, then train on

Drained collectives give garbage and never raise. So nothing that was computed while the groups
were draining may be believed: the gate is entered only if, under the lock, no newer epoch was
ordered and no group is draining.
"""

import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor

from trainmover.comm import groups
from trainmover.comm.failures import means_lost_device
from trainmover.errors import PeerLost, StateMismatch, UserError
from trainmover.graph.frames import innermost, instruction_of, script_frames
from trainmover.ids import Rank, Step
from trainmover.loops.turns import Retry
from trainmover.protocol.messages import StepsChanged, Warned, WentOn
from trainmover.state import rng
from trainmover.state.arrangement import parted
from trainmover.state.tracked import Tracked
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.draws import Draws, Place
from trainmover.worker.data.loops import Loops
from trainmover.worker.drill import Drills
from trainmover.worker.join.early import KEY, EarlySource
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.keep.later_steps import LaterSteps
from trainmover.worker.keep.rounds import Rounds
from trainmover.worker.keep.script_graph import ScriptGraph
from trainmover.worker.keep.weights import Weights
from trainmover.worker.program import place_of
from trainmover.worker.standing import Unwind
from trainmover.worker.station import Station
from trainmover.worker.step.before import Before
from trainmover.worker.step.boundary import Boundary
from trainmover.worker.step.cut_short import CutShort
from trainmover.worker.step.deposit import Deposit
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.given import Kinds
from trainmover.worker.step.graphs import Graphs
from trainmover.worker.step.keeper import Keeper, Moment
from trainmover.worker.step.ledger import Ledger
from trainmover.worker.step.own_time import OwnTime
from trainmover.worker.step.reported import Reported, place_of_step
from trainmover.worker.step.updates import Updates
from trainmover.worker.watch.footing import Footing


class WayBack(Protocol):
    """Rollback in place; see `join/rollback.py`."""

    @property
    def is_due(self) -> bool: ...
    def fetches(self, frame: FrameType) -> None: ...
    def goes_on(self, frame: FrameType, line: int) -> bool: ...
    def go_back(self, frame: FrameType) -> bool: ...


class LiveStep(NamedTuple):
    """A step that is under way.

    frame        the script's, that makes it
    before       copies of what a second try needs
    groups_made  by the script until it began
    run_twice    what the script has done since it fetched, and must not do twice; "": nothing
    is_sure      False: a loop that may be at its end has begun it
    """

    number: Step
    function: Callable[..., Any]
    frame: FrameType
    before: Before
    groups_made: Any
    run_twice: str
    is_sure: bool


class Member:
    """Runtime behind `Job` for a rank that is live; a joiner has one that is to become it. Main
    thread only, but for `standing`, which the control thread writes.

    is_shadow  its run is in the sandbox: a joiner's, until that is live
    comes_to_gate  the try under way has come there
    updated    the shadow step under way has come to its first update, where a live one has its gate
    tracked    what the script has named
    loops      over data that it is in; `draws` it has made from them
    ledger     rows that are committed and not yet told
    boundary   between two steps: where members are exchanged; `gate`: where steps commit
    recording  of its first steps, and what is kept of them; `later_steps` are compared with them
    updates    of the step under way
    deposit    what others hold of it
    calls      the step under way, or the last one that was
    begun      the last one that was tried
    in_step    whether one is under way
    passed     whether that has come through its gate
    is_sure    False: it may be none, see `LiveStep`
    reported   the numbers that it reports
    kinds      of what its step functions give
    own_time   what it takes for its steps itself
    over       the script has ended
    declared   as in `Runtime`
    rollback   in place; None: the rank has none, or its run is over
    """

    deposit: Deposit

    def __init__(self, rank: Rank, station: Station, *, is_shadow: bool = False) -> None:
        self.rank = rank
        self.world_size = station.spec.world_size
        self.is_shadow = is_shadow
        self.updated = False
        self.standing = station.standing
        self.say = station.link.say
        self.snapshots = station.snapshots
        self.footing = Footing(station.pulse)
        self.drills = Drills.from_environment()
        self.calls = self.begun = Step(0)
        self.own_time = OwnTime(groups.waits, lambda: self.gate.peers())
        self.in_step = self.passed = self.over = self.comes_to_gate = False
        self.is_sure = True
        self.declared: list[str] = []
        self.rollback: WayBack | None = None
        self._calls_at_fetch: int | None = None
        self._calls_at_try = 0
        self._listen_to_script(station)
        self._meet_others(station)
        self._make_steps(station)
        self._keep_for_others(station)

    def _listen_to_script(self, station: Station) -> None:
        """What it has, draws and reports."""
        self.tracked = Tracked(calls=lambda: groups.calls)
        self._graphs = Graphs(self.tracked)
        self.loops = Loops()
        self.draws = Draws(self.loops)
        self._known_draws = station.known_draws
        self.reported = Reported()
        self.kinds = Kinds()

    def _meet_others(self, station: Station) -> None:
        """Where ranks wait for each other, between steps and in them."""
        rank = self.rank
        self.ledger = Ledger(rank, self.world_size, self.standing, self.say)
        self.boundary = Boundary(
            rank,
            station,
            self.ledger,
            exchange=lambda: self.tracked.gather_anew(),
            follow=lambda buddy, epoch, further: self.deposit.follow(buddy, epoch, further),
            offer=lambda: self.deposit.offered(),
        )
        self.gate = Gate(
            rank,
            self.world_size,
            standing=self.standing,
            snapshots=station.snapshots,
            drills=self.drills,
            drains=self.boundary.drains,
        )
        self.rounds = Rounds(
            rank,
            station.spec.fingerprint_every,
            gate=self.gate,
            standing=self.standing,
            tainted=self.boundary.tainted,
            say=self.say,
            keep_own=station.snapshots.keep_own if station.spec.snapshot_every != 0 else None,
        )
        self.cut_short = CutShort(rank, self, boundary=self.boundary, gate=self.gate, say=self.say)

    def _make_steps(self, station: Station) -> None:
        """What is recorded of the first ones, and what each one changes."""
        rank = self.rank
        self.keeper = Keeper(station.token, rank)
        self.recording = Recording(
            rank,
            station.spec.nproc,
            tracked=self.tracked,
            gate=self.gate,
            keeper=self.keeper,
            say=self.say,
        )
        self.later_steps = LaterSteps(rank, station.spec.fingerprint_every, self.recording)
        self.updates = Updates(
            rank,
            tracked=self.tracked,
            gate=self.gate,
            recording=self.recording,
            drills=self.drills,
            say=self.say,
            distrust=self.snapshots.distrust,
        )
        self.weights = Weights(rank, self.say)
        self.script_graph = ScriptGraph(
            lambda: self.updates.changes.storages(self.tracked),
            lambda: self.loops.loading(),
            self._say_for_all,
        )

    def _say_for_all(self, text: str) -> None:
        if self.rank == 0 and not self.is_shadow:
            self.say(Warned(rank=self.rank, text=text))

    def _keep_for_others(self, station: Station) -> None:
        """What a buddy holds of the rank, and what a joiner takes."""
        self.deposit = Deposit(
            self.rank,
            station,
            tracked=self.tracked,
            keeper=self.keeper,
            ledger=self.ledger,
            boundary=self.boundary,
            gate=self.gate,
            updates=self.updates,
            recording=self.recording,
        )
        self.early_source = EarlySource(self.tracked, lambda: self.weights.state)
        self.server = station.server
        self.server.offer(KEY, self.early_source.offered, anew=True)

    @property
    def steps(self) -> int:
        """Committed steps; inside one, those before it, also behind its gate."""
        if self.in_step:
            return self.calls - 1
        return self.standing.committed

    # --- the step ---------------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One transaction. Raises what `function` raises, unless drained data made it raise.

        A step called within a step is part of it.
        """
        if self.in_step:
            return function(*args, **kwargs)
        frame = sys._getframe(1)
        step = self.begin_step(function, frame)
        self.script_graph.begin_step(frame, [args, kwargs])
        while True:
            try:
                result = self._attempt(step, args, kwargs)
                break
            except Retry:
                self.begin_again(step)
            except (Exception, SystemExit):
                self.make_none(step)
                raise
        self.end_step(step)
        if self.recording.recorder is not None and self.recording.is_open:
            self.kinds.note(self.reported.code, result)
        return result

    def begin_step(
        self,
        function: Callable[..., Any],
        frame: FrameType,
        *,
        is_sure: bool = True,
    ) -> LiveStep:
        """Begin a step: copy what a second try would need beside the script's graph.

        frame: the script's, that makes it. is_sure: as in `LiveStep`
        """
        number = Step(self.calls + 1)
        run_twice = self._run_twice()
        if run_twice and self.boundary.tainted():
            self.cut_short.cannot_run_again(number, run_twice)
        self.boundary.settle()
        self.draws.check_again(self.rank, number, self._known_draws)
        self._settle_mode()
        before = Before.take(self.tracked)
        if self._graphs.of is not self.tracked.modes:
            self._graphs = Graphs(self.tracked)
        if self._graphs.kept:
            self._graphs.check(number, before.small)
        groups_made = groups.begin_step()
        self.updates.begin_step()
        return LiveStep(number, function, frame, before, groups_made, run_twice, is_sure)

    def begin_again(self, step: LiveStep) -> None:
        """Put back what an aborted try has changed. Raises Unwind where all ranks go back to a
        snapshot, also because that cannot be done here."""
        self.reported.abort(at_gate=self.comes_to_gate)
        groups.await_empty_device()
        self.snapshots.finish()
        groups.roster.disown(step.groups_made)
        common = self.tracked.in_common()
        if why := self.updates.put_back() or step.before.why_not() or step.run_twice:
            self.cut_short.cannot_run_again(step.number, why)
        try:
            step.before.restore(self.tracked)
        except StateMismatch as error:
            self.cut_short.cannot_run_again(step.number, error.happened.rstrip("."))
        if why := self.script_graph.put_back(step.frame):
            self.cut_short.cannot_run_again(step.number, why)
        if why := parted(common, self.tracked.in_common()):
            self.cut_short.cannot_run_again(step.number, f"{why}, and had it no more: keep copies")
        self.updates.begin_again()
        self.boundary.settle()
        self._settle_mode()

    def _run_twice(self) -> str:
        """What the script has done since it fetched for this step, and must not be done again: a
        collective, a change of bulk state. Whoever takes a rank stands at the fetch and does it
        again, on what the others hold who have done it; and those do not."""
        at_fetch, self._calls_at_fetch = self._calls_at_fetch, None
        if changed := self.updates.changed_since_fetch():
            self.cut_short.changed_between(changed)
            return f"{changed} is changed between the fetch of its batch and the step"
        if at_fetch in (None, groups.calls):
            return ""
        return "collectives are made between the fetch of its batch and the step"

    def _settle_mode(self) -> None:
        """Every step of an epoch is made in one mode, the same on all ranks."""
        if self.gate.mode_is_known:
            return
        updates = bool(self.tracked.optimizers)
        while not self.gate.settles_mode(updates=updates) and not self.boundary.closing:
            self.boundary.settle()
        self.updates.mode_settled()

    def _attempt(self, step: LiveStep, args: Any, kwargs: Any) -> Any:
        self.enter_try(step)
        try:
            result = step.function(*args, **kwargs)
            self.reported.returned(result)
            if not self.passed:
                self.pass_gate(returned=True)
            return result
        except Exception as error:
            if means_lost_device(error):
                groups.device_lost(error)
            if not self.may_be_misled:
                raise
            self.await_abort(step.number)  # Garbage made it raise: an abort, never a commit.
        finally:
            self.leave_try()

    def enter_try(self, step: LiveStep) -> None:
        """The script is about to make a step, for the first time or again."""
        self.draws.begin_step()
        self.calls = self.begun = step.number
        self._calls_at_try = groups.calls
        self.updates.try_step(step.number)
        self.deposit.samples.look_ahead(step.number)
        self.recording.begin_step()
        self.later_steps.begin_step(step.number)
        self.reported.begin(step.function)
        self.passed, self.in_step, self.comes_to_gate = False, True, False
        self.cut_short.begin_try()
        self.is_sure = step.is_sure
        if not step.is_sure:
            groups.on_call = lambda: self._makes_sure(step.number)
        self.say_if_past_end(step.number)  # From here on the control thread says it.
        self.footing.enter(step.function)
        if self.drills.planned:
            self.drills.at("compute", step.number)

    def leave_try(self) -> None:
        """The script has made it, or is out of it."""
        self.in_step = False
        self.footing.leave()
        self.updates.end_try()
        self.later_steps.end_try()

    @property
    def may_be_misled(self) -> bool:
        """Whether an exception of the script's may come of what drained collectives gave."""
        return not self.passed and groups.differed is None and self.boundary.soon_tainted()

    def await_abort(self, step: Step) -> NoReturn:
        """Raises Retry once the controller has aborted the step."""
        self.gate.await_verdict(step)
        raise StateMismatch(
            f"Step {step} was ordered to commit although rank {self.rank} had not computed it.",
            means="The job must not go on with this rank.",
            do="Please report this with the job's journal.",
        )

    def enter_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before every `optimizer.step()`."""
        self.snapshots.finish()
        at_gate = self.updates.enter(optimizer, in_step=self.in_step, passed=self.passed)
        if at_gate and self.is_shadow:
            self.updated = True
        elif at_gate:
            self.pass_gate(optimizer)

    def leave_update(self) -> None:
        """Called after every `optimizer.step()`."""
        self.updates.leave(in_step=self.in_step)

    def pass_gate(
        self, applies: torch.optim.Optimizer | None = None, *, returned: bool = False
    ) -> None:
        """Returns when step `calls` is committed everywhere. Raises Retry if it is aborted.

        applies: what makes its update behind this gate; None: none does, or it is made already
        returned: the step has nothing left to do
        """
        step = self.calls
        self.comes_to_gate = True
        self.snapshots.finish()
        self.updates.at_gate()
        if self.reported.again:
            self._check_again(step)
        self.own_time.at_gate()
        if not self._record_is_safe(step, applies, returned) or not self.gate.passes(step):
            self.gate.await_verdict(step)
        self.passed = True
        self.own_time.passed()
        self.updates.passed()
        if self.drills.planned:
            self.drills.at("passed", step)

    def _check_again(self, step: Step) -> None:
        """It is made once more: what it had reported before a machine was lost comes out again, or
        something that it has changed was not put back."""
        if not self.boundary.tainted() and (why := self.reported.differs()):
            where = place_of_step(self.reported.code)
            self.cut_short.cannot_run_again(
                step,
                f"{why}, so something that it changes before its update{where} is not put back",
            )

    def _record_is_safe(
        self, step: Step, applies: torch.optim.Optimizer | None, returned: bool
    ) -> bool:
        return self.deposit.is_safe(
            step,
            applies,
            returned=returned,
            come_through=lambda: groups.come_through(self.boundary.tainted),
        )

    def end_step(self, step: LiveStep) -> None:
        """It is committed, and over."""
        self._after_step(step.number)

    def _after_step(self, step: Step) -> None:
        values = self.reported.numbers()
        if self.reported.again:
            self.reported.committed()
        self.updates.end_step()
        self.weights.due |= self.ledger.first_of is not None
        if self.ledger.first_of is None:
            self.footing.undisturbed()
        self.ledger.commit(step, values, self.draws.samples, self.own_time.took(step))
        self.draws.end_step()
        changed = self._look(step)
        self.rounds.after(step, self.tracked)
        if changed is not None:  # All ranks have looked: a round waits for each.
            self.say(changed)
        if self.recording.end_step(step, updated=self.updates.any_in_step):
            self._finish_recording(step)
        if self.weights.due:
            self._weigh()
        self.cut_short.outside()

    def _look(self, step: Step) -> StepsChanged | None:
        try:
            return self.later_steps.look(step)
        except PeerLost as lost:
            self.deposit.buddy_is_gone(lost)
            return None

    def _finish_recording(self, step: Step) -> None:
        self.weights.due = True
        try:
            self.recording.finish(
                step,
                updates=self.updates.count,
                functions=list(self.footing.functions),
                loaders=self.loops.begun,
                length=self.loops.length(step),
                coverage=self.script_graph.coverage,
            )
        except PeerLost as lost:
            self.deposit.buddy_is_gone(lost)

    def _weigh(self) -> None:
        self.weights.weigh(
            self.tracked,
            snapshot=self.snapshots.nbytes,
            record=self.recording.kept.nbytes,
        )

    def make_none(self, step: LiveStep) -> None:
        """The script has left a step by an exception, which it may catch. One that has committed
        counts, another was none."""
        if self.passed:
            self._after_step(step.number)
        else:
            self.gate.given_up += groups.calls != self._calls_at_try
            self.calls = Step(step.number - 1)
            self.draws.made_none(self.rank, step.number, self._known_draws)

    def say_if_past_end(self, step: Step) -> None:
        """Tell the controller if the script of another rank ended before `step`.

        As a step begins; by the control thread when it hears of the end while one is under way, so
        that whoever is first sees what the other has written.
        """
        ending = self.standing.ending
        if self.is_sure and ending is not None and step > ending:
            self.say(WentOn(rank=self.rank, step=step))

    def _makes_sure(self, step: Step) -> None:
        """The step has made a collective: it is more than the end of a loop."""
        groups.on_call, self.is_sure = None, True
        self.say_if_past_end(step)

    def report(self, values: dict[str, float | Tensor]) -> None:
        """Values of the step under way. Raises UserError outside a step or after its commit."""
        if not self.in_step or self.passed:
            where = place_of(traceback.extract_stack())
            raise UserError(
                f"job.report() was called outside a step, or after its optimizer.step() ({where}).",
                means="The values would not commit with the step.",
                do="Call it in the function marked @job.step, before the optimizer's step(): that "
                "calls a closure behind its commit. Or return the loss: then it is reported.",
            )
        is_own = not self.boundary.tainted()
        for name, value in values.items():  # The script may change its memory behind this.
            if not self.reported.has_room(name):
                text = "" if self.is_shadow else self.reported.told_of_bounds()
                if text:
                    self.say(Warned(rank=self.rank, text=text))
            elif isinstance(value, Tensor):
                self.reported.values[name] = value.detach().clone()
                if is_own and value.requires_grad and value.is_cpu:
                    self.reported.own.add(name)
            else:
                self.reported.values[name] = value

    # --- data -------------------------------------------------------------------------------------

    def begin_loop(self, batches: Batches) -> None:
        """A loop over data begins."""
        batches.watch(self._collectives)
        self.loops.begin(batches)

    def _collectives(self) -> int | None:
        """Begun by this process; unknown while groups are drained, which the control thread does at
        any time."""
        return None if self.boundary.tainted() else groups.calls

    def fetch(self, batches: Batches) -> Any:
        """The next batch: the one place where a planned move stops the ranks.

        Where several fetches make a step, the place that is kept is that of the first: what the
        script holds of their batches no other process has.
        """
        self.recording.fetched(self.calls)
        self.loops.enter(batches)
        if self.drills.planned:
            self.drills.at("fetch", self.calls + 1)
        if not self._settles_at_fetch():
            return self.take_next(batches)
        self.let_go()
        self._mark_fetch()
        self.early_source.look()
        if step := self.standing.cut_here():
            self.weights.due |= not self.snapshots.nbytes
            self.deposit.take_snapshot(step)
        batch = self.take_next(batches)
        self.recording.drew()
        return batch

    def let_go(self) -> None:
        """Have FSDP2 hold no more than its shards: what an evaluation has gathered lies in no
        snapshot. The next forward gathers it again, on all ranks alike."""
        if not self.in_step and self.tracked.is_gathered:
            self.tracked.gather_anew()

    def _settles_at_fetch(self) -> bool:
        """Return once the rank may train; False: it has gone back to what it had at a fetch."""
        frame = innermost(sys._getframe(2))
        if self.rollback is not None:
            self.rollback.fetches(frame)
        try:
            self.boundary.settle(at_fetch=self._mark_fetch)
        except Unwind:
            if self.rollback is None or not self.rollback.go_back(frame):
                raise
            return False
        return True

    def begin_anew(self) -> None:
        """Forget what has come of the steps that are undone: state is about to be loaded."""
        self.boundary.misled = self.boundary.cut_short = False
        self.reported.committed()
        self.draws.end_step()
        self.script_graph.begin_anew()
        self.keeper.graph = self.deposit.latest = None

    def take_next(self, batches: Batches) -> Any:
        """The next batch of the loop just entered, from the place it has."""
        goes_on = self.draws.go_on
        state = rng.capture() if goes_on else self.draws.rng_before
        batch = self.draws.take(batches, state, self.calls, self.standing_at())
        if not goes_on:
            self.updates.fetched()
        self._calls_at_fetch = groups.calls
        return batch

    def take_unmarked(self, batches: Batches, at: list[int]) -> Any:
        """As `take_next`, in the sandbox: no record will say that it was drawn here.

        at: instructions at which the script's frames stand
        """
        return self.loops.take(batches, rng.capture(), self.calls, at)

    @staticmethod
    def standing_at() -> list[int]:
        """Return the instructions at which the script's frames stand, outermost first."""
        frames = script_frames(sys._getframe(1), vars(sys.modules["__main__"]))
        return [instruction_of(frame.f_code, frame.f_lasti) for frame in frames]

    def _mark_fetch(self) -> None:
        """Remember this fetch, and tell the buddy without waiting."""
        if self.draws.go_on:
            return
        moment = Moment(rng.capture(), self.tracked.small_states())
        place = self.place(moment, self.standing_at())
        self.draws.end_step()
        record = self.draws.mark(place, self.ledger.in_doubt)
        record.objects, record.given_up = groups.objects.kept(), self.gate.given_up
        record.graph = self.script_graph.look(sys._getframe(1))
        record.uncarried = self.script_graph.uncarried
        self.keeper.graph = self.script_graph.whole
        self.deposit.tell(record)

    def place(self, moment: Moment, at: list[int]) -> Place:
        """Of the fetch under way. at: instructions at which the script's frames stand"""
        loops, step = self.loops, Step(self.calls + 1)
        positions = loops.positions(self.calls, at)
        beside, listed = loops.beside(), groups.roster.listed()
        return Place(loops.fetches, step, moment, positions, beside, loops.member, listed)

    # --- how it ends ------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop every reference to what the script made; its run is over."""
        self.server.withdraw(KEY)
        self.cut_short.forget()
        self.rollback = None
        self.tracked.clear()
        self._graphs = Graphs(self.tracked)
        self.loops = Loops()
        self.draws = Draws(self.loops)
        self.reported, self.kinds = Reported(), Kinds()
        self.updates.forget()
        self.script_graph.forget()
        self.keeper.graph = None
        self.deposit.forget()
        self.recording.forget()
