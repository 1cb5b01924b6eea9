# SPDX-License-Identifier: Apache-2.0
"""Values of the capacity policy: wants, grants, and the codes that both sides speak in. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum

from trainmover.ids import MachineId


class Need(StrEnum):
    """Reason for an acquisition."""

    START = "start"  # the job has yet to begin
    SLOT = "slot"  # ranks have no machine
    STANDBY = "standby"  # fewer standbys than were asked for


class Returned(StrEnum):
    """Reason for a release."""

    DRAINED = "drained"  # it was to go, and its ranks are elsewhere
    LOST = "lost"  # the job goes on without it
    LATE = "late"  # granted, and never joined
    TWICE = "node granted twice"
    UNWANTED = "not wanted"
    UNFIT = "unfit"  # it cannot take the ranks that wait for a machine


class Denial(StrEnum):
    """Reason for which an engine grants nothing."""

    FULL = "full"  # no room at the moment
    QUOTA = "quota"
    FORBIDDEN = "forbidden"  # no permission
    INVALID = "invalid"  # the request cannot be granted as it is
    UNREACHABLE = "unreachable"  # the scheduler does not answer
    FAILED = "the last ones never joined"


LASTING = frozenset({Denial.FORBIDDEN, Denial.INVALID})
"""Denials that no time mends."""


class NoticeKind(StrEnum):
    """What an engine says of a machine that it has granted."""

    DRAIN = "drain"  # its node is being drained; there is no deadline
    PREEMPT = "preempt"
    TIME_LIMIT = "time limit"
    GONE = "gone"  # the engine runs it no more


@dataclass(frozen=True)
class Want:
    """Machines that were acquired and are not granted yet.

    names        of machines still to come, given by the job: a repeated answer changes nothing
    standby      whether they join without ranks
    since_us     when it was asked for first; deadline_us: when it is of no use any more, or 0
    like         a machine whose kind they are to be of; "": any of the job
    avoid        nodes that lost a machine of the job, or never brought one up
    denied       why nothing came at the last try; "": it was not denied
    retry_us     no try before; tries: so many were ordered
    """

    number: int
    names: tuple[MachineId, ...]
    need: Need
    standby: bool
    since_us: int
    deadline_us: int = 0
    like: str = ""
    avoid: tuple[str, ...] = ()
    denied: str = ""
    retry_us: int = 0
    tries: int = 1


@dataclass(frozen=True)
class Grant:
    """A machine of the engine's. returned: why it was given back; None: it is held."""

    node: str
    granted_us: int
    joined: bool = False
    returned: Returned | None = None


@dataclass(frozen=True)
class Capacity:
    """wanted: number of the newest want; named: of the newest name. words: the last ones of the
    machine that was gone last before it had joined."""

    wants: dict[int, Want] = field(default_factory=dict)
    grants: dict[MachineId, Grant] = field(default_factory=dict)
    wanted: int = 0
    named: int = 0
    words: str = ""

    @property
    def to_come(self) -> int:
        """Machines that are wanted, or granted and not there yet."""
        wanted = sum(len(want.names) for want in self.wants.values())
        return wanted + sum(not g.joined and g.returned is None for g in self.grants.values())
