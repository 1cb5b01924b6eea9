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
from trainmover.comm.tap import Call
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
        self.target: list[list[Any]] | None = None
        self.reached = 0
        self.travelling: Switch | None = None
        self.own_small: dict[str, bytes] = {}
        self.skip_to = Step(0)
        self.now: Moment | None = None
        self.skipped_values: dict[int, dict[str, float]] = {}
        groups.tap = self.replayer

    @property
    def steps(self) -> int:
        """Committed steps; in the sandbox, shadow steps."""
        if self.travelling is not None:
            return self.calls
        return self.shadow_steps if self.is_shadow else self.standing.committed

    # --- in the sandbox ---------------------------------------------------------------------------

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A shadow step, a step passed over because it is committed, or a live one."""
        if self.in_step:
            return function(*args, **kwargs)
        if self.travelling is not None:
            if self._under_way():
                self.calls = Step(self.calls + (self.reached > 0))
                return torch.tensor(float("nan"))
            if self.calls < self.skip_to:
                return self._pass_over()
            self._arrive(self.travelling)
        if self.is_shadow:
            return self._shadow_step(function, args, kwargs)
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

    def fetch(self, batches: Batches) -> Any:
        """Shadow steps done: unwind a warm-up, park a bound run."""
        if self.travelling is not None:
            return self._fetch_on_the_way(batches)
        if not self.is_shadow:
            return super().fetch(batches)
        self.enter_loop(batches)
        if self.shadow_steps < STEPS:
            return self.take_next(batches)
        if self.bound_for is None:
            raise Unwind
        self._park(self.bound_for)
        if self.travelling is not None:
            return self._fetch_on_the_way(batches)
        return self.take_next(batches)

    # --- from the sandbox to the job --------------------------------------------------------------

    def _park(self, bound_for: Epoch) -> None:
        """Wait for the switchover; a newer epoch while loading means: load again."""
        bind_ms = (time.monotonic_ns() - self.begun_ns) // 1_000_000
        trace = self.replayer.trace()
        self.say(Parked(rank=self.rank, epoch=bound_for, trace=trace, bind_ms=bind_ms))
        done = Epoch(0)
        while self.is_shadow and self.travelling is None:
            order = self._await_order(bound_for, done)
            done = order.epoch
            self._join(order)

    # --- the way to where the rank stood ----------------------------------------------------------
    #
    # The joiner parks at some fetch; the rank may have stood in another loop, or behind committed
    # steps. Then the script runs on, still in the sandbox: loops that are over end at once, those
    # the rank was in go on where it fetched last, committed steps are passed over. What the script
    # does between its steps changes bulk state too (a scheduler's step, an average of weights), so
    # state is taken when the joiner has arrived.

    def _under_way(self) -> bool:
        return self.target is not None and self.reached < len(self.target)

    def _fetch_on_the_way(self, batches: Batches) -> Any:
        loop = self.enter_loop(batches)
        assert self.target is not None
        assert self.travelling is not None
        depth = len(self.loops) - 1
        if not self._under_way():
            self._arrive(self.travelling)
            return super().fetch(batches)
        if depth == self.reached and loop.ordinal == self.target[depth][0]:
            return self._resume_loop(batches, *self.target[depth][1:])
        if depth > self.reached or (depth == self.reached and loop.ordinal < self.target[depth][0]):
            loop.ended = True
            raise StopIteration
        raise StateMismatch(
            f"The script of rank {self.rank} did not come to the loop where the rank had been.",
            means="This machine cannot take the rank.",
            do="Which loops a script runs must depend on tracked state, or on nothing.",
        )

    def _resume_loop(self, batches: Batches, position: Any, state: bytes, calls: int) -> Any:
        batches.resume(position)
        self.calls = Step(calls)
        self.reached += 1
        if self._under_way():
            rng.restore(state)
            return self.take_next(batches)
        assert self.top is not None
        self.tracked.load_small(self.top.small)
        rng.restore(self.top.rng)
        if self.now is None and self.travelling is not None:
            self._arrive(self.travelling)
        return self.take_next(batches)

    def _arrive(self, order: Switch) -> None:
        """Here the rank stood: take its state once more and its place."""
        self.travelling, done = None, order.epoch
        self.own_small = self.tracked.small_states()
        assert self.bound_for is not None
        self._join(order)
        while self.is_shadow:
            order = self._await_order(self.bound_for, done)
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
                if not order.closing and groups.epoch < order.epoch:
                    groups.switchover(order.epoch, self.store())
                taken = taking.result()
            except (Drained, PeerLost) as lost:
                self._give_up(order, lost)
                return
        if self.target is None:
            self._apply(order, taken)
            if self._must_travel():
                self.travelling, groups.tap = order, Silence()
                return
            self._stand_at_top()
        self.tracked.load_small(self._small_on_arrival(taken))  # Bulk has the source's buffers.
        groups.tap = None
        with self.standing.changed:
            self.standing.committed, self.standing.gate = order.committed, Step(0)
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
        if self.latest is not None:
            record = self.latest  # The way led by it, and committed steps are never undone.
        elif source == self.rank:
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
        self.target = record.positions
        self.top, self.top_step = record.top, record.top_step
        self.top_positions, self.latest = record.positions, record
        self.calls, self.skip_to = Step(record.top_step - 1), committed
        self.skipped_values = {row.step: row.values for row in record.rows}
        self.rows = [row for row in record.rows if row.step <= committed]
        self.now = record.now

    def _must_travel(self) -> bool:
        assert self.target is not None
        ordinals = [loop.ordinal for loop in self.loops]
        here = len(ordinals) == 1 and ordinals == [place[0] for place in self.target]
        return not here or self.now is not None

    def _stand_at_top(self) -> None:
        """The rank stood at this very fetch: nothing lies between."""
        assert self.target is not None
        batches = self.loops[0].batches()
        assert batches is not None
        assert self.top is not None
        batches.resume(self.target[0][1])
        self.own_small = self.top.small
        rng.restore(self.top.rng)
        self.reached = 1

    def _small_on_arrival(self, taken: Taken) -> dict[str, bytes]:
        """Small state where the joiner has arrived.

        What comes after the gate in a step (a scheduler's step) is missing in a record from the
        gate. Where the lost rank's object was equal to the source's at that gate, it is a replica:
        take what the source's has become by now.
        """
        if self.now is None:
            return self.own_small
        at_gate, now = taken.header["gate_small"], taken.header["small"]
        return {
            name: now.get(name, own) if at_gate.get(name) == self.now.small.get(name) else own
            for name, own in self.own_small.items()
        }

    def _pass_over(self) -> Any:
        """A step that is committed already: its result is the number it reported."""
        self.calls = Step(self.calls + 1)
        if self.calls == self.skip_to and self.now is not None:
            self.tracked.load_small(self.now.small)
            rng.restore(self.now.rng)
            self.gate_small = self.now.small
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


class Silence:
    """The tap of a joiner on its way: what it calls, the job has called long ago."""

    def serve(self, call: Call) -> bool:
        """Outputs stay as they are."""
        return True

    def done(self, call: Call) -> None:
        """Never called."""


def _in_words(positions: list[list[Any]]) -> str:
    """Where a rank stands in its data, for people: pass and batches of each loop."""
    return "; ".join(
        f"loop {ordinal}: pass {at['pass']}, "
        + ("finished" if at.get("finished") else f"{at['taken']} batches taken")
        for ordinal, at, *_ in positions
    )
