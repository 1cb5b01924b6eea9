# SPDX-License-Identifier: Apache-2.0
"""A group carried by the native communicator: links that both epochs need are kept.

Per epoch the seats leave their cards (who they are, where they listen) under `epoch/group` in the
store, and the extension opens what is missing. A link belongs to the process and not to the group,
so a process that stays keeps its links to all others that stay, untouched.
"""

import threading
from typing import NamedTuple

from trainmover import _native
from trainmover.comm.communicator import LinkStats, View
from trainmover.comm.failures import Drained
from trainmover.comm.meet.meeting import Meeting
from trainmover.comm.meet.upcoming import Upcoming
from trainmover.comm.native.endpoint import OpenEndpoint, endpoint, token_to_offer
from trainmover.comm.native.session import NativeSession
from trainmover.errors import PeerLost


class _Place(NamedTuple):
    """Where this seat is at home, in all epochs."""

    endpoint: OpenEndpoint
    group: _native.Group


class NativeCommunicator:
    """Carries one group; see `Communicator` for the protocol.

    token  the job's; None: seat 0 brings one, through the store
    """

    def __init__(self, token: bytes | None = None) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._place: _Place | None = None
        self._session: NativeSession | None = None
        self._upcoming = Upcoming(_free)
        self._stats = LinkStats()

    @property
    def session(self) -> NativeSession | None:
        return self._session

    def prepare(self, view: View) -> None:
        self._upcoming.prepare(view, self._connect)

    def _connect(self, meeting: Meeting) -> NativeSession:
        view = meeting.view
        meeting.take_seat()
        token = self._token
        if token is None:
            token = _read(meeting.hear("token", token_to_offer().hex()))
        opened, group = self._enter(view, token)
        cards = [_read(card) for card in meeting.exchange("card", group.card().hex())]
        meeting.check()
        try:
            group.prepare(view.epoch, cards, view.timeout.total_seconds())
        except _native.Aborted as error:
            raise Drained(f"epoch {view.epoch} was given up") from error
        except (_native.PeerLost, _native.TimedOut) as error:
            raise PeerLost(f"group {view.group} could not connect: {error}") from error
        except _native.Refused as error:
            raise PeerLost(f"group {view.group} may not connect: {error}") from error
        return NativeSession(view, group, opened.completer, self._abort_session)

    def _enter(self, view: View, token: bytes) -> _Place:
        """Raises Drained when the group was closed meanwhile."""
        with self._lock:
            if self._upcoming.closed:
                raise Drained(f"group {view.group} was closed")
            if self._place is None:
                home = endpoint(token)
                group = home.native.group(view.group, view.seat, view.size)
                group.set_timeout(view.timeout.total_seconds())
                self._place = _Place(home, group)
            return self._place

    def discard(self, epoch: int) -> None:
        with self._lock:
            place = self._place
        if self._upcoming.discard(epoch) and place is not None:
            place.group.discard(epoch)  # Whoever connects it is let go.

    def switchover(self, epoch: int) -> None:
        session, prepare_ns = self._upcoming.take(epoch)
        with self._lock:
            session.group.set_timeout(session.timeout.total_seconds())
            done = session.group.switchover(epoch)
            self._session = session
        self._stats = LinkStats(
            opened=done["opened"],
            kept=done["kept"],
            closed=done["closed"],
            prepare_ns=prepare_ns,
            switchover_ns=done["switchover_ns"],
        )

    def abort(self, why: str) -> None:
        session = self._session
        if session is not None:
            session.abort(why)

    def _abort_session(self, session: NativeSession, why: str) -> None:
        """The group carries one session after the other: only the current one can be aborted."""
        with self._lock:
            if self._session is session:
                session.group.abort(why)

    def close(self) -> None:
        coming = self._upcoming.close()
        with self._lock:
            self._session, place = None, self._place
        for epoch in coming:
            self.discard(epoch)
        if place is not None:
            place.group.close()

    def stats(self) -> LinkStats:
        return self._stats


def _free(session: NativeSession) -> None:
    session.group.discard(session.epoch)


def _read(left: str) -> bytes:
    """What a seat has left in the store."""
    try:
        return bytes.fromhex(left)
    except ValueError as error:
        raise PeerLost(f"what a seat left in the store is damaged: {error}") from error
