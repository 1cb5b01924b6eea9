"""What has happened, for whoever watches now and for those who ask later."""

import asyncio
from collections.abc import AsyncIterator, Callable

from trainmover.journal import Journal
from trainmover.server.bookmarks import told
from trainmover.server.notices import Earlier, Happened, Notice

AT_ONCE = 200


class News:
    """happened: what stands in the journal behind entry `after`, in order; that so far is given."""

    def __init__(
        self,
        watch: Callable[[Notice], None] | None,
        happened: list[Happened],
        journal: Journal,
        after: int,
    ) -> None:
        self.happened = happened
        self._watch = watch
        self._journal = journal
        self._after = after
        self._more = asyncio.Event()

    @property
    def more(self) -> asyncio.Event:
        """Set once there is more in `happened`, or nothing more to come. Each serves once."""
        return self._more

    def add(self, happened: Happened) -> None:
        """An entry of the journal."""
        self.happened.append(happened)
        self.wake()
        self.tell(happened)

    async def earlier(self, after: int) -> AsyncIterator[Earlier]:
        """Entries above `after` and before those in `happened`; the loop is not held up."""
        sentences = told(self._journal) if after < self._after else {}
        for first in range(after, self._after, AT_ONCE):
            until = min(first + AT_ONCE, self._after)
            for entry in list(self._journal.entries(first, until)):
                text = sentences.get(entry.seq, entry.text)
                yield Earlier(entry.seq, entry.at_us, entry.kind, text, entry.event)
            await asyncio.sleep(0)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._more.set()
        self._more = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        """For who watches now only."""
        if self._watch is not None:
            self._watch(notice)
