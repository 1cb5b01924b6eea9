"""A live rank's runtime: the step as a transaction, and the boundary where members are exchanged.

The step (design: "the step is a transaction"):

    run_step   remember what a retry needs; run the function; on an abort put back and run it again
    gate       in the first optimizer.step(): record safe with the buddy, then one tiny all-reduce
               over all ranks; whoever comes through knows that step k is committed everywhere
    settle     between steps: if a newer epoch was ordered (or a pause agreed), wait for the
               switchover, then train on

Drained collectives give garbage and never raise. So nothing that was computed while the groups
were draining may be believed: the gate is entered only if, under the lock, no newer epoch was
ordered and no group is draining.
"""

import statistics
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    AtBoundary,
    Committed,
    Interrupted,
    JobSpec,
    Recorded,
    Row,
    Switch,
    Switched,
    Warned,
    WentOn,
    WorkerFact,
)
from trainmover.sandbox.record import STEPS, Record, Recorder, blob_name
from trainmover.state import rng
from trainmover.state.encode import encode
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import StateServer
from trainmover.worker.api import number
from trainmover.worker.batches import Batches
from trainmover.worker.before import Before
from trainmover.worker.drill import Drills
from trainmover.worker.keeper import Keeper, Moment, RankRecord
from trainmover.worker.standing import Standing

FLUSH_NS = 250_000_000
"""Committed rows are told in batches this far apart: less work for everybody on the step's path."""

RAISE_GRACE_S = 1.0

GATE = "gate"


class Retry(BaseException):
    """The step is aborted. Not an Exception: a script's `except Exception` lets it pass."""


class Unwind(BaseException):
    """This run of the script is over: the rank lives elsewhere, or the sandbox has seen enough."""


@dataclass
class Loop:
    """A loop over batches that the script is in.

    ordinal   how many began before it: since the last fetch of the loop around it, or of all
    position  just before its last fetch, as `rng` and `calls`, the steps made until then
    begun     loops that began inside since its last fetch
    """

    batches: "weakref.ref[Batches]"
    ordinal: int
    position: Any = None
    rng: bytes = b""
    calls: int = 0
    begun: int = 0
    ended: bool = False

    @property
    def open(self) -> bool:
        """Whether the script may still fetch: a loop that was left by `break` is dropped."""
        return not self.ended and self.batches() is not None


