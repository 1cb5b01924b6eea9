# SPDX-License-Identifier: Apache-2.0
"""What fails again and again is tried less often: moves that nobody has asked for back off."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.state import Kind
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

TRIES, WITHIN_US = 10, 10_000_000


class Retries:
    """begun_us: machine -> when moves of it have begun lately that nobody has asked for."""

    def __init__(self) -> None:
        self.begun_us: dict[MachineId, deque[int]] = defaultdict(lambda: deque(maxlen=TRIES))

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before.incidents, moment.after.incidents
        if after is before or not after:
            return
        newest = after[-1]
        is_new = not before or newest.number > before[-1].number
        if is_new and newest.kind is Kind.MOVE and not newest.request and newest.machine:
            self._begins(newest.machine)

    def _begins(self, machine: MachineId) -> None:
        begun_us = self.begun_us[machine]
        begun_us.append(self.world.now)
        took_us = self.world.now - begun_us[0]
        if len(begun_us) == TRIES and took_us < WITHIN_US:
            raise Violation(f"{machine} is moved {TRIES} times in {took_us / 1e6:.1f} s, in vain")
