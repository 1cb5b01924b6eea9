# SPDX-License-Identifier: Apache-2.0
"""Counts that tell what a change of members cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SwitchStats:
    """One switchover of all groups of this process.

    prepared   groups that were connected in the background, before the pause
    opened     links to other seats made anew; kept: taken over; closed: of the old epoch
    stranded   calls of the old epoch that had still not ended
    """

    epoch: int
    groups: int
    prepared: int
    opened: int
    kept: int
    closed: int
    wait_ns: int
    build_ns: int
    exchange_ns: int
    stranded: int


@dataclass(frozen=True)
class CommStats:
    """Sums since the process began."""

    drains: int
    drain_ns_last: int
    switchovers: int
    last: SwitchStats | None
    leaked: int
