# SPDX-License-Identifier: Apache-2.0
"""When what was begun on a device has ended there: asked before anything is believed or put
back."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from trainmover.comm.calls.watch import Watch
from trainmover.comm.failures import ConnectionEnded, DeviceLost
from trainmover.comm.progress import Stall

if TYPE_CHECKING:
    from trainmover.comm.by_device import ByDeviceSession

_LOOK_AGAIN_S = 0.00005


def come_through(
    watches: Sequence[Watch],
    absorb: Callable[[Watch, BaseException], bool],
    tainted: Callable[[], bool],
) -> bool:
    """See `Groups.come_through`. What the library has noted in the background ends the epoch."""
    for watch in watches:
        session = _session(watch)
        while True:
            come = _asked(session.come_through)
            if trouble := session.trouble():
                absorb(watch, ConnectionEnded(f"Connection closed: {trouble}"))
            if tainted() or trouble:
                return False
            if come:
                break
            time.sleep(_LOOK_AGAIN_S)
    return not tainted()


def await_empty(watches: Sequence[Watch]) -> None:
    """See `Groups.await_empty_device`."""
    sessions = [_session(watch) for watch in watches]
    stall = Stall(lambda: sum(session.completed for session in sessions))
    for session in sessions:
        while not _asked(session.is_empty):
            if stall.is_over():
                raise DeviceLost(f"what group {session.device.name} has begun does not end there")
            time.sleep(_LOOK_AGAIN_S)


def _session(watch: Watch) -> "ByDeviceSession":
    return cast("ByDeviceSession", watch.session)


def _asked(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except RuntimeError as error:
        raise DeviceLost(str(error).split("\n")[0]) from error
