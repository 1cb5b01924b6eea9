# SPDX-License-Identifier: Apache-2.0
"""Dialling the vaults of machines of which nothing is heard."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trainmover.listeners.reach import is_there
from trainmover.protocol.deadlines import ANSWER_S
from trainmover.server.machines.absence import Dialled

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class Calls:
    """failed: is told what was raised that ought not to be."""

    def __init__(self, tls: "Tls | None", *, failed: Callable[[BaseException], None]) -> None:
        self._tls = tls
        self._failed = failed
        self._tasks: set[asyncio.Task[Dialled]] = set()

    def look(self, vault: str, tell: Callable[[Dialled], None]) -> None:
        """Say soon whether somebody answers at that address."""
        task = asyncio.create_task(_look(vault, self._tls))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, tell))

    def close(self) -> None:
        """Nothing is told any more."""
        for task in self._tasks:
            task.cancel()

    def _done(self, tell: Callable[[Dialled], None], task: asyncio.Task[Dialled]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failed(error)
        else:
            tell(task.result())


async def _look(vault: str, tls: "Tls | None") -> Dialled:
    try:
        there = await is_there(vault, tls, within_s=ANSWER_S)
    except (ConnectionRefusedError, ConnectionResetError):
        return Dialled.REFUSED
    except (OSError, ValueError):
        return Dialled.UNREACHED
    return Dialled.ANSWERED if there else Dialled.REFUSED
