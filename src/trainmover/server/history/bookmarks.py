# SPDX-License-Identifier: Apache-2.0
"""What a controller knows, as bytes for the journal: its successor need not replay all that was.

    known = job, accounts  --encode-->  bookmark behind the newest event  --decode-->  known

Only what follows from events is in it, so that going on from it is going on from a replay: what
ranks have committed stands in the journal by itself. A bookmark is for the very code that made it:
`decide` of another version may have come to something else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import msgspec

import trainmover
from trainmover.controller.compare.known import Comparison, Held
from trainmover.controller.effects import FindCheckpoint, GiveUpCheckpoint, HostOrder, Publish
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import Incident, Job, Machine, Machines
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank
from trainmover.journal import Journal
from trainmover.journal.bookmarks import Bookmark
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import ORDERS
from trainmover.server.machines.accounts import Account, Accounts
from trainmover.server.view.notices import Told
from trainmover.version import VERSION

EVENTS_BETWEEN = 2_000
_DECIDES = (
    "controller",
    "protocol",
    "ids.py",
    "server/machines/accounts.py",
    "server/history/bookmarks.py",
)
_HOST_ORDERS: dict[str, type[HostOrder]] = {
    one.__name__: one for one in (Publish, GiveUpCheckpoint, FindCheckpoint)
}


class _Account(msgspec.Struct, array_like=True):
    """Of one machine; `pending` in bytes of its own, since most have none."""

    incarnation: str
    facts: int
    orders: int
    pending: list[ORDERS]
    ends: dict[int, int]


class _Beside(msgspec.Struct, array_like=True):
    """What happened since the bookmark before: what was told, by the number of the event, and which
    incidents have left the job."""

    told: dict[int, str]
    closed: list[Incident]


class _Known(msgspec.Struct):
    """held: values of `Comparison.held`, each once, and for each section who has which."""

    job: Job
    held: list[Held]
    holders: list[dict[Rank, int]]
    accounts: dict[MachineId, _Account]
    undone: list[tuple[str, msgspec.Raw]]
    term: int


def _plainly(value: Any) -> Any:
    if isinstance(value, Facts):
        return dict(value)
    if isinstance(value, Ranks):
        return value.bits.to_bytes((value.bits.bit_length() + 7) // 8, "little")
    raise NotImplementedError


def _of_plain(kind: Any, value: Any) -> Any:
    if kind is Ranks:
        return Ranks(bits=int.from_bytes(value, "little"))
    if kind is Machines:
        return Machines(msgspec.convert(value, dict[MachineId, Machine], dec_hook=_of_plain))
    if get_origin(kind) is Facts:
        return Facts(msgspec.convert(value, dict[get_args(kind)], dec_hook=_of_plain))  # type: ignore[misc]
    raise NotImplementedError


_encoder = msgspec.msgpack.Encoder(enc_hook=_plainly)
_known: "msgspec.msgpack.Decoder[_Known]" = msgspec.msgpack.Decoder(_Known, dec_hook=_of_plain)
_beside: "msgspec.msgpack.Decoder[_Beside]" = msgspec.msgpack.Decoder(_Beside, dec_hook=_of_plain)


@cache
def code() -> str:
    """Names the code that decides, to the last byte."""
    root = Path(trainmover.__file__).parent
    digest = blake2b(digest_size=16)
    for part in _DECIDES:
        place = root / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return f"{VERSION} {digest.hexdigest()}"


def encode(job: Job, accounts: Accounts) -> bytes:
    """What is known behind an event."""
    values: dict[int, int] = {}
    held: list[Held] = []
    holders: list[dict[Rank, int]] = []
    for section in job.comparison.held:
        holders.append({})
        for rank, its in section.items():
            if id(its) not in values:
                values[id(its)] = len(held)
                held.append(its)
            holders[-1][rank] = values[id(its)]
    return _encoder.encode(
        _Known(
            job=replace(job, comparison=replace(job.comparison, held=())),
            held=held,
            holders=holders,
            accounts={
                machine: _Account(
                    one.incarnation, one.sure, one.orders, cast("list[Any]", one.pending), one.ends
                )
                for machine, one in accounts.of.items()
            },
            undone=[
                (type(order).__name__, msgspec.Raw(_encoder.encode(order)))
                for order in accounts.undone
            ],
            term=accounts.term,
        )
    )


def decode(state: bytes) -> tuple[Job, Accounts]:
    """The same; all machines are away. Raises as msgspec does, and LookupError."""
    known = _known.decode(state)
    undone = [_host_order(name, raw) for name, raw in known.undone]
    held = tuple(
        {rank: known.held[index] for rank, index in section.items()} for section in known.holders
    )
    comparison: Comparison = replace(known.job.comparison, held=held)
    accounts = {
        machine: Account(
            its.incarnation,
            its.facts,
            its.facts,
            orders=its.orders,
            pending=cast("list[Any]", its.pending),
            away=True,
            ends=its.ends,
        )
        for machine, its in known.accounts.items()
    }
    return replace(known.job, comparison=comparison), Accounts(accounts, undone, known.term)


def _host_order(name: str, raw: msgspec.Raw) -> HostOrder:
    order: HostOrder = msgspec.msgpack.decode(raw, type=_HOST_ORDERS[name])
    return order


class Bookmarks:
    """Of one journal, for its writer. newest: number of the event behind which it is."""

    def __init__(self, journal: Journal, newest: int) -> None:
        self._journal = journal
        self._newest = newest

    def keep(
        self, job: Job, accounts: Accounts, recent: Iterable[Told], closed: Iterable[Incident]
    ) -> int:
        """Between two events: a bookmark, if the newest is some way back. recent: all that was
        told since that, at least; closed: incidents that have left the job since. Returns where
        the newest is now."""
        seq = self._journal.seq
        if seq - self._newest < EVENTS_BETWEEN:
            return self._newest
        new = (one for one in recent if one.seq > self._newest and one.event is not None)
        told = {one.seq: one.text for one in new if one.text}
        state = encode(job, accounts)
        mark = Bookmark(seq, code(), state, _encoder.encode(_Beside(told, [*closed])))
        if self._journal.keep_bookmark(mark):
            self._newest = seq
        return self._newest


@dataclass(frozen=True)
class Found:
    """seq: of the event from which on all is to be replayed, 0: of all; unused: why not from a
    later one, in words; "" if there is none."""

    seq: int
    known: tuple[Job, Accounts] | None
    unused: str


def find(journal: Journal) -> Found:
    """The newest bookmark that can be gone on from. Reads only: the journal may be a live run's."""
    marks, unused = journal.bookmarks()
    found = Found(0, None, unused)
    for mark in reversed(marks):
        if not mark.state:
            continue
        if mark.code != code():
            found = Found(0, None, found.unused or "it was written by another trainmover than this")
            break
        try:
            found = Found(mark.seq, decode(mark.state), found.unused)
            break
        except (*MALFORMED, LookupError) as error:
            found = Found(0, None, f"the bookmark behind record {mark.seq} cannot be read: {error}")
    return found


def told(journal: Journal) -> dict[int, str]:
    """What was told of events up to the newest bookmark, by their number."""
    sentences: dict[int, str] = {}
    for mark in journal.bookmarks()[0]:
        sentences |= _beside.decode(mark.told).told
    return sentences


def closed(journal: Journal) -> dict[int, Incident]:
    """Incidents that had left the job at the newest bookmark, by their number."""
    marks = journal.bookmarks()[0]
    return {one.number: one for mark in marks for one in _beside.decode(mark.told).closed}
