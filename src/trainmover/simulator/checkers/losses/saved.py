# SPDX-License-Identifier: Apache-2.0
"""A job ends only where no history of patience would have gone on.

A machine is given up that lives, whole, and holds ranks or the record of a step that is not
committed. It was waited for less than the patience, and no step is committed any more: then waiting
might have saved the job. A loss that becomes known only later excuses whoever gave up.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import AgentSaid, MachinesLost, WorkerSaid
from trainmover.ids import MachineId
from trainmover.protocol.messages import WorkerExited
from trainmover.simulator.happenings import Decided, Ended, Fenced, Replayed, Violation
from trainmover.simulator.ranks.training import Gate
from trainmover.simulator.truth import is_whole

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.world import World

FOR_WANT = (
    "must be replaced and",
    "The job has ended after step",
    " times:",
    "without a committed step",
)
"""Of ends for what was lost; other ends have other reasons."""


class WaitingWouldHaveSaved:
    """given_up: machines since the last commit that were whole, to how long each was waited for.
    later: more became known to be lost since. before: one was given up before this decision."""

    def __init__(self) -> None:
        self.given_up: dict[MachineId, float] = {}
        self.later = self.before = False
        self.torn = False

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {
            Decided: self.decided,
            Fenced: self.fenced,
            Gate: self.committed,
            Replayed: self.replayed,
            Ended: self.ended,
        }

    def replayed(self, moment: Replayed) -> None:
        self.torn |= bool(moment.torn)

    def committed(self, _: Gate) -> None:
        self.given_up.clear()
        self.later = False

    def decided(self, moment: Decided) -> None:
        self.moment, event = moment, moment.event
        self.before = bool(self.given_up)
        exited = isinstance(event, AgentSaid) and isinstance(event.fact, WorkerExited)
        refused = isinstance(event, WorkerSaid) and bool(getattr(event.fact, "refused", ""))
        self.later |= self.before and (exited or refused)  # Of a snapshot: its last copy may go.

    def fenced(self, fenced: Fenced) -> None:
        machine, event = fenced.machine, self.moment.event
        box = self.world.boxes[machine]
        lives = box.alive and box.incarnation == fenced.incarnation
        if not lives or not self._holds_something(box) or self._was_to_die(machine):
            self.later |= self.before and machine in self.moment.before.seats
        else:
            heard_us = event.at_us
            if isinstance(event, MachinesLost):
                heard_us = min(one.heard_us for one in event.lost if one.machine == machine)
            condemned = self.moment.before.hanging.condemned.get(machine)
            if condemned is not None:  # Its process was to end, and did not.
                heard_us = condemned.judged_us
            self.given_up[machine] = (event.at_us - heard_us) / 1e6

    def _holds_something(self, box: "Box") -> bool:
        """Whether it has ranks, whole, or the record of a step that is not committed."""
        newest = self.world.training.newest
        whole = all(map(is_whole, box.workers))
        has_ranks = box.name in self.moment.before.seats and whole
        return has_ranks or any(max(steps, default=0) > newest for steps in box.vault.values())

    def _was_to_die(self, machine: MachineId) -> bool:
        known = self.moment.before.machines.get(machine)
        return known is not None and known.killed_us is not None

    def ended(self, ended: Ended) -> None:
        end, patience_s = ended.end, self.world.spec.patience_s
        for_want = end.code and any(said in end.text for said in FOR_WANT)
        if not for_want or self.torn or self.later:
            return
        for machine, waited_s in self.given_up.items():
            if waited_s < patience_s:
                raise Violation(
                    f"{machine} lived, whole, and was given up after {waited_s:.1f} s of silence; "
                    f"to wait for it might have saved the job: {end.text}"
                )
