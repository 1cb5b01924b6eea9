# SPDX-License-Identifier: Apache-2.0
"""Arrival of a standby at the place where the run's state was captured.

Often it stands there already: in the same loop. Where the run was in another loop, a second phase
or an evaluation, the standby runs forward: loops that it is in end, and loops that begin take one
turn, until the script stands at that place. What is computed on the way does not count: all of it
is overwritten by the restore.
"""

from typing import Any

TURNS_BEFORE = 6
"""Turns that a standby makes as usual first: the place may be another line of this loop."""
TURNS_MAX = 400
"""Turns on the way after which the place is given up."""


class Arrival:
    """Way of one standby."""

    def __init__(self) -> None:
        self._turns = 0
        self._new: dict[int, Any] = {}

    @property
    def runs_forward(self) -> bool:
        """Tell whether loops are cut short."""
        return self._turns > TURNS_BEFORE

    @property
    def is_over(self) -> bool:
        """Tell whether the place was looked for long enough."""
        return self._turns > TURNS_MAX

    def loop_begins(self, loop: Any) -> None:
        """Have a loop that begins on the way asked for at its turns, to take one of them."""
        if self.runs_forward:
            loop.is_transaction = True
            self._new[id(loop)] = loop

    def turn(self, loop: Any, active: list[Any]) -> None:
        """Take note of a turn at another place; end the loops that have taken theirs."""
        self._turns += 1
        if not self.runs_forward:
            return
        for one in active:
            is_old = id(one) not in self._new
            if is_old or (one is loop and one.turn_count > 0):
                one.end()
