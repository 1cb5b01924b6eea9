# SPDX-License-Identifier: Apache-2.0
"""Ends of communicators: all of a process together, in a thread, while the device makes progress.

A kernel that waits for a seat that is gone spins until its communicator's abort flag is set, and it
may stand before another group's kernel, which then cannot end either. Who ended one communicator
after the other would wait for ever for the second's kernels behind the first's. So all flags are
set before anything is waited for: one ncclGroup of all.

    abort   revoked where libnccl can: its kernels end, its memory stays. Else aborted: that frees
    it free    nobody uses it any more

The library returns once the kernels that were queued before have run, which may take long. What it
does not end while the device completes no call any more (`comm.progress`) is *leaked*: counted,
never touched again. Who waits for such a call is let go, and told so.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from trainmover.comm.calls.threads import in_background
from trainmover.comm.nccl.library import Library
from trainmover.comm.progress import Stall

_LOCK_S = 0.05
_LOCK_TO_FREE_S = 1.0
_LOOK_AGAIN_S = 0.05


class Ends(Protocol):
    """State of a communicator that is needed to end it.

    calling    held by who is inside a call of it
    ended      its kernels have ended, or it is leaked
    freed      so is its memory, or it is leaked
    lost       it is leaked
    completed  calls that the device has completed
    """

    comm: int
    calling: threading.Lock
    ended: threading.Event
    freed: threading.Event
    lost: bool

    @property
    def completed(self) -> int: ...


class Endings:
    """Ends of the communicators of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gathered: list[Ends] | None = None
        self.leaked = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context; what is aborted within it is ended as one."""
        with self._lock:
            outermost = self._gathered is None
            if outermost:
                self._gathered = []
        try:
            yield
        finally:
            if outermost:
                with self._lock:
                    all_of_them, self._gathered = self._gathered, None
                if all_of_them:
                    self._begin(all_of_them, frees=False)

    def abort(self, library: Library, one: Ends) -> None:
        """End its kernels, soon. Never blocks."""
        self._library = library
        with self._lock:
            if self._gathered is not None:
                self._gathered.append(one)
                return
        self._begin([one], frees=False)

    def free(self, library: Library, ones: Sequence[Ends]) -> None:
        """Give back what they hold, soon. Never blocks; once for each."""
        self._library = library
        if ones:
            self._begin(list(ones), frees=True)

    def _begin(self, ones: list[Ends], *, frees: bool) -> None:
        in_background("nccl-ending", lambda: self._end_in_time(ones, frees=frees))

    def _end_in_time(self, ones: list[Ends], *, frees: bool) -> None:
        in_background("nccl-abort", lambda: self._end(ones, frees=frees))
        stall = Stall(lambda: sum(one.completed for one in ones))
        while left := _left(ones, frees=frees):
            if stall.is_over():
                self._leak(left)
            (left[0].freed if frees else left[0].ended).wait(_LOOK_AGAIN_S)

    def _end(self, ones: Sequence[Ends], *, frees: bool) -> None:
        """Whoever is inside a call may be stuck in it: revoking lets it out, freeing would be under
        it, so that waits until it has left."""
        revokes = self._library.revokes and not frees
        patience_s = _LOCK_S if self._library.revokes else _LOCK_TO_FREE_S
        while left := _left(ones, frees=frees):
            held = [one for one in left if one.calling.acquire(timeout=patience_s)]
            try:
                able = left if revokes else held
                self._end_as_one(_left(able, frees=frees), frees=frees)
            finally:
                for one in held:
                    one.calling.release()

    def _end_as_one(self, ones: Sequence[Ends], *, frees: bool) -> None:
        """One that the library refuses is leaked; the others end all the same."""
        if not ones:
            return
        library = self._library
        library.group_start()
        refused = [one for one in ones if not _asked(library, one, frees=frees)]
        try:
            library.group_end()
        except RuntimeError:
            refused = list(ones)
        self._leak(refused)
        for one in ones:
            one.ended.set()
            if frees or not library.revokes:
                one.freed.set()

    def _leak(self, ones: Sequence[Ends]) -> None:
        with self._lock:
            self.leaked += sum(not one.lost for one in ones)
        for one in ones:
            one.lost = True
            one.ended.set()
            one.freed.set()


def _left(ones: Sequence[Ends], *, frees: bool) -> list[Ends]:
    return [one for one in ones if not (one.freed if frees else one.ended).is_set()]


def _asked(library: Library, one: Ends, *, frees: bool) -> bool:
    """False: the library refuses to end it."""
    try:
        if library.comm_revoke is not None and not frees:
            library.comm_revoke(one.comm, 0)
        else:
            library.comm_abort(one.comm)
    except RuntimeError:
        return False
    return True


endings = Endings()
"""Those of this process."""
