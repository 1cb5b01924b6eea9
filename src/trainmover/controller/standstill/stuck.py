# SPDX-License-Identifier: Apache-2.0
"""What is known of ranks that stand still: values. Pure."""

from dataclasses import dataclass, field

from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Stands


@dataclass(frozen=True)
class Standstill:
    """A rank has said that it stands. since_us: when it last moved."""

    fact: Stands
    since_us: int


@dataclass(frozen=True)
class Disturbed:
    """A process that executes nothing; `state` as in `WorkerState`."""

    pid: int
    state: str
    since_us: int


@dataclass(frozen=True)
class Condemned:
    """A worker that is to end because its rank keeps the others waiting.

    rank       None: it has none, and is stopped
    since_us   when the rank last moved; judged_us: when it was found
    give_up    the whole machine goes: its process must end for the second time in short
    stack      where its threads stood; "" before its agent has said so
    """

    local_rank: int
    rank: Rank | None
    pid: int
    cause: str
    since_us: int
    judged_us: int
    give_up: bool = False
    stack: str = ""


@dataclass(frozen=True)
class Probing:
    """Machines were asked which others they reach. asked: those; reached: what they answered."""

    number: int
    epoch: Epoch
    cause: str
    since_us: int
    asked: tuple[MachineId, ...] = ()
    reached: dict[MachineId, list[MachineId]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hanging:
    """All of it.

    stands     what ranks have said since they last moved; of an older epoch it counts no more
    disturbed  machine and local rank -> its process, while that is not as it should be
    condemned  by machine
    judged     machine -> when a worker there was last condemned
    retried    step that was retried because all stood in it and nobody was missing
    probes     how often machines were asked whom they reach; asked_us: the last time
    missing    ways that did not work then: from the first to the second of each pair
    """

    stands: dict[Rank, Standstill] = field(default_factory=dict)
    disturbed: dict[tuple[MachineId, int], Disturbed] = field(default_factory=dict)
    condemned: dict[MachineId, Condemned] = field(default_factory=dict)
    judged: dict[MachineId, int] = field(default_factory=dict)
    retried: Step | None = None
    probing: Probing | None = None
    probes: int = 0
    asked_us: int = 0
    missing: frozenset[tuple[MachineId, MachineId]] = frozenset()
