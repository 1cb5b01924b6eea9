# SPDX-License-Identifier: Apache-2.0
"""Changes as server-sent events, for any number of readers at little more than the cost of one.

What is sent is encoded once. A reader is given the next when the last has gone out, so nothing is
queued for one that is slow: it has a place in the journal, and what the kernel and one buffer hold.
One that takes nothing for a while is cut off (`visitor`); it may come again and go on after its
last id.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from trainmover.descriptors import shares
from trainmover.ids import Slot
from trainmover.server.http.roles import Role
from trainmover.server.http.types import Entry, Pulse
from trainmover.server.run import Server
from trainmover.server.view.notices import Happened, Told

PULSE_S = 1.0
STATUS_S = 0.2
KEPT = 512
"""Entries that are kept encoded."""
CONTENT_TYPE = "text/event-stream"
_HEADERS = [(b"content-type", CONTENT_TYPE.encode()), (b"cache-control", b"no-store")]


class Feed:
    """What all readers get, made once for all of them. readers: how many there are of each role, of
    `streams_max`."""

    def __init__(self, server: Server, now_s: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._now_s = now_s
        self._lines: dict[int, bytes] = {}
        self._status = (-1.0, -1, b"")
        self._pulse = (-1.0, b"")
        self.readers: Counter[Role] = Counter()
        self.streams_max = shares().streams

    def line(self, told: Told) -> bytes:
        """One entry."""
        line = self._lines.get(told.seq)
        if line is None:
            line = b"id: %d\ndata: %s\n\n" % (told.seq, msgspec.json.encode(entry(told)))
            self._lines[told.seq] = line
            while len(self._lines) > KEPT:
                del self._lines[next(iter(self._lines))]
        return line

    def status(self) -> bytes:
        """As it was decided last; what only time changes may be a moment old."""
        at_s, seq, data = self._status
        now_s, newest = self._now_s(), self._server.news.newest
        if seq != newest or now_s - at_s > STATUS_S:
            data = msgspec.json.encode(self._server.status())
            self._status = (now_s, newest, data)
        return data

    def pulse(self) -> bytes:
        """Return what changes all the time: at most a second old, and true once the job is over."""
        at_s, line = self._pulse
        now_s = self._now_s()
        if self._server.over or now_s - at_s >= PULSE_S / 2:
            line = b"event: pulse\ndata: %s\n\n" % msgspec.json.encode(pulse(self._server))
            self._pulse = (now_s, line)
        return line


class EventStream:
    """The answer of one reader: entries above `after`, then each as it comes, until the job is
    over; with a pulse each second, if it is asked for."""

    def __init__(self, server: Server, feed: Feed, role: Role, after: int, *, pulses: bool) -> None:
        self._server = server
        self._role = role
        self._feed = feed
        self._after = after
        self._pulses = pulses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._feed.readers[self._role] += 1
        gone = asyncio.create_task(_gone(receive))
        said = asyncio.create_task(self._say(send))
        try:
            await asyncio.wait({gone, said}, return_when=asyncio.FIRST_COMPLETED)
            if said.done():
                said.result()
        finally:
            self._feed.readers[self._role] -= 1
            gone.cancel()
            said.cancel()

    async def _say(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for part in self._parts():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self) -> AsyncIterator[bytes]:
        while True:
            more, over = self._server.news.more, self._server.over
            async for told in self._server.news.since(self._after):
                yield self._feed.line(told)
                self._after = told.seq
            if self._pulses:
                yield self._feed.pulse()
            if over:  # The last pulse was made after the end.
                return
            if not self._server.over:
                await self._next(more)

    async def _next(self, more: asyncio.Event) -> None:
        """Until there is something to say."""
        if not self._pulses:
            await more.wait()
            return
        try:
            async with asyncio.timeout(PULSE_S):
                await more.wait()
        except TimeoutError:
            pass


async def _gone(receive: Receive) -> None:
    """Until the reader is."""
    while (await receive())["type"] != "http.disconnect":
        pass


def entry(told: Told | Happened) -> Entry:
    """One entry of the journal."""
    event: dict[str, Any] | None = msgspec.to_builtins(told.event, str_keys=True)
    return Entry(seq=told.seq, at_us=told.at_us, kind=told.kind, text=told.text, event=event)


def pulse(server: Server) -> Pulse:
    """From what each machine's ranks have said."""
    job, progress = server.job, server.progress
    away = set(server.control.absence.away)
    machines: dict[str, tuple[int | None, float | None, bool]] = {}
    for slot, name in enumerate(job.seats):
        machines[name] = (*progress.of(job.spec.ranks(Slot(slot))), name in away)
    machines |= {name: (None, None, True) for name in away if name not in machines}
    return Pulse(
        at_us=server.now(),
        phase=str(job.phase),
        epoch=job.epoch,
        step=progress.step,
        loss=progress.loss,
        step_ms=progress.step_ms,
        over=server.over,
        code=job.code,
        ended_because=job.ended_because,
        machines=machines,
    )
