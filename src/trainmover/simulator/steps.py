"""A rank's steps: compute, have the record safe, pass the gate, update; and what it tells of it."""

import math
from typing import TYPE_CHECKING

from trainmover.ids import Epoch, Step
from trainmover.protocol import messages as m
from trainmover.simulator import rounds, snapshots
from trainmover.simulator.bits import loss
from trainmover.simulator.happenings import Stepped

if TYPE_CHECKING:
    from trainmover.simulator.workers import Worker

RECORDED_AT = 3
STEP_US = 100_000
AGAIN_US = 50_000
"""How soon is tried again what a machine out of reach prevents."""


def begin_step(worker: "Worker") -> None:
    """Compute the next one, or stand at the boundary, or end."""
    if not worker.live or worker.finished or worker.computing or worker.pending or worker.drains:
        return
    if worker.paused:
        worker.said_boundary = worker.pause_at
        at = m.AtBoundary(rank=worker.rank, epoch=worker.pause_at, committed=worker.step)
        worker.say(at)
        return
    if worker.step >= worker.world.training.steps:
        _finish(worker)
        return
    if worker.cut_at == worker.step > 0:
        worker.cut_at = Step(0)
        snapshots.take(worker)
    worker.computing = True
    worker.box.keep(worker, Step(worker.step + 1), worker.epoch, worker.ledger.in_doubt)
    took_us = worker.world.between(STEP_US // 2, STEP_US)
    worker.later(took_us, _computed, worker, worker.step)


def _finish(worker: "Worker") -> None:
    worker.finished = True
    tell_rows(worker)
    digest = f"after {worker.holds.after}"
    worker.say(m.Finished(rank=worker.rank, step=worker.step, code=0, digest=digest, attached=True))


def _computed(worker: "Worker", step: Step) -> None:
    """Into the gate, once the record is safe."""
    if not worker.computing or worker.step != step or worker.stuck:
        return
    if worker.pending or worker.drains:
        return
    rows = [*worker.ledger.in_doubt, _row(worker)]
    if not worker.box.keep(worker, Step(step + 2), worker.epoch, rows):
        worker.later(AGAIN_US, _computed, worker, step)
        return
    worker.computing = False
    worker.gate = Step(step + 1)
    worker.calls += 1
    worker.moved()
    worker.world.training.entered(worker)


def pass_gate(worker: "Worker", step: Step) -> None:
    """It is through; unless an interruption came first."""
    gate = worker.world.training.open.get((worker.epoch, step))
    if gate is None or worker.gate != step or worker.pending or worker.drains:
        return
    worker.pause_at = max(worker.pause_at, gate.pause)
    if gate.cut:
        worker.cut_at = step
    worker.moved()
    commit(worker)
    if gate.hashes:
        rounds.tell(worker, gate)
    begin_step(worker)


def commit(worker: "Worker") -> None:
    """The update is applied."""
    row = _row(worker)
    step, worker.gate, worker.computing = worker.gate, Step(0), False
    holds, worker.step, worker.holds = worker.holds, step, worker.holds.next()
    worker.lived_steps += 1
    worker.world.tell(Stepped(worker, worker.rank, worker.epoch, step, holds.after))
    if worker.pending:
        worker.ledger.rows.append(row)
    else:
        worker.ledger.commit(row, worker.rank, worker.epoch, worker.world.now, worker.say)
    if step == RECORDED_AT:
        _say_recorded(worker)


def _row(worker: "Worker") -> m.Row:
    """Of the step that follows what it holds."""
    step, before = Step(worker.step + 1), worker.holds.after
    value = math.nan if step in worker.world.nan_steps else loss(before)
    return m.Row(step=step, at_us=0, values={"loss": value})


def _say_recorded(worker: "Worker") -> None:
    worker.recorded = True
    digest = f"d{worker.rank}" if worker.world.alone else "d"
    trace = worker.world.program(worker.rank)
    fact = m.Recorded(rank=worker.rank, step=worker.step, trace=trace, digest=digest, bytes=1)
    worker.say(fact)


def tell_rows(worker: "Worker") -> None:
    """Say what was committed since."""
    worker.ledger.tell(worker.rank, worker.epoch, worker.world.now, worker.say)


def run_rank(worker: "Worker", order: m.RunRank) -> None:
    """The script, for real, from its beginning."""
    worker.live, worker.epoch, worker.ordered = True, order.epoch, order.epoch
    worker.rank = worker.world.rank_at(order.slot, worker.local)
    worker.ledger.first_of = Epoch(order.epoch)
    worker.runs += 1
    worker.box.follow(order)
    worker.moved()
    worker.say(m.Attached(rank=worker.rank))
    begin_step(worker)
