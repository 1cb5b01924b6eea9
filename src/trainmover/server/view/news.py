# SPDX-License-Identifier: Apache-2.0
"""What has happened, for whoever watches now and for those who ask later."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import takewhile

from trainmover.controller.events import ControllerReturned
from trainmover.journal import Journal
from trainmover.server.history.bookmarks import told
from trainmover.server.history.wall import WallTimes
from trainmover.server.view.notices import Happened, Notice, Told

AT_ONCE = 200


class News:
    """What stands in the journal up to `after` is read from there when somebody asks; `recent` is
    what came behind it, in order."""

    def __init__(
        self,
        watch: Callable[[Notice], None] | None,
        recent: Iterable[Told],
        journal: Journal,
        after: int,
    ) -> None:
        self.recent = deque(recent)
        self._watch = watch
        self._journal = journal
        self._after = after
        self._more = asyncio.Event()

    @property
    def newest(self) -> int:
        """Number of the last entry."""
        return self.recent[-1].seq if self.recent else self._after

    @property
    def is_watched(self) -> bool:
        """Whether anybody is told at once."""
        return self._watch is not None

    @property
    def more(self) -> asyncio.Event:
        """Set once there is more, or nothing more to come. Each serves once."""
        return self._more

    def add(self, happened: Happened) -> None:
        """An entry of the journal."""
        one = happened
        self.recent.append(Told(one.seq, one.at_us, one.kind, one.text, one.event))
        self.wake()
        self.tell(happened)

    def forget(self, up_to: int) -> None:
        """The journal has a bookmark there, with what was told until then."""
        while self.recent and self.recent[0].seq <= up_to:
            self.recent.popleft()
        self._after = max(self._after, up_to)

    async def since(self, after: int) -> AsyncIterator[Told]:
        """Entries above `after`, up to the newest; the loop is not held up."""
        while after < self._after:
            until = self._after
            for one in self._from_journal(after, until):
                yield one
                if one.seq % AT_ONCE == 0:
                    await asyncio.sleep(0)
            after = until
        newer = list(takewhile(lambda one: one.seq > after, reversed(self.recent)))
        for one in reversed(newer):
            yield one

    def _from_journal(self, after: int, until: int) -> Iterator[Told]:
        sentences = told(self._journal)
        times = WallTimes(self._journal.events_of(ControllerReturned))
        for first in range(after, until, AT_ONCE):
            for entry in list(self._journal.entries(first, min(first + AT_ONCE, until))):
                text = sentences.get(entry.seq, entry.text)
                yield Told(entry.seq, times.shown(entry.at_us), entry.kind, text, entry.event)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._more.set()
        self._more = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        """For who watches now only."""
        if self._watch is not None:
            self._watch(notice)
