"""A live rank's runtime: the step as a transaction.

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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StateMismatch, UserError
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Recorded, Warned, WentOn
from trainmover.sandbox import layout
from trainmover.sandbox.record import STEPS, Record, blob_name
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.sharing import Share, Stores, share_of
from trainmover.state import rng
from trainmover.state.encode import encode
from trainmover.state.tracked import Tracked
from trainmover.worker import compiled
from trainmover.worker.api import number
from trainmover.worker.batches import Batches
from trainmover.worker.before import Before
from trainmover.worker.boundary import Boundary
from trainmover.worker.drill import Drills
from trainmover.worker.gate import Gate, Retry
from trainmover.worker.keeper import Keeper, Moment, RankRecord
from trainmover.worker.ledger import Ledger, row
from trainmover.worker.loops import Loops
from trainmover.worker.station import Station

RAISE_GRACE_S = 1.0


class Member:
    """Runtime behind `Job` for a rank that is live or becomes it. Main thread only, but for
    `standing`, which the control thread writes.

    latest      what a joiner would need now; None before the first fetch
    gate_small  small states at the gate of the last committed step
    kept        record of its first steps as its buddy keeps it; None: another rank's serves it
    compiled    what was compiled in them, kept beside it; None: nothing was
    """

    is_shadow = False
    switching = False

    def __init__(self, rank: Rank, station: Station) -> None:
        self.rank = rank
        self.world_size = station.spec.world_size
        self.nproc = station.spec.nproc
        self.tracked = Tracked()
        self.standing = station.standing
        self.say = station.link.say
        self.ledger = Ledger(rank, self.standing, self.say)
        self.boundary = Boundary(
            rank, station, self.ledger, follow=self.follow, offer=self._state_for_joiner
        )
        self.drills = Drills.from_environment()
        self.gate = Gate(
            rank,
            self.world_size,
            standing=self.standing,
            drills=self.drills,
            tainted=self.boundary.tainted,
        )
        self.loops = Loops()
        self.keeper = Keeper(station.token, rank)
        self.buddy = ""
        self.latest: RankRecord | None = None
        self.recorder: Recorder | None = None
        self.kept: bytes | bytearray | None = None
        self.compiled: bytes | None = None
        # The step under way.
        self.calls = Step(0)
        self.begun = Step(0)
        self.in_step = False
        self.passed = False
        self.update_depth = 0
        self.updates = 0
        self.values: dict[str, float | Tensor] = {}
        self.gate_small: dict[str, bytes] = {}
        self.small_at_gate: dict[str, bytes] = {}

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
        self.boundary.settle()
        step = Step(self.calls + 1)
        self.say_if_past_end(step)
        before = Before.take(self.tracked, args, kwargs)
        while True:
            try:
                result = self._attempt(step, function, args, kwargs)
                break
            except Retry:
                args, kwargs = before.restore(self.tracked)
                self.boundary.settle()
            except (Exception, SystemExit):
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
            if self.passed or groups.differed is not None or not self._soon_tainted():
                raise
            self.gate.await_verdict(step)  # Garbage made it raise: an abort, never a commit.
            raise StateMismatch(
                f"Step {step} was ordered to commit although rank {self.rank} had not computed it.",
                means="The job must not go on with this rank.",
                do="Please report this with the job's journal.",
            ) from None
        finally:
            self.in_step = False

    def _soon_tainted(self) -> bool:
        """Whether a lost peer can be behind an exception: its loss may be heard a moment later."""
        with self.standing.changed:
            return self.standing.changed.wait_for(self.boundary.tainted, RAISE_GRACE_S)

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
        if recorded or self.boundary.tainted():
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
        if not self._record_is_safe(step) or not self.gate.passes(step):
            self.gate.await_verdict(step)
        self.passed = True
        if self.recorder is not None:
            self.recorder.called_since_gate = False
        self.drills.at("passed", step)

    def _record_is_safe(self, step: Step) -> bool:
        """Put the record for the step after this one, wait for the buddy's acknowledgement."""
        values = {name: number(name, value) for name, value in self.values.items()}
        self.values = dict(values)
        self.small_at_gate = self.tracked.small_states()
        rows = [*self.ledger.rows, row(step, values)]
        now = Moment(rng.capture(), self.small_at_gate)
        assert self.latest is not None
        self.latest = replace(self.latest, step=Step(step + 1), complete=False, now=now, rows=rows)
        if self.boundary.tainted():
            return False
        try:
            self.keeper.put(self.latest)
            return self.keeper.safe(self.boundary.tainted)
        except PeerLost as lost:
            self._buddy_is_gone(lost)
            return False

    def _after_step(self, step: Step) -> None:
        values = {name: number(name, value) for name, value in self.values.items()}
        self.gate_small = self.small_at_gate
        self.ledger.commit(step, values)
        if self.recorder is not None and step >= STEPS:
            self._finish_record(step)

    def say_if_past_end(self, step: Step) -> None:
        """Tell the controller if the script of another rank ended before `step`.

        As a step begins; by the control thread when it hears of the end while one is under way.
        """
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
        """A loop over data begins."""
        self.loops.begin(batches)

    def fetch(self, batches: Batches) -> Any:
        """The next batch: the one place where a planned move stops the ranks."""
        self.loops.enter(batches)
        self.drills.at("fetch", self.calls + 1)
        self.boundary.settle(at_fetch=self._mark_fetch)
        self._mark_fetch()
        return self.take_next(batches)

    def take_next(self, batches: Batches) -> Any:
        """The next batch of the loop just entered, from the place `latest` has."""
        assert self.latest is not None
        place, top = self.latest.positions[-1], self.latest.top
        return self.loops.take(batches, place[1], top.rng, self.calls)

    def _mark_fetch(self) -> None:
        """Remember this fetch, and tell the buddy without waiting."""
        top = Moment(rng.capture(), self.tracked.small_states())
        step, positions = Step(self.calls + 1), self.loops.positions(self.calls)
        self.latest = RankRecord(step, True, step, positions, top, None, list(self.ledger.rows))
        if self.buddy and not self.boundary.tainted():
            try:
                self.keeper.put(self.latest)
            except PeerLost as lost:
                self._buddy_is_gone(lost)

    # --- what others hold of this rank ------------------------------------------------------------

    def follow(self, buddy: str) -> None:
        """Keep record and first steps with this buddy from now on. Raises PeerLost."""
        self.buddy = buddy
        if self.keeper.follow(buddy, self.latest):
            self._put_kept()

    def _put_kept(self) -> None:
        """Have the buddy keep what standbys need. Raises PeerLost."""
        if self.kept is not None:
            self.keeper.put_blob(blob_name(self.rank), self.kept)
            if self.compiled is not None:
                self.keeper.put_blob(compiled.blob_name(self.rank), self.compiled)

    def _buddy_is_gone(self, lost: PeerLost) -> None:
        self.boundary.broken(f"its buddy is gone: {lost.happened}")

    def _state_for_joiner(self) -> tuple[bytes, list[Tensor]]:
        """This rank's state at the boundary, where it waits for `Go`."""
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
        fetched = self.latest is not None and self.latest.top_step == self.standing.committed + 1
        return self.latest.top.small if self.latest and fetched else self.tracked.small_states()

    def _finish_record(self, step: Step) -> None:
        """Steps enough: the hook goes, the record goes to the buddy, standbys may warm up."""
        recorder, self.recorder, groups.tap = self.recorder, None, None
        assert recorder is not None
        self._warn_if_idle(step)
        record = recorder.finish(step, self.tracked.signature())
        if record is None:
            raise UserError(
                f"Rank {self.rank} never waited for a collective it made in its first steps.",
                means="Its first steps cannot be recorded, so no standby could be warmed.",
                do="Wait for the work handles of asynchronous collectives inside the step.",
            )
        share = self._share(record)
        self.kept = _stored(record, share)
        self.compiled = compiled.packed() if self.kept is not None else None
        try:
            self._put_kept()
        except PeerLost as lost:
            self._buddy_is_gone(lost)
            return
        self.say(
            Recorded(
                rank=self.rank,
                step=step,
                trace=record.trace,
                digest=self.tracked.replica_digest(),
                signature=record.signature,
                record_of=Rank(share.base) if share.stores is Stores.NOTHING else None,
                bytes=0 if self.kept is None else len(self.kept),
                bytes_full=layout.bytes_full(record),
                held_bytes=record.held_bytes,
            )
        )

    def _share(self, record: Record) -> Share:
        """All ranks have committed the same step, so all ask here, and get the same answer.

        If they are interrupted some may have none: a rank that does not know stores all it has.
        """
        kind, own = record.kind(), record.own()
        mine = torch.frombuffer(bytearray(kind + own), dtype=torch.int64)
        try:
            rows = self.gate.gather(mine)
        except Drained:
            return Share(Stores.WHOLE, self.rank)
        hashes = [row.numpy().tobytes() for row in rows]
        half = len(kind)
        kinds, owns = [each[:half] for each in hashes], [each[half:] for each in hashes]
        return share_of(self.rank, kinds, owns, self.nproc)

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
        self.tracked, self.loops, self.latest = Tracked(), Loops(), None
        self.values, self.gate_small = {}, {}
        self.kept = self.compiled = None


def _stored(record: Record, share: Share) -> bytes | None:
    """What a rank puts into the vault as its part."""
    match share.stores:
        case Stores.WHOLE:
            return layout.to_bytes(record)
        case Stores.SMALL:
            return layout.to_bytes(record.without_large(share.base))
        case Stores.NOTHING:
            return None
