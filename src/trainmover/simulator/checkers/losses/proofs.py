# SPDX-License-Identifier: Apache-2.0
"""A standby proves again what it can when that is due, and not before; so does one that is cold.

A proof is old after ten minutes, and one machine at a time makes its proofs anew. A cold machine is
tried again a minute after that was seen, and each time in vain after twice as long. Time is told
about once a minute; while members change nothing of this begins.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.seats import at_hand, other_torch
from trainmover.controller.events import MachineJoined, Tick
from trainmover.controller.state import Job, Machine, MachineState, Phase
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

MINUTE_US = 60_000_000
OLD_US, OLDEST_US = 10 * MINUTE_US, 14 * MINUTE_US
LONGEST_US = 60 * MINUTE_US
BUSY = (MachineState.STARTING, MachineState.WARMING, MachineState.HOLDING)


class Proofs:
    """cold: since when a machine is seen to be; rests_us: since when nothing is under way."""

    def __init__(self) -> None:
        self.cold: dict[MachineId, int] = {}
        self.rests_us: int | None = None

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, _: Replayed) -> None:
        self.rests_us = None

    def decided(self, moment: Decided) -> None:
        before, after, at_us = moment.before, moment.after, moment.event.at_us
        if isinstance(moment.event, MachineJoined):
            self.cold.pop(moment.event.machine, None)
        rests = after.phase is Phase.RUNNING and after.change is None and not after.finished
        if not rests:
            self.rests_us = None
            return
        if self.rests_us is None:
            self.rests_us = at_us
        if not isinstance(moment.event, Tick):
            return
        self._are_new(after, at_us)
        for name, one in before.machines.items():
            now = after.machines.get(name)
            if now is None or before.change is not None:
                continue
            self._is_tried(before, one, now, at_us)
            self._is_proven_again(before, one, now, at_us)

    def _are_new(self, job: Job, at_us: int) -> None:
        """No proof is much older than it may be, if there was time to make it anew."""
        assert self.rests_us is not None
        there = at_hand(job)
        if at_us - self.rests_us < OLDEST_US or any(one.state in BUSY for one in there):
            return
        for one in there:
            if one.state is not MachineState.WARM:
                continue
            ages = [at_us - proof.at_us for proof in one.attests.values() if not proof.failed]
            if max(ages, default=0) > OLDEST_US + len(there) * MINUTE_US:
                raise Violation(f"{one.id} has proven nothing for {max(ages) / MINUTE_US:.0f} min")

    def _is_proven_again(self, job: Job, old: Machine, now: Machine, at_us: int) -> None:
        fresh = [proof for proof in old.attests.values() if not proof.stale]
        stale = any(proof.stale for proof in now.attests.values()) or now.state in BUSY
        if old.state is not MachineState.WARM or not fresh or len(fresh) < len(old.attests):
            return
        if stale and at_us - min(proof.at_us for proof in fresh) < OLD_US and old.held is not None:
            raise Violation(f"{old.id} is to prove again what it has proven lately: {fresh}")
        if job.slot_of(old.id) is not None and stale:
            raise Violation(f"{old.id} has ranks, and is to prove what it can")

    def _is_tried(self, job: Job, old: Machine, now: Machine, at_us: int) -> None:
        name = old.id
        if old.state is not MachineState.COLD:
            self.cold.pop(name, None)
            if old.state is MachineState.WARM and now.tries and name not in job.cordoned:
                raise Violation(f"{name} is ready, and has been tried {now.tries} times in vain")
            return
        since_us = self.cold.setdefault(name, at_us)
        wait_us = min(MINUTE_US << old.tries, LONGEST_US)
        if now.state is MachineState.STARTING:
            if at_us - since_us < wait_us or old.suspect or now.tries != old.tries + 1:
                raise Violation(f"{name} is tried again {(at_us - since_us) / 1e6:.0f} s later")
            del self.cold[name]
            return
        may = name not in job.cordoned and not old.suspect and not other_torch(job, old)
        rests_us = at_us - (at_us if self.rests_us is None else self.rests_us)
        waited_us = min(at_us - since_us, rests_us)
        if may and job.slot_of(name) is None and waited_us > wait_us + 2 * MINUTE_US:
            raise Violation(f"{name} is cold, and not tried again in {wait_us / 1e6:.0f} s")
        if not may:
            self.cold.pop(name)
