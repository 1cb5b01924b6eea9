# SPDX-License-Identifier: Apache-2.0
"""What is told of a machine by its own heartbeats is so, and is told in time.

Memory is said to fill only where it does, with about the time that is left; an agent is said to
speak late only if it does. Both are known after so many rounds of ten seconds in which nothing else
has happened: the memory a quarter of an hour, the other five minutes. A controller that takes over
begins to look anew.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import AnomalyFound
from trainmover.controller.state import Phase
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Replayed, Violation
from trainmover.simulator.places.machines import FULL_US

if TYPE_CHECKING:
    from trainmover.simulator.world import World

SECOND_US = 1_000_000
FILLS_US, TARDY_US = 760 * SECOND_US, 330 * SECOND_US
"""Of rounds, and then some, that it takes to know either."""
SOON_US = 450 * SECOND_US
ABOUT = re.compile(r"full in about (\d+) min")
WRONG_S = 90.0


class Watched:
    """since_us: when it was begun to look at each machine; found: signs of which was told."""

    def __init__(self) -> None:
        self.since_us: dict[MachineId, int] = {}
        self.found: set[tuple[MachineId, str]] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, _: Replayed) -> None:
        self.since_us.clear()
        self.found.clear()

    def decided(self, moment: Decided) -> None:
        job, event = moment.after, moment.event
        if isinstance(event, AnomalyFound) and event.sign in ("filling", "late"):
            self._is_so(event)
        if job.phase is not Phase.RUNNING or job.spec.anomalies == "off":
            self.since_us.clear()
            return
        for name in self.since_us.keys() - job.machines.keys():
            del self.since_us[name]
            self.found -= {(name, "filling"), (name, "late")}
        for name in job.machines:
            since_us = self.since_us.setdefault(name, self.world.now)
            self._is_known(name, self.world.now - since_us)

    def _left_us(self, machine: MachineId) -> int:
        return FULL_US - (self.world.now - self.world.boxes[machine].booted_us)

    def _is_so(self, event: AnomalyFound) -> None:
        machine, knobs = event.machine, self.world.knobs
        if machine not in (knobs.fills if event.sign == "filling" else knobs.tardy):
            self._has_reason(event)
            return
        self.found.add((machine, event.sign))
        if event.sign != "filling":
            return
        said = ABOUT.search(event.text)
        left_s = self._left_us(machine) / 1e6
        if said is None or abs(60 * int(said[1]) - left_s) > WRONG_S:
            raise Violation(f"{event.text}; in truth it is {left_s:.0f} s")

    def _has_reason(self, event: AnomalyFound) -> None:
        """Links that fail, and machines that stand still, make agents late as well."""
        quiet = not any(box.frozen for box in self.world.boxes.values())
        fails = {*self.world.network.slow, *(end for way in self.world.network.cuts for end in way)}
        if event.sign == "filling" or (quiet and event.machine not in fails):
            raise Violation(f"{event.machine} is said to be {event.sign}, and is not: {event.text}")

    def _is_known(self, machine: MachineId, for_us: int) -> None:
        knobs = self.world.knobs
        fills = machine in knobs.fills and for_us > FILLS_US
        if (
            fills
            and 0 < self._left_us(machine) < SOON_US
            and (machine, "filling") not in self.found
        ):
            raise Violation(f"the memory of {machine} is full soon, and nobody says so")
        late = machine in knobs.tardy and for_us > TARDY_US
        if late and (machine, "late") not in self.found:
            raise Violation(f"the agent of {machine} speaks late, and nobody says so")
