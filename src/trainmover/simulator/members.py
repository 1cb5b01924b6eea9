"""A rank as a member of epochs: it drains, hears the verdict, stands at the boundary, goes, leaves.

As in the worker room: position and newer epoch in one moment; who is stuck never comes to the
boundary.
"""

from typing import TYPE_CHECKING

from trainmover.ids import Epoch, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation
from trainmover.simulator.steps import begin_step, commit, tell_rows

if TYPE_CHECKING:
    from trainmover.simulator.workers import Worker


PATIENCE_MS = 20_000


def prepare(worker: "Worker", order: m.Prepare) -> None:
    delay_us = worker.world.between(2_000, 60_000)
    worker.later(delay_us, _prepared, worker, order.epoch, worker.store)


def _prepared(worker: "Worker", epoch: Epoch, store: str) -> None:
    if store == worker.world.store:  # Who meets in a store that is dead meets nobody.
        worker.say(m.Prepared(rank=worker.rank, epoch=epoch))


def discard(worker: "Worker", order: m.Discard) -> None:
    between = worker.live and not worker.gate and not worker.computing
    waits = between and worker.paused
    worker.discarded = max(worker.discarded, order.epoch)
    if waits and not worker.paused and not worker.pending:
        worker.said_boundary = Epoch(0)
        begin_step(worker)


def pause(worker: "Worker", order: m.PauseAt) -> None:
    worker.pause_asked = max(worker.pause_asked, order.epoch)


def interrupt(worker: "Worker", order: m.Interrupt) -> None:
    """Newer epoch and position in one moment."""
    if order.epoch <= worker.ordered:
        return
    worker.ordered, worker.verdict = order.epoch, None
    if worker.live:
        worker.misled |= worker.between
        position = m.Position(
            rank=worker.rank,
            epoch=order.epoch,
            committed=worker.step,
            gate=worker.gate,
            finished=worker.finished,
            patience_ms=PATIENCE_MS,
        )
        worker.say(position)


def judged(worker: "Worker", order: m.Verdict) -> None:
    worker.verdict = order
    if worker.live and order.epoch == worker.ordered and worker.pending:
        worker.later(worker.world.between(500, 20_000), _to_boundary, worker, order)


def _to_boundary(worker: "Worker", order: m.Verdict) -> None:
    """Apply or unwind, then stand between two steps; who is stuck never comes there."""
    if worker.verdict is not order or not worker.pending or worker.stuck or worker.spins:
        return
    if worker.gate:
        if order.committed >= worker.gate:
            commit(worker)
        else:
            worker.gate = Step(0)
    worker.computing = False
    if order.committed != worker.step:
        raise Violation(f"{worker} is to stand after step {order.committed}")
    worker.said_boundary = order.epoch
    epoch, misled = order.epoch, worker.misled
    worker.say(m.AtBoundary(rank=worker.rank, epoch=epoch, committed=worker.step, misled=misled))


def go(worker: "Worker", order: m.Go) -> None:
    epoch, switched = order.epoch, worker.switched
    if switched is None or switched.epoch != epoch or worker.ordered > epoch:
        return
    if worker.exchanged != epoch:
        raise Violation(f"{worker} is to train in epoch {epoch} and has not met the others")
    if worker.misled:
        raise Violation(f"{worker} is to train on with what a collective has left")
    worker.epoch, worker.live, worker.parked, worker.on_way = epoch, True, False, -1
    worker.ordered = max(worker.ordered, epoch)
    worker.ledger.first_of, worker.switched = epoch, None
    worker.drains, worker.calls = False, 0
    worker.said_boundary = Epoch(0)
    worker.moved()
    begin_step(worker)


def leave(worker: "Worker", order: m.Leave) -> None:
    in_sandbox = worker.parked or worker.held >= 0 or worker.work is not None
    if not ((in_sandbox and worker.bound_for <= order.epoch) or worker.live):
        return
    if worker.live:
        tell_rows(worker)
    if worker.stuck or worker.circles or worker.spins:
        return  # It never comes out of the script: as a rank it says where it stands.
    if worker.work is not None:
        worker.runs += 1
    worker.forget()
    worker.later(worker.world.between(1_000, 30_000), worker.say, m.Left())


def hear_ending(worker: "Worker", order: m.Ending) -> None:
    worker.ending = order
