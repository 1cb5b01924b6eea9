"""A shadow run, and how it turns into a live rank.

The script runs in the sandbox as a rank, its collectives served from the record. After `STEPS`
shadow steps it stands at a fetch. A warm-up ends there: `Unwind`. A bound run parks there: when
the switchover comes it takes bulk state from its source, its record from the buddy of the lost
rank (or from the leaver itself), its place in the groups, and fetches the job's next batch.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    Certificate,
    JobSpec,
    Loaded,
    Parked,
    Switch,
    WorkerFact,
)
from trainmover.sandbox.record import STEPS, Record, Replayer
from trainmover.state import rng
from trainmover.state.encode import decode
from trainmover.state.transfer import FetchReport, StateServer, fetch
from trainmover.state.vault import VaultClient
from trainmover.worker.batches import Batches
from trainmover.worker.keeper import Moment, RankRecord
from trainmover.worker.member import Member, Unwind
from trainmover.worker.standing import Standing

FETCH_SILENCE_S = 30.0


@dataclass
class Taken:
    """What a joiner got from its source."""

    report: FetchReport
    header: dict[str, Any]
    record: RankRecord
    digest: str


class Joiner(Member):
    """Runtime of a shadow run. `bound_for` None: a warm-up that unwinds after its steps.

    switching  guarded by the standing's lock: its groups are being connected to peers
    """

    is_shadow = True

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
        record: Record,
        bound_for: Epoch | None,
    ) -> None:
        super().__init__(
            rank=rank,
            spec=spec,
            token=token,
            standing=standing,
            say=say,
            server=server,
            store=store,
        )
        self.record = record
        self.replayer = Replayer(record)
        self.bound_for = bound_for
        self.shadow_steps = 0
        self.begun_ns = time.monotonic_ns()
        self.cancelled = threading.Event()
        self.pending_positions: dict[int, Any] = {}
        self.skip_to = Step(0)
        self.now: Moment | None = None
        self.skipped_values: dict[int, dict[str, float]] = {}
        groups.tap = self.replayer

    @property
    def steps(self) -> int:
        """Committed steps; in the sandbox, shadow steps."""
        return self.shadow_steps if self.is_shadow else self.standing.committed

    # --- in the sandbox ---------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A shadow step, a step passed over because it is committed, or a live one."""
        if self.in_step:
            return function(*args, **kwargs)
        if self.is_shadow:
            return self._shadow_step(function, args, kwargs)
        if self.calls < self.skip_to:
            return self._pass_over()
        return super().run_step(function, args, kwargs)

    def _shadow_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.shadow_steps >= STEPS:
            raise StateMismatch(
                f"The script made more than {STEPS} steps before it fetched a batch.",
                means="A standby cannot take over where it does not fetch.",
                do="Draw the data of every step from job.batches().",
            )
        self.shadow_steps += 1
        self.calls = Step(self.shadow_steps)
        self.values, self.in_step, self.passed = {}, True, False
        self.replayer.begin_step()
        try:
            return function(*args, **kwargs)
        finally:
            self.in_step = False

    def pass_gate(self) -> None:
        """There is no gate in the sandbox."""
        if not self.is_shadow:
            super().pass_gate()

    def begin_loop(self, batches: Batches) -> int:
        """A loop that begins after the joiner took its place resumes where the lost rank stood."""
        loop = super().begin_loop(batches)
        if loop in self.pending_positions:
            batches.resume(self.pending_positions.pop(loop))
        return loop

    def fetch(self, loop: int, batches: Batches) -> Any:
        """Shadow steps done: unwind a warm-up, park a bound run."""
        if not self.is_shadow:
            if self.calls < self.skip_to:
                return next(batches)
            return super().fetch(loop, batches)
        if self.shadow_steps < STEPS:
            return next(batches)
        if self.bound_for is None:
            raise Unwind
        self._park(self.bound_for)
        return next(batches)

    # --- from the sandbox to the job --------------------------------------------------------------

    def _park(self, bound_for: Epoch) -> None:
        """Wait for the switchover; a newer epoch while loading means: load again."""
        bind_ms = (time.monotonic_ns() - self.begun_ns) // 1_000_000
        trace = self.replayer.trace()
        self.say(Parked(rank=self.rank, epoch=bound_for, trace=trace, bind_ms=bind_ms))
        done = Epoch(0)
        while self.is_shadow:
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

    def cancel(self) -> None:
        """Called by the control thread: whatever is being fetched is of no use any more."""
        self.cancelled.set()

    def _join(self, order: Switch) -> None:
        """State and groups at the same time: they share nothing but the processor."""
        with ThreadPoolExecutor(1, "tm-fetch") as pool:
            taking = pool.submit(self._take, order)
            try:
                self.closing = order.closing
                if not order.closing:
                    groups.switchover(order.epoch, self.store())
                taken = taking.result()
            except (Drained, PeerLost) as lost:
                self._give_up(order, lost)
                return
        groups.tap = None
        self._apply(order, taken)
        self._say_loaded(order, taken)
        try:
            self.follow(order.buddies[self.rank])
        except PeerLost as lost:
            self._give_up(order, lost)
            return
        self.say_switched(order.epoch)
        self._await_go(order.epoch)
        if self.standing.epoch == order.epoch:
            self.is_shadow = False

    def _give_up(self, order: Switch, lost: Exception) -> None:
        self.cancelled.set()
        if self.standing.ordered <= order.epoch:
            self._broken(str(lost).split("\n")[0], epoch=order.epoch)

    def _take(self, order: Switch) -> Taken:
        """Fetch record and state, straight into this run's own tensors."""
        source, address = order.sources[self.rank]
        headers: list[dict[str, Any]] = []

        def into(data: bytes) -> list[Tensor]:
            headers.append(decode(data))
            return self.tracked.bulk_destinations(headers[0]["bulk"])

        with torch.no_grad():
            report = fetch(
                address,
                token=self.token,
                key=str(order.epoch),
                into=into,
                cancelled=self.cancelled,
                timeout_s=FETCH_SILENCE_S,
            )
            self.tracked.load_bulk_header(headers[0]["bulk"], report.tensors)
        if source == self.rank:
            record = RankRecord.from_bytes(headers[0]["record"])
        else:
            record = self._record_from_vault(order)
        digest = self.tracked.digest(self.tracked.bulk_names())
        return Taken(report, headers[0], record, digest)

    def _record_from_vault(self, order: Switch) -> RankRecord:
        for address in order.records[self.rank]:
            client = VaultClient(address, self.token)
            try:
                found = client.get_record(self.rank, order.committed + 1)
            finally:
                client.close()
            if found is not None:
                return RankRecord.from_bytes(found.data)
        raise PeerLost(f"No vault gave the record of rank {self.rank}.")

    def _apply(self, order: Switch, taken: Taken) -> None:
        """Go back to the last fetch of the rank; see `keeper` for what is passed over."""
        record, committed = taken.record, order.committed
        for loop, batches in enumerate(self.loops):
            batches.resume(record.positions[loop])
        self.pending_positions = {
            loop: at for loop, at in record.positions.items() if loop >= len(self.loops)
        }
        self.tracked.load_small(record.top.small)
        rng.restore(record.top.rng)
        self.top, self.top_step = record.top, record.top_step
        self.top_positions, self.latest = record.positions, record
        self.calls, self.skip_to = Step(record.top_step - 1), committed
        self.skipped_values = {row.step: row.values for row in record.rows}
        self.rows = [row for row in record.rows if row.step <= committed]
        self.now = self._now(taken)
        with self.standing.changed:
            self.standing.committed, self.standing.gate = committed, Step(0)

    def _now(self, taken: Taken) -> Moment | None:
        """State at the end of the last committed step, where the record is from its gate.

        What comes after the gate in a step (a scheduler's step) is missing in that record. Where
        the lost rank's object was equal to the source's at the gate, it is a replica: take what
        the source's has become by the end of the step.
        """
        now = taken.record.now
        if now is None:
            return None
        at_gate, at_end = taken.header["gate_small"], taken.header["end_small"]
        small = {
            name: at_end.get(name, state) if at_gate.get(name) == state else state
            for name, state in now.small.items()
        }
        return Moment(now.rng, small)

    def _pass_over(self) -> Any:
        """A step that is committed already: its result is the number it reported."""
        self.calls = Step(self.calls + 1)
        if self.calls == self.skip_to and self.now is not None:
            self.tracked.load_small(self.now.small)
            rng.restore(self.now.rng)
            self.gate_small = self.end_small = self.now.small
        values = self.skipped_values.get(self.calls, {})
        return torch.tensor(next(iter(values.values()), float("nan")))

    def _say_loaded(self, order: Switch, taken: Taken) -> None:
        certificate = Certificate(
            rank=self.rank,
            source_rank=order.sources[self.rank][0],
            step=order.committed,
            epoch=order.epoch,
            source_digest=taken.header["digest"],
            joiner_digest=taken.digest,
            trace=self.replayer.trace(),
            position=_in_words(taken.record.positions),
            bytes=taken.report.bytes,
            state_ms=taken.report.seconds * 1000.0,
        )
        self.say(Loaded(rank=self.rank, epoch=order.epoch, certificate=certificate))


def _in_words(positions: dict[int, Any]) -> str:
    """Where a rank stands in its data, for people: pass and batches of each loop."""
    return "; ".join(
        f"loop {loop}: pass {at['pass']}, "
        + ("finished" if at.get("finished") else f"{at['taken']} batches taken")
        for loop, at in positions.items()
    )
