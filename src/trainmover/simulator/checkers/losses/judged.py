# SPDX-License-Identifier: Apache-2.0
"""Who keeps the others waiting is ended in time, and nobody else.

A process that is stopped is ended after a second, if it has a rank or is to take one; after ten, if
it has none. Who is to end and does not costs its machine after two. Nobody is ended whom nobody
waits for, and no machine is shut out for ways that it had when it was asked. That nobody is ended
who is well, `healthy` says.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.price import can_be_replaced
from trainmover.controller.effects import Fence, Send
from trainmover.controller.events import MachinesLost
from trainmover.controller.standstill.contact import waited_us
from trainmover.controller.standstill.suspects import OWN_BUSINESS
from trainmover.controller.state import Job, MachineState, Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import EndWorker
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

SECOND_US = 1_000_000
STOPPED_US, SPARE_US, ENDS_US = SECOND_US, 10 * SECOND_US, 2 * SECOND_US
WAYS = "ways to the others"
LOOKS_US = 1_500_000
"""Within which the controller looks again."""
TROUBLE_US = 8 * SECOND_US
"""For so long a fault of the network may still be the cause of something."""
SEATED = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)


class Judged:
    """trouble_us: when links or machines last stood still; back_us: when a controller came,
    or members or what they are about were last others.
    apart_us: when each machine was last seen to have a link that is cut, or to stand still."""

    def __init__(self) -> None:
        self.trouble_us = self.back_us = -TROUBLE_US
        self.apart_us: dict[MachineId, int] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, _: Replayed) -> None:
        self.back_us = self.world.now

    def decided(self, moment: Decided) -> None:
        world, at_us = self.world, moment.event.at_us
        network = world.network
        if network.cuts or network.slow or any(box.frozen for box in world.boxes.values()):
            self.trouble_us = world.now
        frozen = [name for name, box in world.boxes.items() if box.frozen or not box.alive]
        cut = [name for pair in network.cuts for name in pair]
        self.apart_us |= dict.fromkeys((*frozen, *cut, *network.slow), world.now)
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, EndWorker):
                self._is_to_blame(moment, effect.machine, effect.order)
            if isinstance(effect, Fence) and not isinstance(moment.event, MachinesLost):
                self._has_its_ways(moment, effect.machine)
        job, before = moment.after, moment.before
        if before.phase is not job.phase or before.change is not job.change:
            self.back_us = world.now
        if job.phase is Phase.RUNNING and world.now - self.back_us > LOOKS_US:
            self._are_ended(job, at_us)

    # --- in time --------------------------------------------------------------------------------

    @staticmethod
    def _are_ended(job: Job, at_us: int) -> None:
        for machine, condemned in job.hanging.condemned.items():
            waited = waited_us(job, machine, condemned.judged_us, at_us)
            if waited > ENDS_US + LOOKS_US and can_be_replaced(job, machine):
                raise Violation(f"{machine} has not ended {condemned.pid}, and stays: {condemned}")
        if job.hanging.condemned or not job.spec.watch:
            return
        for (machine, local), one in job.hanging.disturbed.items():
            if one.state != "stopped" or machine not in job.machines:
                continue
            most_us = STOPPED_US if _is_waited_for(job, machine, local) else SPARE_US
            waited = waited_us(job, machine, one.since_us, at_us)
            if waited > most_us + LOOKS_US and not _is_through(job, machine, local):
                raise Violation(f"{one} of {machine} is stopped, and nobody ends it")

    # --- nobody else ----------------------------------------------------------------------------

    def _is_to_blame(self, moment: Decided, machine: MachineId, order: EndWorker) -> None:
        at_us, job = moment.event.at_us, moment.before
        one = moment.after.hanging.disturbed.get((machine, order.local_rank))
        stopped = one if one is not None and one.state == "stopped" else None
        stands = {**job.hanging.stands, **moment.after.hanging.stands}
        if stopped is not None and not stands:
            waited = any(
                _is_waited_for(known, machine, order.local_rank) for known in (job, moment.after)
            )
            least_us = STOPPED_US if waited else SPARE_US
            if at_us - stopped.since_us < least_us:
                raise Violation(f"{machine} is to end {stopped}, at {at_us}")
        worker = self.world.process_at(f"{machine}/{order.pid}")
        if worker is None or self.world.now - self.trouble_us < TROUBLE_US:
            return
        waits = any(one.fact.where not in OWN_BUSINESS for one in stands.values())
        changes = job.change is not None or moment.after.change is not None
        if one is None and not waits and not changes and len(stands) < job.spec.world_size:
            raise Violation(f"{worker} is ended, and nobody waits for it: {order.why}")

    def _has_its_ways(self, moment: Decided, machine: MachineId) -> None:
        job, box = moment.before, self.world.boxes[machine]
        cause = moment.after.incidents[-1].cause if moment.after.incidents else ""
        seen_us = self.apart_us.get(machine, -TROUBLE_US)
        asked_us = self.world.now - moment.event.at_us + job.hanging.asked_us
        if WAYS in cause and machine in cause and seen_us < asked_us and box.alive:
            raise Violation(f"{machine} is shut out, and reached all others when asked: {cause}")


def _is_waited_for(job: Job, machine: MachineId, local: int) -> bool:
    """Whether it has a rank, or is to take one."""
    taken = {} if job.change is None else job.change.joiners
    if machine in taken.values():
        return True
    return job.machines[machine].state in SEATED and job.rank_of(machine, local) is not None


def _is_through(job: Job, machine: MachineId, local: int) -> bool:
    """Whether its script has ended, or its processes are being replaced."""
    rank = job.rank_of(machine, local)
    here = job.machines[machine]
    gone = here.state in (MachineState.DOWN, MachineState.STARTING, MachineState.COLD)
    return gone or (rank is not None and rank in job.finished)
