# SPDX-License-Identifier: Apache-2.0
"""monitored_barrier: a barrier that says who did not come.

Seat 0 hears from everybody and then tells everybody how it went; only seat 0 has a deadline, so
that the others do not go before it could name who is missing.

torch's own lies inside gloo's C++ and uses gloo's connections, which such a group has not: without
this one `dist.monitored_barrier` raises "only GLOO supports monitored barrier", and with a plain
barrier that has a deadline all three of torch's tests of it that four ranks run fail.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from trainmover.comm.failures import ConnectionEnded
from trainmover.comm.native.types import moved_code
from trainmover.comm.native.work import NativeWork

if TYPE_CHECKING:
    from trainmover.comm.native.session import NativeSession

_TAGS = 1 << 30
"""Far from what scripts use; two for each barrier of an epoch."""

_ALL_CAME = 1
_CODE = moved_code(torch.int64)


def monitored_barrier(session: "NativeSession", timeout: Any, *, wait_all: bool) -> None:
    """Raises on every seat that came when one did not come within `timeout`.

    timeout   a timedelta or seconds; None for the group's
    wait_all  name all who are missing, not just the first
    """
    session.barriers += 1
    tag = _TAGS + 2 * session.barriers
    if session.seat != 0:
        _report(session, tag)
        return
    limit = session.timeout if timeout is None else timeout
    limit_s = limit.total_seconds() if isinstance(limit, timedelta) else float(limit)
    failure = _collect(session, tag, limit_s, wait_all=wait_all)
    verdict = torch.tensor([0 if failure else _ALL_CAME])
    sent = [_send(session, verdict, seat, tag + 1) for seat in range(1, session.size)]
    if failure:
        raise ConnectionEnded(failure)
    for work in sent:
        work.wait()


def _report(session: "NativeSession", tag: int) -> None:
    """Tell seat 0 that we are here, hear how it went."""
    verdict = torch.zeros(1, dtype=torch.int64)
    trouble: Exception | None = None
    try:
        sent = _send(session, torch.tensor([session.seat]), 0, tag)
        heard = _receive(session, verdict, 0, tag + 1)
        sent.wait()
        heard.wait()
    except RuntimeError as error:
        trouble = session.translate(error)
    if trouble is not None or int(verdict[0]) != _ALL_CAME:
        raise ConnectionEnded(
            f"Rank {session.seat} successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n "
            f"Original exception: \n{trouble or 'rank 0 missed a rank'}"
        )


def _collect(session: "NativeSession", tag: int, limit_s: float, *, wait_all: bool) -> str:
    """Hear from all other seats; what to say of those who are missing."""
    began = time.monotonic()
    came: list[int] = []
    missing: list[int] = []
    box = torch.zeros(session.size, dtype=torch.int64)
    works = [_receive(session, box[seat:], seat, tag) for seat in range(1, session.size)]
    for seat, work in enumerate(works, start=1):
        left_s = limit_s - (0 if wait_all else time.monotonic() - began)
        if left_s <= 0 and not wait_all:
            return _ran_out(limit_s, came)
        if _came(work, left_s):
            came.append(seat)
        elif wait_all:
            missing.append(seat)
        else:
            return f"[Rank 0]: Rank {seat} failed to pass monitoredBarrier in {_ms(limit_s)} ms"
    if not missing:
        return ""
    names = ", ".join(map(str, missing))
    return f"[Rank 0]: Ranks {names} failed to pass monitoredBarrier in {_ms(limit_s)} ms"


def _came(work: NativeWork, left_s: float) -> bool:
    return work.ends_within(max(0.0, left_s)) and work.is_success()


def _ran_out(limit_s: float, came: Sequence[int]) -> str:
    processed = (
        f"Successfully processed ranks: {', '.join(map(str, came))}"
        if came
        else "No ranks successfully processed in monitoredBarrier."
    )
    return f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {_ms(limit_s)} ms.\n{processed}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _send(session: "NativeSession", tensor: torch.Tensor, to: int, tag: int) -> NativeWork:
    ticket = session.group.send(tensor.data_ptr(), 1, _CODE, to, tag, session.epoch)
    return NativeWork(session, ticket, [], tensor)


def _receive(session: "NativeSession", tensor: torch.Tensor, source: int, tag: int) -> NativeWork:
    ticket = session.group.recv(tensor.data_ptr(), 1, _CODE, source, tag, session.epoch)
    return NativeWork(session, ticket, [], tensor)
