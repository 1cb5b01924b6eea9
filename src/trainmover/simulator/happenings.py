# SPDX-License-Identifier: Apache-2.0
"""What checkers are told: values, said at the moment at which it happens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainmover.controller.effects import End
from trainmover.controller.state import Job
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import AgentFact, Order, WorkerFact
from trainmover.server.surroundings import ByTheWay, Decided
from trainmover.simulator.ranks.bits import Bits

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker

__all__ = [
    "Decided",
    "Ended",
    "Fenced",
    "Flipped",
    "Heard",
    "Placed",
    "Replayed",
    "Said",
    "Stepped",
    "Struck",
    "Told",
    "Violation",
]


class Violation(Exception):
    """Something that must never be has happened. what: which, in one sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class Heard:
    """An agent has heard an order that is counted, its `number`."""

    machine: MachineId
    incarnation: str
    number: int
    order: Order


@dataclass(slots=True)
class Said:
    """A machine says something to the controller: its agent, or one of its workers."""

    machine: MachineId
    fact: AgentFact | WorkerFact


@dataclass(slots=True)
class Told:
    """The controller has heard what nothing is decided on."""

    machine: MachineId
    fact: ByTheWay


@dataclass(slots=True)
class Stepped:
    """A rank has committed `step`. holds: the step after which its state really is."""

    worker: "Worker"
    rank: Rank
    epoch: Epoch
    step: Step
    holds: Step


@dataclass(slots=True)
class Struck:
    """Something goes wrong, or somebody asks for something: a name of `faults.NAMES`."""

    name: str


@dataclass(slots=True)
class Placed:
    """A rank's state was put in place: taken from rank `source`, or, to go back, from its own
    snapshot."""

    worker: "Worker"
    step: Step
    holds: Bits
    back: bool
    source: Rank


@dataclass(slots=True)
class Flipped:
    """A bit of what a rank holds has flipped: its `flaw`."""

    worker: "Worker"
    flaw: int


@dataclass(slots=True)
class Fenced:
    """The controller has shut a machine out."""

    machine: MachineId
    incarnation: str
    epoch: Epoch


@dataclass(slots=True)
class Ended:
    """The job is over; machines that went with it were told of before."""

    end: End


@dataclass(slots=True)
class Replayed:
    """A controller has taken over. torn: records that the journal has lost."""

    job: Job
    torn: int
