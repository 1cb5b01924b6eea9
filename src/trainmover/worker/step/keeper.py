# SPDX-License-Identifier: Apache-2.0
"""Keeps this rank's record with its buddy: another machine's agent, in host memory.

Record of a rank, "how to run step s on another machine":

    top_step  first step after the last fetch of a batch
    positions of every loop the script is in, outermost first: [ordinal, position, RNG, steps,
              rounds of the loops before it, where in the code]; see `loops` and `rounds`
    beside    of every loop that is drawn from beside those: [path, position]; see `loops`
    member    path of the loop that fetches; [] for the innermost of `positions`
    top       RNG and small state just before that fetch
    now       RNG and small state at the gate of step s - 1, if a step was made since the fetch; in
              a complete record at the fetch that followed it; what is as in `top` goes once
    returned  now is of that step's return instead; see `step/behind.py`
    unproved  small state that step s - 2 has changed behind its gate, perhaps each rank otherwise
    rows      committed rows not yet told to the controller, so that none is lost with the rank;
              each encoded once, however many records it goes with
    drawn     hashes of the batches drawn since `top`: who goes back there draws the same
    reserve   how many fetches before the last one `top` lies, each the first for its step
    each      how many fetches the rank made for the step at `top`; 0: as far as is known, all
    between   RNG at these fetches and the last one
    sample    of its shared state, as of the newest gate; see `state.proof.samples`
    variables those of the script at the last fetch, hashed: see `state/script/variables.py`
    groups    that the rank had at the fetch to go back to: see `comm/meet/listed.py`
    objects   that other ranks have sent: see `comm/objects.py`
    given     what steps from `top_step` on have given: see `worker/step/results/given.py`
    inputs    of the newest step: its number, and a hash of what it was called with; [] if no fetch
              was followed by several
    begun     of that step: see `Begun`; None as `inputs`
    graph     of the script at the last fetch: number of the whole one, and what has changed since;
              see `keep/script_graph.py`
    blind     what steps change, and no record of a gate has: see `keep/changes_in_steps.py`
    uncarried  what the script holds that no other process can have

A joiner goes back to the fetch, draws the same batch, passes over the steps already committed since
(`top_step` to s - 1), takes `now`, and goes on with step s. Mostly the fetch is the last thing that
happened, and there is nothing to pass over. A script that holds batches in reserve goes back to
where the oldest of them was drawn: `reserve` fetches before.
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
from trainmover.worker.step.results.given import Given


@dataclass
class Moment:
    """RNG and small tracked state at one point of the script."""

    rng: bytes
    small: dict[str, bytes]


@dataclass
class Begun:
    """Where the script has called one of several steps that follow one fetch.

    variables  of the script, as in the record, if it is the first of them
    small      of tracked objects, what has changed since the fetch
    """

    variables: bytes
    small: dict[str, bytes]


def _since(top: Moment, now: Moment) -> list[Any]:
    """A later moment of the same step: None for what is still the same, which is most of it."""
    small = {name: None if top.small.get(name) == one else one for name, one in now.small.items()}
    return [None if now.rng == top.rng else now.rng, small]


def _moment_since(top: Moment, state: bytes | None, small: dict[str, bytes | None]) -> Moment:
    """The moment again."""
    every = {name: top.small[name] if one is None else one for name, one in small.items()}
    return Moment(top.rng if state is None else state, every)


@dataclass
class RankRecord:
    """See the module's text. places: positions, beside, member and groups as bytes, once they were
    asked for: they go with the record of the fetch and with that of the gate."""

    step: Step
    complete: bool
    top_step: Step
    positions: list[list[Any]]
    top: Moment
    now: Moment | None
    rows: list[bytes] = field(default_factory=list)
    beside: list[list[Any]] = field(default_factory=list)
    member: list[int] = field(default_factory=list)
    drawn: list[list[int]] = field(default_factory=list)
    reserve: int = 0
    each: int = 0
    between: list[bytes] = field(default_factory=list)
    sample: Sample | None = None
    variables: bytes = b""
    groups: bytes = b""
    objects: list[tuple[str, bytes]] = field(default_factory=list)
    returned: bool = False
    unproved: list[str] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    begun: Begun | None = None
    courses: dict[str, int] = field(default_factory=dict)
    raises: bool = False
    given_up: int = 0
    graph: Changed = NOT_LOOKED_AT
    blind: str = ""
    uncarried: str = ""
    places: bytes = field(default=b"", compare=False)

    def but(self, **others: Any) -> "RankRecord":
        """A copy in which these are others, in less time than `dataclasses.replace` takes."""
        return RankRecord(**self.__dict__ | others)

    def to_bytes(self) -> bytes:
        """For the vault and the wire."""
        now = None if self.now is None else _since(self.top, self.now)
        top = [self.top.rng, self.top.small]
        if not self.places:
            self.places = encode([self.positions, self.beside, self.member, self.groups])
        drawn = [self.drawn, self.reserve, self.each, self.between]
        sample = None if self.sample is None else list(self.sample)
        given = [[one.step, one.values, one.result, one.small] for one in self.given]
        begun = None if self.begun is None else _begun_since(self.now or self.top, self.begun)
        behind = [self.returned, self.unproved, given, self.inputs, begun, self.courses]
        behind += [self.raises, self.given_up, [*self.graph, self.blind, self.uncarried]]
        further = [drawn, sample, self.variables, self.objects, *behind]
        head = [self.step, self.complete, self.top_step, msgspec.Raw(self.places)]
        return _encoder.encode([*head, top, now, self.rows, further])  # What msgpack has.

    @staticmethod
    def from_bytes(data: bytes) -> "RankRecord":
        """Raises ProtocolError on malformed bytes."""
        try:
            step, complete, top_step, places, top, now, rows, further = decode(data)
            positions, beside, member, groups = places
            (
                (hashes, reserve, each, between),
                sample,
                variables,
                objects,
                returned,
                unproved,
                given,
                inputs,
                begun,
                courses,
                raises,
                given_up,
                (number, changes, blind, uncarried),
            ) = further
            for row in rows:
                row_of(row)
            begin = Moment(*top)
            later = None if now is None else _moment_since(begin, *now)
            return RankRecord(
                step,
                complete,
                top_step,
                positions,
                begin,
                later,
                rows,
                beside,
                member,
                hashes,
                reserve,
                each,
                between,
                None if sample is None else Sample(*sample),
                variables,
                groups,
                [_object_of(line, pickled) for line, pickled in objects],
                bool(returned),
                [*map(str, unproved)],
                [_given_of(*one) for one in given],
                [*map(int, inputs)],
                None if begun is None else _begun_of(later or begin, *begun),
                {str(name): int(course) for name, course in courses.items()},
                bool(raises),
                int(given_up),
                Changed(int(number), bytes(changes)),
                str(blind),
                str(uncarried),
            )
        except (TypeError, ValueError, LookupError, *MALFORMED) as error:
            raise ProtocolError(f"These bytes are no rank record: {error}.") from error


def row_bytes(row: Row) -> bytes:
    """A row as records have it."""
    return _encoder.encode(row)


def row_of(data: bytes) -> Row:
    """The row again."""
    return _decoder.decode(data)


def _given_of(step: object, values: object, result: object, small: object) -> Given:
    if not isinstance(step, int) or not isinstance(values, dict) or not isinstance(result, bytes):
        raise TypeError("what a step has given is its number, values and bytes")
    known = {str(name): float(value) for name, value in values.items()}
    if small is None:
        return Given(Step(step), known, result)
    if not isinstance(small, dict) or not all(isinstance(one, bytes) for one in small.values()):
        raise TypeError("states at a gate are bytes by name")
    return Given(Step(step), known, result, {str(name): one for name, one in small.items()})


def _begun_since(moment: Moment, begun: Begun) -> list[Any]:
    small = {n: None if moment.small.get(n) == one else one for n, one in begun.small.items()}
    return [begun.variables, small]


def _begun_of(moment: Moment, variables: object, small: object) -> Begun:
    if not isinstance(variables, bytes) or not isinstance(small, dict):
        raise TypeError("where a step has begun is bytes, and states by name")
    return Begun(
        variables, {n: moment.small[n] if one is None else one for n, one in small.items()}
    )


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

        Raises PeerLost if it cannot be reached, or who is there now is another.
        """
        if address == self._address and self._client is not None and self._client.alive:
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
            record.complete,
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
