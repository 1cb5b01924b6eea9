# SPDX-License-Identifier: Apache-2.0
"""Orders about checkpoints, carried out in a thread; what comes of them is an event.

A disk may hang: a file operation then does not return, and nothing can end it. So an order has a
deadline, behind which it is given up and the next one begins in another thread; and no thread keeps
the process from its end. The thread of an order that was given up does nothing more once its
operation returns.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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

DEADLINE_S = 600.0
DEADLINE_FACTOR = 10.0
"""An order may take as long as the first, or so many times as long as the last one of its kind."""
CLOSE_S = 30.0
"""The end of a run waits so long for the order under way."""


class Note(Protocol):
    """Write a line for people."""

    def __call__(self, text: str, *, loud: bool = False) -> None: ...


class _GivenUp(Exception):
    """Nobody waits for this order any more."""


class _Task:
    """One order under way. operation: what its thread has begun last."""

    def __init__(self, order: HostOrder, began_s: float) -> None:
        self.order = order
        self.began_s = began_s
        self.operation = "the first file operation"
        self.given_up = False
        self.deadline: asyncio.TimerHandle | None = None

    def at(self, operation: str) -> None:
        """Called by the thread before each operation."""
        if self.given_up:
            raise _GivenUp
        self.operation = operation


class Saving:
    """Orders are carried out one after the other.

    folder  of this run; None: it makes no checkpoints
    happened  called on the loop with what came of an order
    failed  called on the loop with what should never be raised
    note    called on the loop with what no event says
    """

    def __init__(
        self,
        folder: CheckpointFolder | None,
        spec: JobSpec,
        *,
        now: Callable[[], int],
        happened: Callable[[EVENTS], None],
        failed: Callable[[BaseException], None],
        note: Note,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._now = now
        self._happened = happened
        self._failed = failed
        self._note = note
        self._waiting: deque[HostOrder] = deque()
        self._task: _Task | None = None
        self._took_s: dict[type[HostOrder], float] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def carry_out(self, order: HostOrder) -> None:
        """Begin; the loop goes on."""
        self._waiting.append(order)
        self._next()

    async def close(self) -> None:
        """Return when what was begun is done: a checkpoint is never left half published. A disk
        that hangs is waited for `CLOSE_S`, and named then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), CLOSE_S)
            return
        self._waiting.clear()
        if self._task is not None:
            why = self._abandon(self._task)
            self._note(
                f"the disk of checkpoints hangs ({why}): the run ends without it.\n"
                "Checkpoints that were written before are whole. Look at that disk.",
                loud=True,
            )

    def _next(self) -> None:
        if self._task is not None:
            return
        if not self._waiting:
            self._idle.set()
            return
        self._idle.clear()
        loop = asyncio.get_running_loop()
        task = self._task = _Task(self._waiting.popleft(), loop.time())
        last_s = self._took_s.get(type(task.order), 0.0)
        deadline_s = max(DEADLINE_S, DEADLINE_FACTOR * last_s)
        task.deadline = loop.call_later(deadline_s, self._give_up, task)
        # A daemon: the interpreter joins all other threads before it ends.
        threading.Thread(target=self._run, args=(task, loop), name="tm-saving", daemon=True).start()

    def _run(self, task: _Task, loop: asyncio.AbstractEventLoop) -> None:
        """In the thread."""
        event: EVENTS | None = None
        raised: BaseException | None = None
        try:
            event = self._do(task)
        except _GivenUp:
            return
        except BaseException as error:  # noqa: BLE001  a thread's outermost: the server gets it
            raised = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: the run has ended.
            loop.call_soon_threadsafe(self._done, task, event, raised)

    def _done(self, task: _Task, event: EVENTS | None, raised: BaseException | None) -> None:
        if task.given_up:
            return
        assert task.deadline is not None
        task.deadline.cancel()
        self._took_s[type(task.order)] = asyncio.get_running_loop().time() - task.began_s
        self._task = None
        self._next()
        if raised is not None:
            self._failed(raised)
        elif event is not None:
            self._happened(msgspec.structs.replace(event, at_us=self._now()))

    def _give_up(self, task: _Task) -> None:
        why = self._abandon(task)
        self._next()
        match task.order:
            case Publish(checkpoint=checkpoint):
                self._happened(
                    CheckpointFailed(
                        at_us=self._now(), step=checkpoint.step, epoch=checkpoint.epoch, why=why
                    )
                )
            case FindCheckpoint(epoch=epoch):
                said = f"The disk of checkpoints hangs: {why}."
                self._happened(
                    CheckpointFound(at_us=self._now(), epoch=epoch, checkpoint=None, damaged=[said])
                )
            case GiveUpCheckpoint(step=step):
                text = (
                    f"what was written of the checkpoint of step {step} could not be removed "
                    f"({why}): the job trains on. Look at the disk of checkpoints"
                )
                self._note(text, loud=True)

    def _abandon(self, task: _Task) -> str:
        """Wait for it no longer. Returns what has not ended, in words."""
        assert task.deadline is not None
        task.deadline.cancel()
        task.given_up = True
        self._task = None
        waited_s = asyncio.get_running_loop().time() - task.began_s
        return f"{task.operation} has not ended in {waited_s:.0f} s"

    def _do(self, task: _Task) -> EVENTS | None:
        """In the thread. What comes of it gets its time when it is told."""
        match task.order:
            case Publish(checkpoint=checkpoint):
                try:
                    self._writable.publish(checkpoint, self._spec.checkpoints_kept, task.at)
                except OSError as error:
                    self._writable.give_up(checkpoint.step, checkpoint.epoch, task.at)
                    why = os.strerror(error.errno or 0)
                    step, epoch = checkpoint.step, checkpoint.epoch
                    return CheckpointFailed(at_us=0, step=step, epoch=epoch, why=why)
                return CheckpointPublished(at_us=0, checkpoint=checkpoint)
            case GiveUpCheckpoint(step=step, epoch=epoch):
                self._writable.give_up(step, epoch, task.at)
                return None
            case FindCheckpoint(epoch=epoch, unusable=unusable):
                found, said = newest_usable(
                    self._folders(), unusable, task.at, records_are_elsewhere=True
                )
                return CheckpointFound(at_us=0, epoch=epoch, checkpoint=found, damaged=said)

    @property
    def _writable(self) -> CheckpointFolder:
        assert self._folder is not None
        return self._folder

    def _folders(self) -> list[Path]:
        resume = self._spec.resume
        given = [self._spec.checkpoint, resume.folder if resume is not None else ""]
        return [Path(folder) for folder in given if folder]
