# SPDX-License-Identifier: Apache-2.0
"""Runs of the script in the sandbox: they take a while, newer work ends them, and one that is held
is parked at once."""

from typing import TYPE_CHECKING

from trainmover.ids import Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation
from trainmover.simulator.ranks.members import unwind
from trainmover.simulator.ranks.switching import await_order

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker


CIRCLES_US, TIMES, UNWIND_US = 60_000_000, 10, 10_000_000
"""A run that is at work for so long, and so many times longer than one before it, is given up."""


def begin(worker: "Worker", order: m.WarmUp | m.Hold | m.Bind) -> None:
    """A run as a rank of the slot; or nothing but to park, if that is what is held."""
    if worker.live or worker.parked:
        raise Violation(f"{worker} is to begin a run and has not left the one before: {order}")
    rank = Rank(order.slot * worker.world.spec.nproc + worker.local)
    worker.rank, held, worker.held = rank, worker.held, Rank(-1)
    goes_on = isinstance(worker.work, m.Hold) and worker.work.slot == order.slot
    begun_us = worker.world.between(50_000, 400_000)
    worker.work = order
    worker.work_number += 1
    worker.on_way = -1
    if isinstance(order, m.Bind):
        worker.bound_for = order.epoch
        if held == rank:
            worker.runs -= 1
            begun_us = 1000
        elif goes_on:
            begun_us //= 2
    worker.later(begun_us, _run_through, worker, worker.work_number, worker.store)


def _run_through(worker: "Worker", number: int, store: str) -> None:
    """The run comes to its first step, or fails; one that goes in circles does neither."""
    if number != worker.work_number or worker.work is None or worker.circles:
        return
    if worker.world.spec.nproc > 1 and store != worker.world.store:
        return
    order, worker.work, rank = worker.work, None, worker.rank
    worker.runs += 1
    program = worker.world.program(rank)
    again = worker.box.name in worker.world.knobs.once and worker.runs > 1
    if again or (worker.box.name, program) in worker.world.unfit:
        if isinstance(order, m.Bind) and worker.standing.leaves(order.epoch):
            unwind(worker)
        else:
            worker.say(m.SandboxFailed(rank=rank, reason="it raised", again=again))
        return
    if worker.box.name in worker.world.strays:
        worker.world.strays.remove(worker.box.name)
        program = "strays"
    match order:
        case m.WarmUp():
            took_ms, held = 100 + 10 * worker.pid % 70, 1000 + worker.pid
            worker.say(
                m.Warm(rank=rank, shadow_steps=3, trace=program, warm_ms=took_ms, held_bytes=held)
            )
        case m.Hold():
            worker.held = rank
            took_ms, held = 80 + 10 * worker.pid % 70, 2000 + worker.pid
            worker.say(m.Held(rank=rank, trace=program, run_ms=took_ms, held_bytes=held))
        case m.Bind(epoch=epoch):
            worker.parked = True
            worker.say(m.Parked(rank=rank, epoch=epoch, trace=program, bind_ms=1))
            await_order(worker)


def go_in_circles(worker: "Worker") -> bool:
    """The run under way never comes to its first step. After a while the process gives it up, if
    it knows how long one takes; then it unwinds, or ends. False: there is none like that."""
    order = worker.work
    if not isinstance(order, m.WarmUp | m.Hold | m.Bind) or not order.known_ms or worker.circles:
        return False
    worker.circles = True
    after_us = max(CIRCLES_US, TIMES * order.known_ms * 1000)
    worker.later(after_us, _give_up, worker, worker.work_number)
    return True


def _give_up(worker: "Worker", number: int) -> None:
    worker.say(m.SandboxFailed(rank=worker.rank, reason="it runs in circles"))
    if worker.world.random.random() < 0.5 and number == worker.work_number:
        worker.circles, worker.work = False, None
        worker.runs += 1
    else:
        worker.later(UNWIND_US, worker.box.exited, worker, 1)
