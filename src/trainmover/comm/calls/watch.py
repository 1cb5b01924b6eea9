# SPDX-License-Identifier: Apache-2.0
"""All who wait on one session, released together when its epoch ends."""

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, cast

from trainmover.comm.calls.settled import Request, SettledWork
from trainmover.comm.calls.tap import Call
from trainmover.comm.calls.work import BlockingCall, WatchedWork
from trainmover.comm.communicator import PromptSession, Session


class Owner(Protocol):
    """What a watch asks of the registry of all groups."""

    def absorb(self, watch: "Watch", error: BaseException) -> bool:
        """True: the error is a lost peer that the runtime handles; the caller must not see it.

        The registry is marked as broken before this returns, so nobody can act on the result of
        the failed call and still believe in the epoch.
        """

    def cut_short(self) -> None:
        """A call of the script has ended because its session did, without its outputs."""

    def gave_up(self) -> None:
        """This thread is about to go on with what such a call has left. May raise anything."""

    def finished(self, call: Call) -> None:
        """The outputs of a call that ran for real are final."""


class Watch:
    """Everybody who waits on one session, so that all of them can be released at once.

    seat     this process's in the group
    private  the group is one of ours, which the script does not know
    """

    def __init__(
        self, session: Session, owner: Owner, *, seat: int = 0, private: bool = False
    ) -> None:
        self.session = session
        self.seat = seat
        self.private = private
        self.prompt = cast(PromptSession, session) if session.prompt else None
        self.owner = owner
        self.released = False
        self.stranded: list[WatchedWork] = []
        self._waiting: dict[int, WatchedWork] = {}
        if self.prompt is not None:
            self.prompt.attach(*_asking(weakref.ref(self)))

    def start(self, request: Request) -> Any:
        """Issue the call; its handle ends with the call or with the session."""
        try:
            if self.prompt is not None:
                return self.prompt.start(request, self._telling(request.call))
            work = self.session.issue(request.op, request.args, request.kwargs)
        except Exception as error:
            known = self.judge(error)
            if known is error:
                raise
            if known is not None:
                raise known from error
            self.gave_up()
            return SettledWork(request.given_up(self.seat))
        if self.session.immediate:
            if request.call is not None:
                self.owner.finished(request.call)
            return work
        return WatchedWork(self, work, request)

    @property
    def unfinished(self) -> bool:
        """Whether a call has begun and not ended, as far as it is waited for or has a future."""
        return bool(self._waiting) or (self.prompt is not None and self.prompt.unfinished)

    def judge(self, error: Exception) -> Exception | None:
        """What the caller has to see of an error; None: nothing, his call ends as if drained."""
        known = error if self.prompt is None else self.prompt.translate(error)
        return None if self.owner.absorb(self, known) else known

    def gave_up(self) -> None:
        """See `Owner`; calls of ours tell who made them."""
        if not self.private:
            self.owner.gave_up()

    def _telling(self, call: Call | None) -> Callable[[], None] | None:
        return None if call is None else functools.partial(self.owner.finished, call)

    def run(self, request: Request) -> None:
        """A call that blocks and has no handle: return when it ends or the session does."""
        if self.session.immediate or self.prompt is not None:
            self.start(request)
            return
        work = WatchedWork(self, BlockingCall(self.session, request), request)
        work.wait()

    def enter(self, work: "WatchedWork") -> bool:
        """Register a waiter; False when the session has already ended."""
        self._waiting[id(work)] = work
        return not (self.released and self.leave(work))

    def leave(self, work: "WatchedWork") -> bool:
        """True for exactly one caller per registered waiter: that one settles it."""
        return self._waiting.pop(id(work), None) is not None

    def release(self) -> None:
        """End everything that waits. Callbacks of futures run in this thread."""
        self.released = True
        while self._waiting:
            try:
                _, work = self._waiting.popitem()
            except KeyError:
                return
            work.end_with_session()


def _asking(
    watch: "weakref.ref[Watch]",
) -> tuple[Callable[[BaseException], bool], Callable[[], None]]:
    """Weak: a group ends with its last reference, and its session must not keep it."""

    def absorb(error: BaseException) -> bool:
        asked = watch()
        return asked is not None and asked.owner.absorb(asked, error)

    def gave_up() -> None:
        asked = watch()
        if asked is not None:
            asked.gave_up()

    return absorb, gave_up


def wait_for_stranded(watches: list[Watch], still: Callable[[], bool]) -> int:
    """Wait while `still` for calls that a drain left behind; the number that did not end.

    A call that is left may write to the script's buffers for as long as bytes arrive. Its sockets
    are cut, so that ends at once; only work that waits to *send* may stay, and it writes nothing.
    """
    left = [work for watch in watches for work in watch.stranded]
    pause = threading.Event()
    while left and still():
        left = [work for work in left if work.still_runs()]
        if left:
            pause.wait(0.001)
    return len(left)
