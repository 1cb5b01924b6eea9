# SPDX-License-Identifier: Apache-2.0
"""Drills: let a machine fail at an exact point of an exact step, to see that the job does not mind.

TRAINMOVER_DRILL is a list, comma separated, of machine:point:step:action:

    m2:gate:20:kill        the machine dies (agent and workers, SIGKILL)
    m2:compute:20:crash    only the worker dies
    m2:gate:20:sleep=0.5   it is late
    m2:passed:20:raise     the script raises

Points of a step, in order: `compute` (before the function runs), `gate` (in the gate's all-reduce,
not through it), `passed` (through the gate, nothing applied yet), `updated` (behind an update),
`fetch` (before the next batch). Where only some ranks have an optimizer the gate is the step's last
act, and `updated` comes before it.
"""

import os
import re
import signal
import time
from dataclasses import dataclass

from trainmover.errors import UserError

POINTS = ("compute", "updated", "gate", "passed", "fetch")
ACTIONS = ("kill", "crash", "raise", "sleep")
_FORM = re.compile(
    rf"([^:]+):({'|'.join(POINTS)}):([0-9]+):({'|'.join(ACTIONS)})(?:=([0-9]+(?:\.[0-9]+)?))?"
)


@dataclass(frozen=True)
class Drill:
    """One planned failure. amount: seconds to sleep."""

    machine: str
    point: str
    step: int
    action: str
    amount: float = 0.0


def parse(text: str) -> list[Drill]:
    """The drills of TRAINMOVER_DRILL. Raises UserError for what it does not understand."""
    return [_parse_one(part) for part in text.split(",") if part]


def _parse_one(part: str) -> Drill:
    form = _FORM.fullmatch(part)
    if form is None:
        raise UserError(
            f"TRAINMOVER_DRILL has {part!r}.",
            means="The drill was not begun.",
            do=f"Write machine:point:step:action; points {POINTS}, actions {ACTIONS}.",
        )
    machine, point, step, action, amount = form.groups()
    return Drill(machine, point, int(step), action, float(amount or 0.5))


class Drills:
    """The drills of this machine; usually none.

    planned  those that have not happened yet: a step asks before it says where it is
    """

    def __init__(self, drills: list[Drill], machine: str) -> None:
        self.planned = [drill for drill in drills if drill.machine == machine]

    @staticmethod
    def from_environment() -> "Drills":
        """Of TRAINMOVER_DRILL for TRAINMOVER_MACHINE."""
        machine = os.environ.get("TRAINMOVER_MACHINE", "")
        return Drills(parse(os.environ.get("TRAINMOVER_DRILL", "")), machine)

    def at(self, point: str, step: int) -> None:
        """Fail here if that is planned. Each drill happens once, in the order of the list."""
        due = [drill for drill in self.planned if (drill.point, drill.step) == (point, step)]
        for drill in due:
            self.planned.remove(drill)
            _carry_out(drill)


def _carry_out(drill: Drill) -> None:
    match drill.action:
        case "kill":
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise RuntimeError(f"a drill at {drill.point} of step {drill.step}")
        case _:
            time.sleep(drill.amount)
