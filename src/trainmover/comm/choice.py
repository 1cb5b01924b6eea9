# SPDX-License-Identifier: Apache-2.0
"""What makes the communicator of a group, by its name."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from trainmover.comm.communicator import Communicator
from trainmover.comm.gloo.communicator import GlooCommunicator
from trainmover.communicators import checked, native_is_built


def communicator_named(name: str, token: bytes | None) -> Callable[[], Communicator]:
    """Raises UserError; see `Groups.choose`. The extension is loaded only if it is wanted."""
    if checked(name) == "gloo":
        return GlooCommunicator
    from trainmover.comm.native.communicator import NativeCommunicator

    return functools.partial(NativeCommunicator, token)


@dataclass(frozen=True)
class Waits:
    """What this process has waited for others, as a communicator counts it.

    total_ns  since it began
    by_peer   since it was last asked, nanoseconds for each process on another host that came last
    """

    total_ns: Callable[[], int]
    by_peer: Callable[[], list[tuple[int, int]]]


def waits_of(name: str) -> Waits | None:
    """None where that communicator does not count them."""
    if name == "gloo":
        return None
    from trainmover import _native

    return Waits(_native.waited_ns, _native.waited_for)


def load_all() -> None:
    """Whichever is wanted later."""
    if native_is_built():
        communicator_named("native", None)
