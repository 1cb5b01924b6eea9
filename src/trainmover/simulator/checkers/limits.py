# SPDX-License-Identifier: Apache-2.0
"""What time decides is decided when it is time: a microsecond before nothing is, and then it is.

A job is asked what it would do at that very moment, if nothing else came until then. Of jobs that
wait for a machine, that are being stopped, that have processes which are stopped or are to end, and
of standbys that are to prove something again. And the host is told to look by then.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.price import can_be_replaced
from trainmover.controller.change.seats import at_hand, other_torch
from trainmover.controller.clock import tick_due
from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect, Fence, Send
from trainmover.controller.events import Tick
from trainmover.controller.state import Job, MachineState, Phase
from trainmover.protocol.messages import EndWorker
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

EVERY = 16
"""Decisions, of which one is looked at."""
SECOND_US = 1_000_000
STOPPED_US, ENDS_US = SECOND_US, 2 * SECOND_US
TICK_US, OLD_US, COLD_US, LONGEST_US = (n * SECOND_US for n in (60, 600, 60, 3600))
BUSY = (MachineState.STARTING, MachineState.WARMING, MachineState.HOLDING)
SEATED = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)
Seen = Callable[[Job, tuple[Effect, ...]], bool]


class Limits:
    def __init__(self) -> None:
        self.decisions = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        self.decisions += 1
        job, at_us = moment.after, moment.event.at_us
        if self.decisions % EVERY or job.phase is not Phase.RUNNING:
            return
        change, hanging = job.change, job.hanging
        if hanging.condemned or hanging.disturbed or hanging.stands:
            pass  # What they come to may be due before.
        elif change is not None and change.missing:
            _comes_at(job, change.until_us, at_us, "the wait for a machine", _has_ended)
        elif job.stopping is not None:
            _comes_at(job, job.stopping.until_us, at_us, "a job that is stopped", _has_ended)
        if job.away:
            return  # Deadlines of such machines start anew once they are back.
        if hanging.condemned and not all(can_be_replaced(job, name) for name in hanging.condemned):
            return  # They have their patience.
        if hanging.condemned:
            name, one = min(hanging.condemned.items(), key=lambda item: item[1].judged_us)
            gone: Seen = lambda _, effects: Fence(name) in effects  # noqa: E731
            since_us = max(one.judged_us, job.back_us.get(name, 0))
            _comes_at(job, since_us + ENDS_US, at_us, f"the end of {name}", gone)
        elif hanging.disturbed and job.spec.watch and not job.finished:
            _are_ended(job, at_us)
        elif change is None and not hanging.stands:
            _are_proven(job, at_us)


def _comes_at(job: Job, due_us: int, now_us: int, what: str, seen: Seen) -> None:
    """Not before, and then. What may be due already waits for the host to look."""
    if due_us - 1 <= now_us:
        return
    if seen(*decide(job, Tick(at_us=due_us - 1))):
        raise Violation(f"{what} comes before {due_us}")
    if not seen(*decide(job, Tick(at_us=due_us))):
        raise Violation(f"{what} does not come at {due_us}")
    if not tick_due(job, due_us - TICK_US, due_us):
        raise Violation(f"{what} is due at {due_us}, and nobody looks")


def _has_ended(job: Job, _: tuple[Effect, ...]) -> bool:
    return job.phase is Phase.ENDED or job.saves_last


def _are_ended(job: Job, now_us: int) -> None:
    """Processes that are stopped and have a rank: the first of each machine."""
    first = {machine for machine, local in job.hanging.disturbed if local == 0}
    for (machine, local), one in job.hanging.disturbed.items():
        here = job.machines.get(machine)
        seated = here is not None and here.state in SEATED and job.slot_of(machine) is not None
        alone = local == 0 or machine not in first
        if one.state != "stopped" or not seated or not alone or job.hanging.stands:
            continue

        def is_ended(_: Job, effects: tuple[Effect, ...], machine: str = machine) -> bool:
            sent = [effect for effect in effects if isinstance(effect, Send)]
            return any(s.machine == machine and isinstance(s.order, EndWorker) for s in sent)

        since_us = max(one.since_us, job.back_us.get(machine, 0))
        _comes_at(job, since_us + STOPPED_US, now_us, f"the end of {one}", is_ended)


def _are_proven(job: Job, now_us: int) -> None:
    there = at_hand(job)
    for one in there:
        cold = one.state is MachineState.COLD and one.cold_us is not None
        if cold and not one.suspect and not other_torch(job, one) and one.cold_us is not None:
            due_us = one.cold_us + min(COLD_US << one.tries, LONGEST_US)

            def is_tried(after: Job, _: tuple[Effect, ...], name: Any = one.id) -> bool:
                return after.machines[name].state is MachineState.STARTING

            _comes_at(job, due_us, now_us, f"one more try of {one.id}", is_tried)
    warm = [one for one in there if one.state is MachineState.WARM and one.attests]
    if not warm or any(one.state in BUSY for one in there) or job.finished:
        return
    if job.failed_moves:
        return  # A move that is tried again takes a standby sooner.
    ages = {one.id: min(proof.at_us for proof in one.attests.values()) for one in warm}
    oldest_us = min(ages.values())

    def proves(after: Job, _: tuple[Effect, ...]) -> bool:
        before = {name: job.machines[name].attests for name in ages}
        return any(
            after.machines[name].state in BUSY or after.machines[name].attests != its
            for name, its in before.items()
        )

    if job.spec.readiness == "held" and not any(p.stale for m in warm for p in m.attests.values()):
        _comes_at(job, oldest_us + OLD_US, now_us, "a new proof", proves)
