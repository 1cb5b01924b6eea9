"""Orders about checkpoints, carried out in a thread; what comes of them is an event."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from trainmover.controller.effects import FindCheckpoint, GiveUpCheckpoint, HostOrder, Publish
from trainmover.controller.events import (
    EVENTS,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
)
from trainmover.protocol.messages import JobSpec
from trainmover.server.checkpoints.check import newest_usable
from trainmover.server.checkpoints.folder import CheckpointFolder


class Saving:
    """One thread, so that orders are carried out one after the other.

    folder  of this run; None: it makes no checkpoints
    happened  called on the loop with what came of an order
    failed  called on the loop with what should never be raised
    """

    def __init__(
        self,
        folder: CheckpointFolder | None,
        spec: JobSpec,
        *,
        now: Callable[[], int],
        happened: Callable[[EVENTS], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._now = now
        self._happened = happened
        self._failed = failed
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: set[asyncio.Future[EVENTS | None]] = set()

    def carry_out(self, order: HostOrder) -> None:
        """Begin; the loop goes on."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "tm-saving")
        loop = asyncio.get_running_loop()
        doing = loop.run_in_executor(self._thread, self._do, order)
        self._under_way.add(doing)
        doing.add_done_callback(self._done)

    async def close(self) -> None:
        """Returns when what was begun is done: a checkpoint is never left half published."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._thread is not None:
            self._thread.shutdown()

    def _done(self, doing: "asyncio.Future[EVENTS | None]") -> None:
        self._under_way.discard(doing)
        error = doing.exception()
        if error is not None:
            self._failed(error)
        elif (event := doing.result()) is not None:
            self._happened(msgspec.structs.replace(event, at_us=self._now()))

    def _do(self, order: HostOrder) -> EVENTS | None:
        """In the thread. What comes of it gets its time when it is told."""
        match order:
            case Publish(checkpoint=checkpoint):
                try:
                    self._writable.publish(checkpoint, self._spec.checkpoints_kept)
                except OSError as error:
                    self._writable.give_up(checkpoint.step, checkpoint.epoch)
                    why = os.strerror(error.errno or 0)
                    step, epoch = checkpoint.step, checkpoint.epoch
                    return CheckpointFailed(at_us=0, step=step, epoch=epoch, why=why)
                return CheckpointPublished(at_us=0, checkpoint=checkpoint)
            case GiveUpCheckpoint(step=step, epoch=epoch):
                self._writable.give_up(step, epoch)
                return None
            case FindCheckpoint(epoch=epoch, unusable=unusable):
                found, damaged = newest_usable(
                    self._folders(), unusable, records_are_elsewhere=True
                )
                return CheckpointFound(at_us=0, epoch=epoch, checkpoint=found, damaged=damaged)

    @property
    def _writable(self) -> CheckpointFolder:
        assert self._folder is not None
        return self._folder

    def _folders(self) -> list[Path]:
        resume = self._spec.resume
        given = [self._spec.checkpoint, resume.folder if resume is not None else ""]
        return [Path(folder) for folder in given if folder]