class Member:
    """Runtime behind `Job` for a rank that is live or becomes it. Main thread only, but for
    `standing`, which the control thread writes."""

    is_shadow = False
    switching = False

    def __init__(
        self,
        *,
        rank: Rank,
        spec: JobSpec,
        token: bytes,
        standing: Standing,
        say: Callable[[WorkerFact], None],
        server: StateServer,
        store: Callable[[], Store],
    ) -> None:
        self.rank = rank
        self.world_size = spec.world_size
        self.tracked = Tracked()
        self.standing = standing
        self.say = say
        self.token = token
        self.server = server
        self.store = store
        self.keeper = Keeper(token, rank)
        self.gate_group = groups.private(GATE, rank, spec.world_size)
        self.recorder: Recorder | None = None
        self.record: Record | None = None
        self.drills = Drills.from_environment()
        self.buddy = ""
        self.closing = False
        # The step under way.
        self.calls = Step(0)
        self.begun = Step(0)
        self.in_step = False
        self.passed = False
        self.update_depth = 0
        self.updates = 0
        self.values: dict[str, float | Tensor] = {}
        # Where the script stands in its data.
        self.loops: list[Loop] = []
        self.begun_outermost = 0
        self.top: Moment | None = None
        self.top_step = Step(1)
        self.top_positions: list[list[Any]] = []
        self.latest: RankRecord | None = None
        # Small states at the gate of the last committed step, and at this one.
        self.gate_small: dict[str, bytes] = {}
        self.small_at_gate: dict[str, bytes] = {}
        # Rows and times.
        self.rows: list[Row] = []
        self.flushed_ns = 0
        self.first_of: Epoch | None = None
        self.commit_ns: int | None = None
        self.step_ns: deque[int] = deque(maxlen=64)

    @property
    def steps(self) -> int:
        """Committed steps."""
        return self.standing.committed

    # --- the step ---------------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One transaction. Raises what `function` raises, unless drained data made it raise.

        A step called within a step is part of it.
        """
        if self.in_step:
            return function(*args, **kwargs)
        self.settle()
        step = Step(self.calls + 1)
        self._check_ending(step)
        before = Before.take(self.tracked, args, kwargs)
        while True:
            try:
                result = self._attempt(step, function, args, kwargs)
                break
            except Retry:
                args, kwargs = before.restore(self.tracked)
                self.settle()
            except Exception:
                self._raised_in_step(step)
                raise
        self._after_step(step)
        return result

    def _raised_in_step(self, step: Step) -> None:
        """The script may catch it: a step that has committed counts, another was none."""
        if self.passed:
            self._after_step(step)
        else:
            self.calls = Step(step - 1)

    def _attempt(self, step: Step, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls = self.begun = step
        self.passed, self.values, self.update_depth = False, {}, 0
        if self.recorder is not None:
            self.recorder.begin_step()
        self.in_step = True
        try:
            self.drills.at("compute", step)
            result = function(*args, **kwargs)
            if not self.values and isinstance(result, Tensor) and result.numel() == 1:
                self.values = {"loss": result.detach()}
            if not self.passed:
                self.pass_gate()
            return result
        except Exception:
            if self.passed or not self._soon_tainted():
                raise
            self._await_verdict(step)  # Garbage made it raise: an abort, never a commit.
            raise StateMismatch(
                f"Step {step} was ordered to commit although rank {self.rank} had not computed it.",
                means="The job must not go on with this rank.",
                do="Please report this with the job's journal.",
            ) from None
        finally:
            self.in_step = False

    def enter_update(self) -> None:
        """Called before every `optimizer.step()`: the first one in a step is its gate.

        The depth is for optimizers that hold others; an aborted step leaves it where it was, so
        every attempt starts it anew.
        """
        self.update_depth += 1
        self.updates += 1
        if self.update_depth == 1 and self.in_step:
            if self.passed:
                self._check_second_update()
            else:
                self.pass_gate()
        if self.recorder is not None:
            self.recorder.in_optimizer = True

    def _check_second_update(self) -> None:
        """What is updated after the gate must have been whole before it."""
        recorded = self.recorder is not None and self.recorder.called_since_gate
        if recorded or self._tainted():
            raise UserError(
                "This step made collectives between two updates: only the first was at its gate.",
                means="The second could be made of sums that a lost machine has left half done.",
                do="Give each update its own function marked @job.step (a GAN has two).",
            )

    def leave_update(self) -> None:
        """Called after every `optimizer.step()`."""
        self.update_depth -= 1
        if self.update_depth == 0 and self.recorder is not None:
            self.recorder.in_optimizer = False

    def pass_gate(self) -> None:
        """Returns when step `calls` is committed everywhere. Raises Retry if it is aborted."""
        step = self.calls
        if not self._record_is_safe(step) or not self._enter(step) or not self._agree(step):
            self._await_verdict(step)
        self.passed = True
        if self.recorder is not None:
            self.recorder.called_since_gate = False
        self.drills.at("passed", step)

    def _record_is_safe(self, step: Step) -> bool:
        """Put the record for the step after this one, wait for the buddy's acknowledgement."""
        values = {name: number(name, value) for name, value in self.values.items()}
        self.values = dict(values)
        self.small_at_gate = self.tracked.small_states()
        rows = [*self.rows, Row(step=step, at_us=time.time_ns() // 1000, values=values)]
        now = Moment(rng.capture(), self.small_at_gate)
        assert self.top is not None
        self.latest = RankRecord(
            Step(step + 1), False, self.top_step, self.top_positions, self.top, now, rows
        )
        if self._tainted():
            return False
        try:
            self.keeper.put(self.latest)
            return self.keeper.safe(self._tainted)
        except PeerLost as lost:
            self._broken(f"its buddy is gone: {lost.happened}")
            return False

    def _tainted(self) -> bool:
        """Whether what was computed since the last settle may be garbage.

        After a closing switchover groups drain for good: no step follows, only the script's end.
        """
        return self.standing.pending or (groups.draining and not self.closing)

    def _soon_tainted(self) -> bool:
        """Whether a lost peer can be behind an exception: its loss may be heard a moment later."""
        with self.standing.changed:
            return self.standing.changed.wait_for(self._tainted, RAISE_GRACE_S)

    def _enter(self, step: Step) -> bool:
        with self.standing.changed:
            if self._tainted():
                return False
            self.standing.gate = step
            return True

    def _agree(self, step: Step) -> bool:
        """The gate's all-reduce. True: passed. False: interrupted, the verdict decides."""
        self.drills.at("gate", step)
        flags = torch.tensor([step, -step, self.standing.pause_flag], dtype=torch.int64)
        try:
            self.gate_group.all_reduce(flags, dist.ReduceOp.MAX)
        except Drained:
            return False
        newest, oldest, pause = int(flags[0]), -int(flags[1]), int(flags[2])
        with self.standing.changed:
            if self.standing.pending:
                return False
            if newest != oldest:
                raise UserError(
                    f"Rank {self.rank} is in step {step}, another in step "
                    f"{newest if newest != step else oldest}.",
                    means="The ranks have called a different number of steps; the job ends.",
                    do="Every rank must call the functions marked @job.step equally often.",
                )
            self.standing.committed, self.standing.gate = step, Step(0)
            self.standing.pause_at = max(self.standing.pause_at, Epoch(pause))
        return True

    def _await_verdict(self, step: Step) -> None:
        """Wait for the controller's word on this step. Returns: commit. Raises Retry: abort."""
        standing = self.standing
        with standing.changed:
            while True:
                verdict = standing.verdict
                if standing.pending and verdict is not None and verdict.epoch == standing.ordered:
                    break
                standing.changed.wait()
            entered, standing.gate = standing.gate == step, Step(0)
            if verdict.committed >= step and entered:
                standing.committed = step
                return
            if verdict.committed >= step:
                raise StateMismatch(
                    f"Step {step} was ordered to commit, but rank {self.rank} was not in its gate.",
                    means="The job must not go on with this rank.",
                    do="Please report this with the job's journal.",
                )
        raise Retry

    def _after_step(self, step: Step) -> None:
        values = {name: number(name, value) for name, value in self.values.items()}
        self.gate_small = self.small_at_gate
        now_ns = time.monotonic_ns()
        gap_ns = None if self.commit_ns is None else now_ns - self.commit_ns
        self.commit_ns = now_ns
        self.rows.append(Row(step=step, at_us=time.time_ns() // 1000, values=values))
        if self.first_of is not None:
            self._flush(now_ns, gap_ns=gap_ns)
        else:
            if gap_ns is not None:
                self.step_ns.append(gap_ns)
            if now_ns - self.flushed_ns > FLUSH_NS:
                self._flush(now_ns)
        if self.recorder is not None and step >= STEPS:
            self._finish_record(step)

    def _flush(self, now_ns: int, *, gap_ns: int | None = None) -> None:
        """Tell the controller what was committed; the first time in an epoch with the gap."""
        if not self.rows:
            return
        median = int(statistics.median(self.step_ns)) // 1000 if self.step_ns else None
        self.say(
            Committed(
                rank=self.rank,
                epoch=self.standing.epoch,
                rows=self.rows,
                first=self.first_of is not None,
                gap_us=None if gap_ns is None else gap_ns // 1000,
                median_us=median,
            )
        )
        self.rows, self.flushed_ns, self.first_of = [], now_ns, None

    def _check_ending(self, step: Step) -> None:
        ending = self.standing.ending
        if ending is not None and step > ending:
            self.say(WentOn(rank=self.rank, step=step))

    def report(self, values: dict[str, float | Tensor]) -> None:
        """Values of the step under way. Raises UserError outside a step or after its commit."""
        if not self.in_step or self.passed:
            raise UserError(
                "job.report() was called outside a step, or after its optimizer.step().",
                means="The values would not commit with the step.",
                do="Call it in the function marked @job.step, before the optimizer's step().",
            )
        for name, value in values.items():
            self.values[name] = value.detach() if isinstance(value, Tensor) else value

    # --- data -------------------------------------------------------------------------------------

    def begin_loop(self, batches: Batches) -> None:
        """A loop begins inside of those that have not ended."""
        self.loops = [loop for loop in self.loops if loop.open]
        if self.loops:
            ordinal, self.loops[-1].begun = self.loops[-1].begun, self.loops[-1].begun + 1
        else:
            ordinal, self.begun_outermost = self.begun_outermost, self.begun_outermost + 1
        self.loops.append(Loop(weakref.ref(batches), ordinal))

    def fetch(self, batches: Batches) -> Any:
        """The next batch: the one place where a planned move stops the ranks."""
        self.enter_loop(batches)
        self.drills.at("fetch", self.calls + 1)
        self.settle(at_fetch=True)
        self.mark_top()
        return self.take_next(batches)

    def enter_loop(self, batches: Batches) -> Loop:
        """A batch is fetched: loops inside of this one are over."""
        place = next(i for i, loop in enumerate(self.loops) if loop.batches() is batches)
        self.loops = self.loops[: place + 1]
        loop = self.loops[place]
        loop.begun = 0
        return loop

    def take_next(self, batches: Batches) -> Any:
        """The next batch. A loop that gives none has ended."""
        loop = self.loops[-1]
        if self.is_shadow:
            loop.position, loop.rng = batches.position(), rng.capture()
        else:
            assert self.top is not None
            loop.position, loop.rng = self.top_positions[-1][1], self.top.rng
        loop.calls = self.calls
        try:
            return next(batches)
        except StopIteration:
            loop.ended = True
            raise

    def mark_top(self) -> None:
        """Remember this fetch, and tell the buddy without waiting."""
        self.top = Moment(rng.capture(), self.tracked.small_states())
        self.top_step = Step(self.calls + 1)
        self.top_positions = self._positions()
        self.latest = self._record_at_top()
        if self.keeper_ready and not self._tainted():
            try:
                self.keeper.put(self.latest)
            except PeerLost as lost:
                self._broken(f"its buddy is gone: {lost.happened}")

    def _positions(self) -> list[list[Any]]:
        """Of each loop the script is in, outermost first: ordinal; position, RNG and steps just
        before its last fetch. The innermost is the one that fetches now; its RNG is in `top`."""
        *outer, inner = self.loops
        batches = inner.batches()
        assert batches is not None
        places = [[loop.ordinal, loop.position, loop.rng, loop.calls] for loop in outer]
        return [*places, [inner.ordinal, batches.position(), b"", self.calls]]

    def _record_at_top(self) -> RankRecord:
        assert self.top is not None
        return RankRecord(
            self.top_step, True, self.top_step, self.top_positions, self.top, None, list(self.rows)
        )

    @property
    def keeper_ready(self) -> bool:
        """Whether there is a buddy to tell."""
        return bool(self.buddy)

    # --- the boundary -----------------------------------------------------------------------------

    def settle(self, *, at_fetch: bool = False) -> None:
        """Return when nothing is pending and this rank may train in the epoch in force.

        Raises Unwind if the rank has moved elsewhere, or the job is done.
        """
        if not self._tainted() and not (at_fetch and self.standing.paused):
            return  # The common case takes no lock: a late order is seen at the gate.
        while (epoch := self._await_target(at_fetch)) is not None:
            if at_fetch:
                self.mark_top()
            self.say(AtBoundary(rank=self.rank, epoch=epoch, committed=self.standing.committed))
            order = self._await_switch(epoch)
            if order is not None:
                self._switch(order)

    def _await_target(self, at_fetch: bool) -> Epoch | None:
        """The epoch to switch to: an interruption's once its verdict is out, or a pause's."""
        standing = self.standing
        with standing.changed:
            while True:
                if standing.exit:
                    raise Unwind
                if standing.pending:
                    verdict = standing.verdict
                    if verdict is not None and verdict.epoch == standing.ordered:
                        self._check_committed(verdict.committed)
                        return standing.ordered
                elif not self._tainted():
                    return standing.pause_at if at_fetch and standing.paused else None
                standing.changed.wait()

    def _check_committed(self, committed: Step) -> None:
        if committed != self.standing.committed:
            raise StateMismatch(
                f"Rank {self.rank} has committed step {self.standing.committed}, "
                f"the job step {committed}.",
                means="The job must not go on with this rank.",
                do="Please report this with the job's journal.",
            )

    def _await_switch(self, epoch: Epoch) -> Switch | None:
        """The order to switch; None if a newer epoch came first or the pause was taken back."""
        standing = self.standing
        with standing.changed:
            while True:
                if standing.leave >= epoch or standing.exit:
                    raise Unwind
                if standing.ordered > epoch or standing.discarded >= epoch:
                    return None
                if standing.switch is not None and standing.switch.epoch == epoch:
                    return standing.switch
                standing.changed.wait()

    def _switch(self, order: Switch) -> None:
        """Exchange the members that changed, serve state to those who join, wait for `Go`."""
        key = str(order.epoch)
        if any(source == self.rank for source, _ in order.sources.values()):
            self.server.offer(key, self._offer)
        try:
            if self.rank not in order.sources and self._exchange(order):
                self.say_switched(order.epoch)
            self._await_go(order.epoch)
        finally:
            self.server.withdraw(key)

    def _exchange(self, order: Switch) -> bool:
        """Phase 2 here. False if a newer epoch came first."""
        try:
            self.closing = order.closing
            if not order.closing:
                groups.switchover(order.epoch, self.store())
            self.follow(order.buddies[self.rank])
        except Drained:
            return False
        except PeerLost as lost:
            self._broken(lost.happened, epoch=order.epoch)
            return False
        return True

    def follow(self, buddy: str) -> None:
        """Keep record and first steps with this buddy from now on. Raises PeerLost."""
        self.buddy = buddy
        if self.keeper.follow(buddy, self.latest) and self.record is not None:
            self.keeper.put_blob(blob_name(self.rank), self.record.to_bytes())

    def say_switched(self, epoch: Epoch) -> None:
        """From here on `Go` puts the epoch in force."""
        with self.standing.changed:
            self.standing.switched = epoch
        self.say(Switched(rank=self.rank, epoch=epoch))

    def _await_go(self, epoch: Epoch) -> None:
        """Returns when the epoch is in force, or a newer one was ordered."""
        standing = self.standing
        with standing.changed:
            while standing.epoch < epoch and standing.ordered <= epoch:
                if standing.leave >= epoch or standing.exit:
                    raise Unwind
                standing.changed.wait()
            if standing.epoch == epoch:
                self.first_of = epoch

    def _offer(self) -> tuple[bytes, list[Tensor]]:
        """This rank's state at the boundary, for a joiner: runs in a server thread while the main
        thread waits for `Go`."""
        bulk, tensors = self.tracked.bulk_header()
        record = self.latest.to_bytes() if self.latest is not None else b""
        header = {
            "bulk": bulk,
            "digest": self.tracked.digest(self.tracked.bulk_names()),
            "record": record,
            "gate_small": self.gate_small,
            "small": self._small_at_boundary(),
        }
        return encode(header), tensors

    def _small_at_boundary(self) -> dict[str, bytes]:
        """As it was at the fetch for the next step, if that has been: there the joiner arrives."""
        fetched = self.top is not None and self.top_step == self.standing.committed + 1
        return self.top.small if fetched and self.top else self.tracked.small_states()

    def _broken(self, reason: str, *, epoch: Epoch | None = None) -> None:
        self.say(Interrupted(rank=self.rank, epoch=epoch or self.standing.epoch, reason=reason))

    # --- the record of the first steps ------------------------------------------------------------

    def _finish_record(self, step: Step) -> None:
        """Steps enough: the hook goes, the record goes to the buddy, standbys may warm up."""
        recorder, self.recorder, groups.tap = self.recorder, None, None
        assert recorder is not None
        self._warn_if_idle(step)
        self.record = recorder.finish(step)
        if self.record is None:
            raise UserError(
                f"Rank {self.rank} never waited for a collective it made in its first steps.",
                means="Its first steps cannot be recorded, so no standby could be warmed.",
                do="Wait for the work handles of asynchronous collectives inside the step.",
            )
        data = self.record.to_bytes()
        try:
            self.keeper.put_blob(blob_name(self.rank), data)
        except PeerLost as lost:
            self._broken(f"its buddy is gone: {lost.happened}")
            return
        digest = self.tracked.replica_digest()
        self.say(
            Recorded(
                rank=self.rank, step=step, trace=self.record.trace, digest=digest, bytes=len(data)
            )
        )

    def _warn_if_idle(self, step: Step) -> None:
        optimizers = [n for n, o in self.tracked.items() if isinstance(o, torch.optim.Optimizer)]
        if optimizers and not self.updates and self.rank == 0:
            self.say(
                Warned(
                    rank=self.rank,
                    text=f"{step} steps were made without an optimizer.step() inside: if one is "
                    "made outside the function marked @job.step, it is not protected",
                )
            )

    def forget(self) -> None:
        """Drop every reference to what the script made; its run is over."""
        self.tracked, self.loops, self.top, self.latest = Tracked(), [], None, None
        self.values, self.gate_small = {}, {}
        self.record = None

    def finish(self) -> None:
        """The script has ended: tell the last rows."""
        self._flush(time.monotonic_ns())
