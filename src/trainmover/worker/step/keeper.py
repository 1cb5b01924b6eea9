# SPDX-License-Identifier: Apache-2.0
"""Keeps this rank's record with its buddy: another machine's agent, in host memory.

Record of a rank at a fetch, "how to run step s on another machine":

    step      step that is to follow
    positions of every loop the script is in, outermost first: [ordinal, position, RNG, steps,
              rounds of the loops before it, where in the code]; see `loops` and `rounds`
    beside    of every loop that is drawn from beside those: [path, position]; see `loops`
    member    path of the loop that fetches; [] for the innermost of `positions`
    top       RNG and small state just before that fetch
    rows      committed rows not yet told to the controller, so that none is lost with the rank;
              each encoded once, however many records it goes with
    sample    of its shared state, as of the newest gate; see `state.proof.samples`
    groups    that the rank had: see `comm/meet/listed.py`
    objects   that other ranks have sent: see `comm/objects.py`
    given_up  steps that have raised behind collectives; see `Gate`
    graph     of the script: number of the whole one, and what has changed since; see
              `keep/script_graph.py`
    uncarried  what the script holds that no other process can have
    marks     fetches for this step that a record was made at, this one included: a loop that ends
              and one that begins behind it each make one

A joiner goes to that fetch, restores the graph, draws the same batch, and makes step s.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainmover.errors import PeerLost, ProtocolError, UserError
from trainmover.ids import Epoch, Step
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import Row
from trainmover.state.encode import decode, encode
from trainmover.state.proof.samples import Sample
from trainmover.state.vault import VaultClient, graph_name
from trainmover.worker.keep.script_graph import NOT_LOOKED_AT, Changed, Whole


@dataclass
class Moment:
    """RNG and small tracked state at one point of the script."""

    rng: bytes
    small: dict[str, bytes]


@dataclass
class RankRecord:
    """See the module's text. places: positions, beside, member and groups as bytes, once they were
    asked for."""

    step: Step
    positions: list[list[Any]]
    top: Moment
    rows: list[bytes] = field(default_factory=list)
    beside: list[list[Any]] = field(default_factory=list)
    member: list[int] = field(default_factory=list)
    sample: Sample | None = None
    groups: bytes = b""
    objects: list[tuple[str, bytes]] = field(default_factory=list)
    given_up: int = 0
    graph: Changed = NOT_LOOKED_AT
    uncarried: str = ""
    marks: int = 1
    places: bytes = field(default=b"", compare=False)

    def to_bytes(self) -> bytes:
        """Encode it for the vault and the wire."""
        if not self.places:
            self.places = encode([self.positions, self.beside, self.member, self.groups])
        sample = None if self.sample is None else list(self.sample)
        script = [*self.graph, self.uncarried, self.marks]
        further = [sample, self.objects, self.given_up, script]
        top = [self.top.rng, self.top.small]
        return _encoder.encode([self.step, msgspec.Raw(self.places), top, self.rows, further])

    @staticmethod
    def from_bytes(data: bytes) -> "RankRecord":
        """Read it again. Raises ProtocolError on malformed bytes."""
        try:
            step, places, top, rows, further = decode(data)
            positions, beside, member, groups = places
            sample, objects, given_up, (number, changes, uncarried, marks) = further
            for row in rows:
                row_of(row)
            return RankRecord(
                step,
                positions,
                Moment(*top),
                rows,
                beside,
                member,
                None if sample is None else Sample(*sample),
                groups,
                [_object_of(line, pickled) for line, pickled in objects],
                int(given_up),
                Changed(int(number), bytes(changes)),
                str(uncarried),
                int(marks),
            )
        except (TypeError, ValueError, LookupError, *MALFORMED) as error:
            raise ProtocolError(f"These bytes are no rank record: {error}.") from error


def row_bytes(row: Row) -> bytes:
    """A row as records have it."""
    return _encoder.encode(row)


def row_of(data: bytes) -> Row:
    """The row again."""
    return _decoder.decode(data)


def _object_of(line: object, pickled: object) -> tuple[str, bytes]:
    if not isinstance(line, str) or not isinstance(pickled, bytes):
        raise TypeError("an object that was sent is a line and bytes")
    return line, pickled


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Row)


class Keeper:
    """The connection to the buddy's vault. Used by the main thread only.

    further  another vault, which is to have large things too; "": none is
    epoch    in which the rank trains, or is about to
    graph    of the script, whole: the records that continue it are of no use without
    """

    def __init__(self, token: bytes, rank: int) -> None:
        self._token = token
        self._rank = rank
        self.further = ""
        self.epoch = Epoch(0)
        self.graph: Whole | None = None
        self._graph_there = 0
        self._address = ""
        self._client: VaultClient | None = None

    def follow(self, address: str, latest: RankRecord | None) -> bool:
        """Keep the record at `address` from now on. True if that is another connection than before.

        It is put again in each epoch: a vault that knew of a newer one before the rank did keeps
        nothing. Raises PeerLost if it cannot be reached, or who is there now is another.
        """
        if address == self._address and self._client is not None and self._client.alive:
            if latest is not None:
                self.put(latest)
            return False
        self.close()
        self._client = self._dialled(address)
        self._address, self._graph_there = address, 0
        if latest is not None:
            self.put(latest, wait=True)
        return True

    def put(self, record: RankRecord, *, wait: bool = False) -> None:
        """Send a record; `safe` tells when it has arrived. Raises PeerLost."""
        if record.graph.number != self._graph_there:
            self._put_graph()
        self._connected().put_record(
            self._rank,
            record.step,
            True,
            record.to_bytes(),
            epoch=self.epoch,
            wait=wait,
        )

    def _put_graph(self) -> None:
        """Have the vault keep the whole graph that records continue, beside the one before."""
        if self.graph is None:
            return
        with suppress(UserError):  # Who takes the rank then finds none, and says what it lacks.
            self.put_blob(graph_name(self._rank, self.graph.number), self.graph.to_bytes())
        self._graph_there = self.graph.number

    def safe(self, cancelled: Callable[[], bool]) -> bool:
        """Wait until everything put is acknowledged; False if cancelled first. Raises PeerLost."""
        return self._connected().wait_acks(cancelled)

    def put_blob(self, name: str, data: bytes | bytearray) -> None:
        """Keep a large thing under a name. Raises PeerLost."""
        self._connected().put_blob(name, data)
        if self.further:
            with suppress(PeerLost):  # The buddy has it. Who is lost there is replaced by another.
                self._put_further(name, data)

    def _put_further(self, name: str, data: bytes | bytearray) -> None:
        client = self._dialled(self.further)
        try:
            client.put_blob(name, data)
        finally:
            client.close()

    def _dialled(self, address: str) -> VaultClient:
        """Where a vault is no more anybody may listen, whom nothing is given. Raises PeerLost."""
        try:
            return VaultClient(address, self._token, by_thread=True)
        except ProtocolError as error:
            raise PeerLost(error.happened, means=error.means, do=error.do) from error

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> VaultClient:
        if self._client is None:
            raise PeerLost("This rank has no buddy to keep its record.")
        return self._client
