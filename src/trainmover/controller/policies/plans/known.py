# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of its newest plan. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from trainmover.ids import MachineId


class Standing(StrEnum):
    """How far a plan has come."""

    GOING = "going"
    STOPPED = "stopped"  # at its first problem, or by somebody; it can go on
    DONE = "done"


@dataclass(frozen=True)
class Plan:
    """What both kinds have.

    number    of the plans of this job
    reason    of whoever asked for it
    at_us     since when
    standing  and `why` it has stopped
    incident  of its newest move; 0: it has made none
    moves     that it has begun
    """

    number: int
    reason: str
    at_us: int
    standing: Standing = Standing.GOING
    why: str = ""
    incident: int = 0
    moves: int = 0

    @property
    def title(self) -> str:
        """As people call it: "Roll 3"."""
        return f"{type(self).__name__} {self.number}"

    @property
    def cause(self) -> str:
        """Of its moves and cordons: "roll 3: new firmware"."""
        return self.title.lower() + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Roll(Plan):
    """Every machine gives up its ranks once, some at a time.

    hold     who has given them up is cordoned until somebody uncordons it; else it gets fresh
             processes, and is a standby again
    left     those whose turn is yet to come, in order
    away     those whose turn it is
    renewed  of them, those that were told to start fresh processes
    over     those that are standbys again
    """

    at_once: int = 1
    hold: bool = False
    left: tuple[MachineId, ...] = ()
    away: tuple[MachineId, ...] = ()
    renewed: tuple[MachineId, ...] = ()
    over: tuple[MachineId, ...] = ()


@dataclass(frozen=True)
class Placement(Plan):
    """Every slot goes to the machine that is to have it. seats: slot -> that machine."""

    seats: tuple[MachineId, ...] = ()
