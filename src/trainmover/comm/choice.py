"""What makes the communicator of a group, by its name."""

import functools
from collections.abc import Callable

from trainmover.comm.communicator import Communicator
from trainmover.comm.gloo.communicator import GlooCommunicator
from trainmover.communicators import checked, native_is_built


def communicator_named(name: str, token: bytes | None) -> Callable[[], Communicator]:
    """Raises UserError; see `Groups.choose`. The extension is loaded only if it is wanted."""
    if checked(name) == "gloo":
        return GlooCommunicator
    from trainmover.comm.native.communicator import NativeCommunicator

    return functools.partial(NativeCommunicator, token)


def waits_of(name: str) -> Callable[[], int] | None:
    """For how many nanoseconds this process has waited for other seats, as that communicator counts
    it; None if it does not."""
    if name == "gloo":
        return None
    from trainmover import _native

    return _native.waited_ns


def load_all() -> None:
    """Whichever is wanted later."""
    if native_is_built():
        communicator_named("native", None)
