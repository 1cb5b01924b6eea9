# SPDX-License-Identifier: Apache-2.0
"""How far this process is in the collectives of its groups: what ranks compare when one stands.

A group's number counts from the beginning of the epoch, the same on all its ranks. gloo counts
messages too, which ranks do not send alike: there only the runtime's own groups have a number.
"""

import sys
from collections.abc import Iterable

from trainmover.comm.member import Member


def positions(members: Iterable[Member]) -> dict[str, int]:
    """Group -> collectives begun in this epoch; of groups that have no peers nothing."""
    return {
        name_of(member): member.watch.session.sequence_number() - member.begun
        for member in list(members)
        if member.size > 1 and member.watch is not None and _counts(member)
    }


def waits(members: Iterable[Member]) -> bool:
    """Whether some call of the script's has begun and not ended. It may run in the background."""
    watches = [member.watch for member in list(members) if member.watch is not None]
    return any(watch.unfinished for watch in watches)


def received() -> int:
    """Bytes that have come from other processes so far, where the communicator tells: a call goes
    on, however slowly, while they come. A wait by itself makes next to none."""
    native = sys.modules.get("trainmover.comm.native.endpoint")
    return native.received() if native is not None else 0


def _counts(member: Member) -> bool:
    watch = member.watch
    return watch is not None and not watch.released and (member.private or watch.prompt is not None)


def name_of(member: Member) -> str:
    """Equal on all ranks of the group, and on no others."""
    return f"private/{member.name}" if member.private else member.place or member.name
