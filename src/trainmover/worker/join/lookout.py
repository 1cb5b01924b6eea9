# SPDX-License-Identifier: Apache-2.0
"""What a standby sees of the script's variables before it is needed.

While a run stands in the sandbox as a rank, that rank trains on, and its newest two records are in
a vault. They tell whether the standby could ever stand where the rank does:

    at a fetch of the very loop where the run stands, both have made the same way: what differs
    there would differ after a takeover
    of two records from one pass through a loop, any variable that has changed between them would
        be wrong in at least one: who joins there arrives with the same values, wherever the rank is
    of one of these and another rank's of that step, what steps store to and has not been the same
        on both would be gone behind any gate, since no rank could tell what the step made of it

A plain value that only lines between steps store to is none of these, nor one that steps count: it
is put as the rank has it.
Tracked state is of another moment, so what hangs on it is left out. Of a rank that holds batches in
reserve nothing can be told before a joiner has drawn the same: it is compared when it arrives.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from trainmover.errors import PeerLost, ProtocolError
from trainmover.ids import Rank
from trainmover.protocol.messages import Records
from trainmover.state.script.comparison import Difference, all_in, same_place
from trainmover.state.script.putting import stored
from trainmover.state.script.variables import Variables
from trainmover.state.vault import VaultClient
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.regroup import groups_of
from trainmover.worker.step.courses import parted
from trainmover.worker.step.keeper import RankRecord

FIRST_LOOK_S = 2.0
AGAIN_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Between looks; the last from then on. A value that changes rarely is seen some time later."""
SOON_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""At first, where the rank is between a gate and its next fetch, or two passes: what changes in one
does not show then."""
_CONNECT_S = 2.0
_KEPT = 4
"""Records of another rank, of the newest looks."""


class Seen(NamedTuple):
    """Of one look: newest records of the rank, the older one first, and of some other one."""

    records: Sequence[RankRecord] = ()
    others: Sequence[RankRecord] = ()


class Lookout:
    """Fetches the newest records of a rank again and again, in a thread of its own, since a vault
    may be gone or slow, and whoever waits to be bound must not be.

    changed  is notified when there are records that nobody has taken
    """

    def __init__(
        self, rank: Rank, places: Records, token: bytes, changed: threading.Condition
    ) -> None:
        self._rank = rank
        self._vaults = list(
            dict.fromkeys(v for stored in places.values() for one in stored for v in one.vaults)
        )
        self._token = token
        self._changed = changed
        self._over = threading.Event()
        self._looked = threading.Event()
        self._seen = Seen()

    def begin(self) -> None:
        """Returns after the first look, or when that takes too long."""
        threading.Thread(target=self._look_on, name="tm-lookout", daemon=True).start()
        self._looked.wait(FIRST_LOOK_S)

    def end(self) -> None:
        """No more looks."""
        self._over.set()

    @property
    def has_seen(self) -> bool:
        """Whether there are records that nobody has taken. Called under `changed`."""
        return bool(self._seen.records)

    def take(self) -> Seen:
        """The newest ones that nobody has taken."""
        with self._changed:
            seen, self._seen = self._seen, Seen()
            return seen

    def _look_on(self) -> None:
        pauses, soon = _pauses(), iter(SOON_S)
        while True:
            seen = self._look()
            pause_s = next(soon, None) if _show_no_change(seen.records) else None
            with self._changed:
                self._seen = seen if seen.records else self._seen
                self._changed.notify_all()
            if pause_s is None:
                self._looked.set()
            if self._over.wait(next(pauses) if pause_s is None else pause_s):
                return

    def _look(self) -> Seen:
        """Those of the vault that has the newest one, and of any other rank."""
        found: list[list[RankRecord]] = [[]]
        others: list[RankRecord] = []
        for address in self._vaults:
            try:
                client = VaultClient(address, self._token, connect_timeout_s=_CONNECT_S)
            except PeerLost:
                continue
            try:
                held = client.records_held()
                found.append(_fetched(client, self._rank, held.get(self._rank, [])))
                if not others and (known := held.keys() - {self._rank}):
                    other = min(known)
                    others = _fetched(client, Rank(other), held[other])
            except (PeerLost, ProtocolError):
                continue
            finally:
                client.close()
        newest = max(found, key=lambda records: records[-1].step if records else -1)
        return Seen(newest, others)


class Foresight:
    """Of one run in the sandbox: compares what the rank has become with itself, and with the run.

    capture  gives the run's own variables where it stands
    """

    def __init__(self, variables: Variables, loops: Loops, capture: Callable[[], bytes]) -> None:
        self._variables = variables
        self._loops = loops
        self._capture = capture
        self._before: RankRecord | None = None
        self._others: list[RankRecord] = []
        self._stored = set[str]()  # By lines between steps, on the rank and on another.

    def differences(self, seen: Seen, *, asked: bool = False) -> list[Difference]:
        """What would be wrong if the run took the rank's place; [] if nothing shows so.

        asked: lines between steps make collectives that give values, which are gone with a rank
        """
        if not seen.records:
            return []
        *older, record = seen.records
        before, self._before = self._before, record
        if not record.variables or record.reserve:
            return []
        self._others = [*self._others, *(one for one in seen.others if one.variables)][-_KEPT:]
        return self._own_in_steps(seen) or self._changed(before, older, record, asked=asked)

    def _own_in_steps(self, seen: Seen) -> list[Difference]:
        at = {one.top_step: one for one in seen.others if one.variables}
        one = next((one for one in seen.records if one.variables and one.top_step in at), None)
        if one is None:
            return []
        other = at[one.top_step]
        names = parted(one.courses, other.courses) - self._variables.summed
        return self._variables.comparison.each_own(one.variables, other.variables, names)

    def _changed(
        self,
        before: RankRecord | None,
        older: Sequence[RankRecord],
        record: RankRecord,
        *,
        asked: bool,
    ) -> list[Difference]:
        but = set() if asked else self._variables.can_be_put()
        put = self._variables.counts_put(record.variables)
        known = [
            one
            for one in (before, *older)
            if one is not None and one.variables and pass_of(one) == pass_of(record)
        ]
        if self._stands_in_loop_of(record):
            own = self._capture()
            if same_place(record.variables, own):
                put |= set() if asked else self._put_in_loop(own, [*known, record])
                return self._variables.comparison.differences(
                    record.variables,
                    own,
                    at_boundary=False,
                    given=groups_of(record),
                    but=but,
                    put=put,
                )
        if not known:
            return []
        put |= set() if asked else self._put_since(known, record)
        for then in known:
            found = self._variables.comparison.changes(
                then.variables, record.variables, groups_of(record), but, put
            )
            if found:
                return found
        return []

    def _put_since(self, known: Sequence[RankRecord], record: RankRecord) -> set[str]:
        """What who joins has as the rank has it: lines between steps have stored to it."""
        changed = _stored([*known, record])
        return changed & self._variables.could_be_put(self._capture(), record.variables)

    def _put_in_loop(self, own: bytes, records: Sequence[RankRecord]) -> set[str]:
        """What lines between steps have stored to since the set-up, on the rank and on another one:
        who joins has that as the rank has it. As long as nobody has been seen at two steps, what
        may be so is no reason to refuse."""
        could_be = self._variables.could_be_put(own, records[-1].variables)
        by_rank, by_other = (
            _stored_between([one for one in some if same_place(one.variables, own)])
            for some in (records, self._others)
        )
        if by_rank is None or by_other is None:
            return could_be
        self._stored |= by_rank & by_other
        return could_be & self._stored

    def elsewhere(self, record: RankRecord) -> RankRecord | None:
        """The record, if the rank had left the loop where the run stands."""
        comparable = bool(record.variables and record.positions) and not record.reserve
        return record if comparable and not self._stands_in_loop_of(record) else None

    def _stands_in_loop_of(self, record: RankRecord) -> bool:
        """Whether a joiner would stand where this run does, without going on in the script."""
        ordinals = [place[0] for place in record.positions]
        same = len(ordinals) == 1 and ordinals == self._loops.ordinals
        return same and record.member == self._loops.member


def _stored_between(records: Sequence[RankRecord]) -> set[str] | None:
    """None if all are of one step."""
    return None if len({one.top_step for one in records}) < 2 else _stored(records)


def _stored(records: Sequence[RankRecord]) -> set[str]:
    return stored([all_in(one.variables)[0] for one in records])


def pass_of(record: RankRecord) -> list[Any]:
    """Which run through which loop it is from: the loops around have not fetched since."""
    *around, innermost = record.positions
    return [around, innermost[0], record.member]


def _fetched(client: VaultClient, rank: Rank, steps: Sequence[int]) -> list[RankRecord]:
    held = [client.get_record(rank, step) for step in steps]
    return [RankRecord.from_bytes(one.data) for one in held if one is not None]


def _show_no_change(records: Sequence[RankRecord]) -> bool:
    """That of a step's gate has what the one of its fetch has; and lines between passes may have
    run between two fetches."""
    return any(
        one.top_step == later.top_step or pass_of(one) != pass_of(later)
        for one, later in pairwise(records)
    )


def _pauses() -> Iterator[float]:
    yield from AGAIN_S
    while True:
        yield AGAIN_S[-1]
