"""One rank's process, reduced to what the controller and other ranks can see of it.

It behaves as the worker room does: position and newer epoch in one moment, record safe before the
gate, a run in the sandbox takes a while, newer work ends it, one that is held is parked at once.
What a process does later is forgotten if it ends, or if it has unwound meanwhile (`life`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Stepped, Violation
from trainmover.simulator.switching import switch

if TYPE_CHECKING:
    from trainmover.simulator.machines import Box

RECORDED_AT = 3
ROWS_MAX = 8
STEP_US = 80_000
AGAIN_US = 50_000
"""How soon is tried again what a machine out of reach prevents."""


class Worker:
    """holds: step after which its state really is; `step`: after which it believes it is."""

    def __init__(self, box: "Box", local: int, pid: int, store: str) -> None:
        self.box, self.local, self.pid, self.store = box, local, pid, store
        self.world = box.world
        self.life = 0
        self.gone = False
        self.stopped = False
        self.stuck = False
        self.deferred: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self.runs = 0
        self.snapshots: dict[Step, tuple[Rank, Step]] = {}  # step -> rank, and what it holds
        self.complete = Step(0)
        self.ordered = Epoch(0)
        self.rank = Rank(-1)
        self.recorded = False
        self.forget()

    def forget(self) -> None:
        """The run of the script is over; the process stays."""
        self.life += 1
        self.live = False
        self.epoch = Epoch(0)
        self.step = self.holds = Step(0)
        self.gate = Step(0)
        self.computing = self.drains = self.finished = False
        self.pause_asked = self.pause_at = self.discarded = Epoch(0)
        self.verdict: m.Verdict | None = None
        self.said_boundary = Epoch(0)
        self.bound_for = Epoch(0)
        self.parked = False
        self.on_way = -1
        self.switched: m.Switch | None = None
        self.exchanged = Epoch(0)
        self.first_of = Epoch(0)
        self.work: m.Order | None = None
        self.work_number = 0
        self.held = Rank(-1)
        self.every = 0
        self.cut_at = Step(0)
        self.rows: list[m.Row] = []
        self.calls = 0
        self.lived_steps = 0
        self.moved_us = self.world.now
        self.stands = ""
        self.ending: m.Ending | None = None

    def __repr__(self) -> str:
        return f"{self.box.name}/{self.local} (rank {self.rank}, step {self.step})"

    # --- time -----------------------------------------------------------------------------------

    def later(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        """Do it then, if this run of the script still goes on."""
        self.box.later(delay_us, self._due, self.life, act, args)

    def _due(self, life: int, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.gone or life != self.life:
            return
        if self.stopped:
            self.deferred.append((life, act, args))
        else:
            act(*args)

    def go_on(self) -> None:
        """The process is not stopped any more."""
        self.stopped = False
        deferred, self.deferred = self.deferred, []
        for life, act, args in deferred:
            self.box.later(0, self._due, life, act, args)

    def hear(self, order: m.Order) -> None:
        """From the agent. Nothing is lost on that way, and nothing overtakes."""
        if self.stopped:
            self.deferred.append((self.life, self.obey_if_here, (order,)))
        else:
            self.obey(order)

    def obey_if_here(self, order: m.Order) -> None:
        if not self.gone:
            self.obey(order)

    # --- what it is -----------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return self.ordered > self.epoch

    @property
    def paused(self) -> bool:
        return self.pause_at > max(self.epoch, self.discarded)

    @property
    def busy(self) -> bool:
        return any(step > self.complete for step in self.snapshots)

    @property
    def wants_cut(self) -> bool:
        if not self.every or self.busy:
            return False
        last = max([0, *(at for at, (of, _) in self.snapshots.items() if of == self.rank)])
        return self.gate - last >= self.every

    # --- orders ---------------------------------------------------------------------------------

    def obey(self, order: m.Order) -> None:
        """Do what is ordered."""
        act = _OBEY.get(type(order))
        if act is not None:
            act(self, order)

    def run_rank(self, order: m.RunRank) -> None:
        self.live, self.epoch, self.ordered = True, order.epoch, order.epoch
        self.rank = Rank(order.slot * self.world.spec.nproc + self.local)
        self.first_of = order.epoch
        self.runs += 1
        self.box.buddies |= order.buddies
        self.moved()
        self.say(m.Attached(rank=self.rank))
        self.begin_step()

    def keep_snapshots(self, order: m.KeepSnapshots) -> None:
        self.every = order.every

    def cut_complete(self, order: m.CutComplete) -> None:
        self.complete = order.step
        self.snapshots = {at: its for at, its in self.snapshots.items() if at >= order.step}

    def write(self, order: m.WriteCheckpoint) -> None:
        """Its part of a checkpoint; a full disk has no room for it."""
        of, holds = self.snapshots.get(order.step, (Rank(-1), Step(-1)))
        there = of == self.rank and not self.world.disk_full
        part = [m.Written(f"{self.rank}.{holds}", 1, "")] if there else []
        refused = "" if there else "No space left on device"
        self.say(
            m.Wrote(rank=self.rank, epoch=order.epoch, step=order.step, state=part, refused=refused)
        )

    def store_at(self, order: m.StoreAt) -> None:
        self.store = order.address

    def prepare(self, order: m.Prepare) -> None:
        self.later(self.world.between(2_000, 60_000), self._prepared, order.epoch, self.store)

    def _prepared(self, epoch: Epoch, store: str) -> None:
        if store == self.world.store:  # Who meets in a store that is dead meets nobody.
            self.say(m.Prepared(rank=self.rank, epoch=epoch))

    def discard(self, order: m.Discard) -> None:
        waits = self._waits_for_pause()
        self.discarded = max(self.discarded, order.epoch)
        if waits and not self.paused and not self.pending:
            self.said_boundary = Epoch(0)
            self.begin_step()

    def _waits_for_pause(self) -> bool:
        return self.live and self.paused and not self.gate and not self.computing

    def pause(self, order: m.PauseAt) -> None:
        self.pause_asked = max(self.pause_asked, order.epoch)

    def interrupt(self, order: m.Interrupt) -> None:
        """Newer epoch and position in one moment."""
        if order.epoch <= self.ordered:
            return
        self.ordered, self.verdict = order.epoch, None
        if self.live:
            self.flush()
            position = m.Position(
                rank=self.rank,
                epoch=order.epoch,
                committed=self.step,
                gate=self.gate,
                finished=self.finished,
            )
            self.say(position)

    def judged(self, order: m.Verdict) -> None:
        self.verdict = order
        if self.live and order.epoch == self.ordered and self.pending:
            self.later(self.world.between(500, 20_000), self._to_boundary, order)

    def _to_boundary(self, order: m.Verdict) -> None:
        """Apply or unwind, then stand between two steps; who is stuck never comes there."""
        if self.verdict is not order or not self.pending or self.stuck:
            return
        if self.gate:
            if order.committed >= self.gate:
                self.commit()
            else:
                self.gate = Step(0)
        self.computing = False
        if order.committed != self.step:
            raise Violation(f"{self} is to stand after step {order.committed}")
        self.flush()
        self.said_boundary = order.epoch
        self.say(m.AtBoundary(rank=self.rank, epoch=order.epoch, committed=self.step))

    def go(self, order: m.Go) -> None:
        epoch, switched = order.epoch, self.switched
        if switched is None or switched.epoch != epoch or self.ordered > epoch:
            return
        if self.exchanged != epoch:
            raise Violation(f"{self} is to train in epoch {epoch} and has not met the others")
        self.epoch, self.live, self.parked, self.on_way = epoch, True, False, -1
        self.ordered = max(self.ordered, epoch)
        self.first_of, self.switched = epoch, None
        self.drains, self.calls = False, 0
        self.said_boundary = Epoch(0)
        self.moved()
        self.begin_step()

    def leave(self, order: m.Leave) -> None:
        in_sandbox = self.parked or self.held >= 0 or self.work is not None
        if not ((in_sandbox and self.bound_for <= order.epoch) or self.live):
            return
        self.flush()
        if self.stuck:
            return  # It never comes out of the script, and says where it stands.
        if self.work is not None:
            self.runs += 1
        self.forget()
        self.later(self.world.between(1_000, 30_000), self.say, m.Left())

    def hear_ending(self, order: m.Ending) -> None:
        self.ending = order

    def exit(self, order: m.Exit) -> None:
        self.box.exited(self, 0)

    # --- in the sandbox -------------------------------------------------------------------------

    def begin(self, order: m.WarmUp | m.Hold | m.Bind) -> None:
        """A run as a rank of the slot; or nothing but to park, if that is what is held."""
        if self.live or self.parked:
            raise Violation(f"{self} is to begin a run and has not left the one before: {order}")
        rank = Rank(order.slot * self.world.spec.nproc + self.local)
        self.rank, held, self.held = rank, self.held, Rank(-1)
        goes_on = isinstance(self.work, m.Hold) and self.work.slot == order.slot
        begun_us = self.world.between(50_000, 400_000)
        self.work = order
        self.work_number += 1
        self.on_way = -1
        if isinstance(order, m.Bind):
            self.bound_for = order.epoch
            if held == rank:
                self.runs -= 1
                begun_us = 1000
            elif goes_on:
                begun_us //= 2
        self.later(begun_us, self._run_through, self.work_number, self.store)

    def _run_through(self, number: int, store: str) -> None:
        """The run comes to its first step, or fails."""
        if number != self.work_number or self.work is None:
            return
        if self.world.spec.nproc > 1 and store != self.world.store:
            return
        order, self.work, rank = self.work, None, self.rank
        self.runs += 1
        program = self.world.program(rank)
        again = self.box.name in self.world.once and self.runs > 1
        if again or (self.box.name, program) in self.world.unfit:
            self.say(m.SandboxFailed(rank=rank, reason="it raised", again=again))
            return
        match order:
            case m.WarmUp():
                self.say(m.Warm(rank=rank, shadow_steps=3, trace=program, warm_ms=1))
            case m.Hold():
                self.held = rank
                self.say(m.Held(rank=rank, trace=program, run_ms=1))
            case m.Bind(epoch=epoch):
                self.parked = True
                self.say(m.Parked(rank=rank, epoch=epoch, trace=program, bind_ms=1))

    # --- steps ----------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Compute the next one, or stand at the boundary, or end."""
        if not self.live or self.finished or self.pending or self.drains or self.computing:
            return
        if self.paused:
            self.flush()
            self.said_boundary = self.pause_at
            self.say(m.AtBoundary(rank=self.rank, epoch=self.pause_at, committed=self.step))
            return
        if self.step >= self.world.training.steps:
            self._finish()
            return
        if self.cut_at == self.step > 0:
            self.cut_at = Step(0)
            self.snapshots[self.step] = (self.rank, self.holds)
            self.box.put_snapshot(self, self.step)
        self.computing = True
        self.box.keep(self, Step(self.step + 1), self.epoch)
        self.later(self.world.between(STEP_US // 2, STEP_US), self._computed, self.step)

    def _finish(self) -> None:
        self.finished = True
        self.flush()
        digest = f"after {self.holds}"
        self.say(m.Finished(rank=self.rank, step=self.step, code=0, digest=digest, attached=True))

    def _computed(self, step: Step) -> None:
        """Into the gate, once the record is safe."""
        if not self.computing or self.step != step or self.pending or self.drains or self.stuck:
            return
        if not self.box.keep(self, Step(step + 2), self.epoch):
            self.later(AGAIN_US, self._computed, step)
            return
        self.computing = False
        self.gate = Step(step + 1)
        self.calls += 1
        self.moved()
        self.world.training.entered(self)

    def pass_gate(self, step: Step) -> None:
        """It is through; unless an interruption came first."""
        gate = self.world.training.open.get((self.epoch, step))
        if gate is None or self.gate != step or self.pending or self.drains:
            return
        self.pause_at = max(self.pause_at, gate.pause)
        if gate.cut:
            self.cut_at = step
        self.moved()
        self.commit()
        self.begin_step()

    def commit(self) -> None:
        """The update is applied."""
        step, self.gate, self.computing = self.gate, Step(0), False
        holds, self.step, self.holds = self.holds, step, Step(self.holds + 1)
        self.lived_steps += 1
        self.world.tell(Stepped(self, self.rank, self.epoch, step, holds))
        self.rows.append(m.Row(step=step, at_us=0, values={"loss": loss(holds)}))
        first = self.first_of == self.epoch and not self.pending
        if first:
            self.first_of = Epoch(0)
            self._say_rows(first=True)
        elif len(self.rows) >= ROWS_MAX:
            self.flush()
        if step == RECORDED_AT:
            self._say_recorded()

    def _say_recorded(self) -> None:
        self.recorded = True
        digest = f"d{self.rank}" if self.world.alone else "d"
        trace = self.world.program(self.rank)
        self.say(m.Recorded(rank=self.rank, step=self.step, trace=trace, digest=digest, bytes=1))

    def flush(self) -> None:
        """Say what was committed since."""
        if self.rows:
            self._say_rows(first=False)

    def _say_rows(self, *, first: bool) -> None:
        rows, self.rows = self.rows, []
        gap = 5 if first else None
        self.say(
            m.Committed(
                rank=self.rank, epoch=self.epoch, rows=rows, first=first, gap_us=gap, median_us=1
            )
        )

    # --- faults ---------------------------------------------------------------------------------

    def peer_lost(self, epoch: Epoch) -> None:
        """A connection to a process of the same epoch has ended: this rank drains."""
        if not self.live or self.epoch != epoch or self.pending or self.drains:
            return
        self.drains = True
        if not self.finished:
            self.say(m.Interrupted(rank=self.rank, epoch=epoch, reason="connection reset"))

    def moved(self) -> None:
        """Something goes on here."""
        self.moved_us = self.world.now
        if self.stands:
            self.stands = ""
            self.say(m.Moves(rank=self.rank, epoch=self.epoch))

    def say(self, fact: m.WorkerFact) -> None:
        """To the agent."""
        self.box.worker_said(self, fact)


def loss(step: Step) -> float:
    """What the step after `step` reports: it depends on the state, as a loss does.

    >>> loss(1) == loss(1) != loss(2)
    True
    """
    return (step * 2654435761 % 1_000_003) / 1000.0


_OBEY: dict[type[m.Order], Callable[[Worker, Any], None]] = {
    m.RunRank: Worker.run_rank,
    m.KeepSnapshots: Worker.keep_snapshots,
    m.CutComplete: Worker.cut_complete,
    m.WriteCheckpoint: Worker.write,
    m.StoreAt: Worker.store_at,
    m.Prepare: Worker.prepare,
    m.Discard: Worker.discard,
    m.PauseAt: Worker.pause,
    m.Interrupt: Worker.interrupt,
    m.Verdict: Worker.judged,
    m.Switch: switch,
    m.Go: Worker.go,
    m.Leave: Worker.leave,
    m.Ending: Worker.hear_ending,
    m.Exit: Worker.exit,
    m.WarmUp: Worker.begin,
    m.Hold: Worker.begin,
    m.Bind: Worker.begin,
}
