"""What has happened, for whoever watches now and for those who ask later."""

import asyncio
from collections.abc import Callable

from trainmover.server.notices import Happened, Notice


class News:
    """happened: everything in the journal, in order; what is there already is given."""

    def __init__(self, watch: Callable[[Notice], None] | None, happened: list[Happened]) -> None:
        self.happened = happened
        self._watch = watch
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

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._more.set()
        self._more = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        """For who watches now only."""
        if self._watch is not None:
            self._watch(notice)
