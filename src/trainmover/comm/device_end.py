# SPDX-License-Identifier: Apache-2.0
"""When what was begun on a device has ended there: asked before anything is believed or put
back."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from trainmover.comm.calls.threads import in_background
from trainmover.comm.calls.watch import Watch
from trainmover.comm.failures import DeviceLost, means_lost_device
from trainmover.comm.progress import Stall

if TYPE_CHECKING:
    from trainmover.comm.by_device import ByDeviceSession

_LOOK_AGAIN_S = 0.00005
_LOOK_AT_PROGRESS_S = 0.05


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
            if (trouble := session.trouble()) is not None:
                _judge(watch, trouble, absorb)
                return False
            if tainted():
                return False
            if come:
                break
            time.sleep(_LOOK_AGAIN_S)
    return not tainted()


def _judge(
    watch: Watch, trouble: RuntimeError, absorb: Callable[[Watch, BaseException], bool]
) -> None:
    """Raise what no other member of the group would mend."""
    if means_lost_device(trouble):
        raise DeviceLost(str(trouble)) from trouble
    if not absorb(watch, trouble):
        raise trouble


def await_empty(watches: Sequence[Watch]) -> None:
    """See `Groups.await_empty_device`. Waits for the whole device: the script may have streams of
    its own, and a step that is broken off has not joined them."""
    sessions = [_session(watch) for watch in watches]
    stall = Stall(lambda: sum(session.completed for session in sessions))
    done, errors = threading.Event(), list[RuntimeError]()

    def synchronize() -> None:
        try:
            for session in sessions:
                session.synchronize()
        except RuntimeError as error:
            errors.append(error)
        done.set()

    in_background("device-empty", synchronize)
    while not done.wait(_LOOK_AT_PROGRESS_S):
        if stall.is_over() or any(session.lost for session in sessions):
            raise DeviceLost("the device does not complete what it was given")
    for error in errors:
        raise DeviceLost(str(error).split("\n")[0]) from error
    for session in sessions:
        if session.lost:
            raise DeviceLost("a communicator of the device could not be ended")


def _session(watch: Watch) -> "ByDeviceSession":
    return cast("ByDeviceSession", watch.session)


def _asked(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except RuntimeError as error:
        raise DeviceLost(str(error).split("\n")[0]) from error
