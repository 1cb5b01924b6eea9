# SPDX-License-Identifier: Apache-2.0
"""A rank as a member of epochs: it is interrupted, stands at the boundary, goes, leaves.

What it does is decided by `rank.standing`; here is what takes time, and what the world must see.
"""

from functools import partial
from typing import TYPE_CHECKING

from trainmover.ids import Epoch
from trainmover.protocol import messages as m
from trainmover.rank.standing import Told
from trainmover.simulator.happenings import Violation
from trainmover.simulator.ranks import steps, switching

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker


PATIENCE_MS = 20_000
DRAINS_US = (500, 20_000)
"""Until the script's thread is out of its collectives."""


def prepare(worker: "Worker", order: m.Prepare) -> None:
    delay_us = worker.world.between(2_000, 60_000)
    worker.later(delay_us, _prepared, worker, order.epoch, worker.store)


def _prepared(worker: "Worker", epoch: Epoch, store: str) -> None:
    if store == worker.world.store:  # Who meets in a store that is dead meets nobody.
        reason, worker.unprepared = worker.unprepared, ""
        if worker.box.name in worker.world.unprepared:
            reason = "no memory is left for its links"
        worker.say(m.Prepared(rank=worker.rank, epoch=epoch, reason=reason))


def note(worker: "Worker", order: Told) -> None:
    """What is looked at when the rank comes by."""
    worker.standing.obey(order)
    worker.wake()


def interrupt(worker: "Worker", order: m.Interrupt) -> None:
    """Newer epoch and position in one moment."""
    standing = worker.standing
    if not standing.interrupt(order.epoch):
        return
    position = standing.position(worker.rank, PATIENCE_MS)
    if position is not None:
        worker.say(position)
        drain(worker)
    worker.wake()


def drain(worker: "Worker") -> None:
    """Its collectives end with what their buffers hold."""
    worker.drains = True
    worker.misled |= worker.between
    worker.later(worker.world.between(*DRAINS_US), steps.cut_short, worker)


# --- between two steps --------------------------------------------------------------------------


def settle(worker: "Worker") -> None:
    """At a fetch: members may change here. Then the next step."""
    standing, rank = worker.standing, worker.rank
    worker.wait(
        lambda: standing.target(rank, drains=worker.drains, pausing=not worker.finished),
        partial(_settled, worker),
    )


def _settled(worker: "Worker", epoch: Epoch | None) -> None:
    if epoch is None:
        steps.begin_step(worker)
        return
    at = m.AtBoundary(rank=worker.rank, epoch=epoch, committed=worker.step, misled=worker.misled)
    worker.say(at)
    worker.wait(partial(worker.standing.next_switch, epoch), partial(_told, worker))


def _told(worker: "Worker", order: m.Switch | None) -> None:
    if order is None:
        settle(worker)
    elif worker.rank in order.sources:
        await_go(worker, order.epoch)
    else:
        switching.begin(worker, order)


def stay(worker: "Worker") -> None:
    """The script is done; the job may not be."""
    worker.wait(worker.standing.after_the_end, partial(_called, worker))


def _called(worker: "Worker", changes: bool) -> None:
    if changes:
        settle(worker)


def await_go(worker: "Worker", epoch: Epoch) -> None:
    worker.wait(partial(worker.standing.in_force, epoch), partial(_in_force, worker, epoch))


def _in_force(worker: "Worker", epoch: Epoch, goes: bool) -> None:
    worker.order = None
    if goes:
        worker.ledger.first_of = epoch
    if worker.live:
        settle(worker)
    else:
        switching.await_order(worker, epoch)


def go(worker: "Worker", order: m.Go) -> None:
    """The epoch is in force at once; its script's thread wakes when it does."""
    standing, before = worker.standing, worker.epoch
    standing.obey(order)
    if worker.epoch != before:
        if worker.misled:
            raise Violation(f"{worker} is to train on with what a collective has left")
        worker.parked, worker.on_way = False, -1
        worker.drains, worker.calls = False, 0
        worker.moved()
    elif worker.order is not None and worker.order.epoch == order.epoch >= standing.ordered:
        raise Violation(f"{worker} is to train in epoch {order.epoch} and has not met the others")
    worker.wake()


def unwind(worker: "Worker") -> None:
    """The rank lives elsewhere, or all run the script again: the process is free."""
    worker.forget()
    worker.later(worker.world.between(1_000, 30_000), worker.say, m.Left())
