# SPDX-License-Identifier: Apache-2.0
"""Groups of one machine's own ranks while its workers run the script in the sandbox.

What stays inside a machine needs no record: the workers of a standby run the script side by side
and call each other in earnest. They meet in the job's store under the number of their run, which no
other run has. The job's communicator carries them, a second one beside each group's own: that one
is for epochs, and takes over at the switchover.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from trainmover.comm.communicator import Communicator, Session
from trainmover.comm.failures import Drained
from trainmover.comm.meet.places import Meetings
from trainmover.comm.meet.preparation import Preparation
from trainmover.comm.member import Member
from trainmover.torch_internals.distributed.c10d import Store

_PATIENCE = timedelta(days=1)
"""Nothing in a sandbox is decided by a group's timeout: workers begin their runs at different
times, and who stands still for long is given up by `Patience`."""


class Inside:
    """The connections of one run in the sandbox.

    run    its number: equal in the machine's workers, of no other run
    store  gives a connection of its own; asked when the first group with a peer is made
    """

    def __init__(
        self, run: int, store: Callable[[], Store], carrier: Callable[[int, Any], Communicator]
    ) -> None:
        self._run = run
        self._open_store = store
        self._store: Store | None = None
        self._carrier = carrier
        self._lock = threading.Lock()
        self._carriers: dict[Member, Communicator] = {}
        self._met = Meetings()
        self._meetings: list[Preparation] = []
        self._over = False

    def connect(self, member: Member) -> Session:
        """Meet the group's other workers: blocks until all have made it.

        Raises Drained once the run is given up, PeerLost when the store is gone.
        """
        carrier = self._carrier(member.size, member.device)
        with self._lock:
            if self._over:
                raise Drained(f"run {self._run} was given up")
            self._carriers[member] = carrier
        if member.size > 1:
            self._meet(member, carrier)
        carrier.switchover(self._run)
        session = carrier.session
        if session is None:
            raise Drained(f"group {member.name} has ended")
        return session

    def _meet(self, member: Member, carrier: Communicator) -> None:
        name = self._met.name(self._run, f"sandbox/{self._run}/{member.place}")
        seat = Member(name, member.seat, member.size, _PATIENCE, carrier)
        meeting = Preparation(self._run, self._connection, {seat: ""})
        with self._lock:
            self._meetings.append(meeting)
        meeting.start()
        if self._over:
            meeting.cancel()
        meeting.wait()
        with self._lock:
            self._meetings.remove(meeting)
            given_up = self._over
        if meeting.error is not None:
            raise meeting.error
        if given_up:  # And with it, perhaps, what was connected.
            raise Drained(f"run {self._run} was given up")
        self._met.note(self._run, [name])

    def _connection(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    @property
    def meeting(self) -> bool:
        """Whether some worker has still to come to a group that this one makes."""
        return bool(self._meetings)

    def part(self, member: Member) -> None:
        """The script has destroyed the group. Never blocks."""
        with self._lock:
            carrier = self._carriers.pop(member, None)
        if carrier is not None:
            carrier.close()

    def give_up(self) -> None:
        """Whoever waits for a peer to come raises Drained, now and from now on."""
        with self._lock:
            self._over = True
            meetings = list(self._meetings)
        for meeting in meetings:
            meeting.cancel()

    def close(self) -> None:
        """Destroy everything. Others who still wait for this worker are not told: see
        `Groups.desert`. Never blocks."""
        self.give_up()
        with self._lock:
            carriers, self._carriers = self._carriers, {}
        for carrier in carriers.values():
            carrier.close()
