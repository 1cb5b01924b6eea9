# SPDX-License-Identifier: Apache-2.0
"""What a process takes over from others: a record of first steps, a rank's record, bulk state."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from trainmover.errors import PeerLost, ProtocolError, StateMismatch, TrainmoverError
from trainmover.graph.nodes import Graph
from trainmover.ids import Rank
from trainmover.ownership import foreign_writer, read_regular
from trainmover.protocol.messages import (
    Certificate,
    Foreign,
    Records,
    Stored,
    Switch,
    Taking,
    Warned,
    WorkerFact,
)
from trainmover.sandbox import layout
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.record import Record, blob_name
from trainmover.state.encode import decode
from trainmover.state.proof.digest import hashes_of
from trainmover.state.proof.samples import Proof, Sample
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Direct, FetchReport, fetch
from trainmover.state.vault import VaultClient, graph_name
from trainmover.worker.join.early import Early
from trainmover.worker.keep import compiled
from trainmover.worker.keep.script_graph import Whole, graph_of
from trainmover.worker.step.keeper import RankRecord

FETCH_SILENCE_S = 30.0
SHELF_BYTES_MAX = 256 * 1024 * 1024
FIRST_STEPS_BYTES_MAX = 16 * 1024**3
"""Of a file in a checkpoint: more than any record, or anything compiled, has."""

Shelf = dict[Rank, bytearray]
"""Records of first steps that this process has fetched: the next run does not wait for them again,
nor does it mind if those who kept them are gone."""


def first_steps(
    rank: Rank, places: Records, token: bytes, binding: Binding, shelf: Shelf
) -> Record:
    """The record that serves this rank, for the script as it lies here.

    shelf: is looked at first, and added to.
    Raises PeerLost if nobody has one, StateMismatch or ProtocolError if what they have is none.
    """
    unfit: TrainmoverError | None = None
    for stored in places[rank]:
        for data in _copies(stored, token, shelf):
            try:
                record = layout.from_bytes(data)
                binding.check(record.binding, record.rank)
                if record.base is not None:
                    record = record.completed(_base(record.base, places, token, binding, shelf))
            except (ProtocolError, StateMismatch, PeerLost) as error:
                unfit = unfit or error
                continue
            if sum(map(len, shelf.values())) + len(data) <= SHELF_BYTES_MAX:
                shelf[stored.rank] = data
            own = places[rank][0].rank == rank
            return replace(record, blob=data if own else None)
    raise unfit or PeerLost(
        f"No machine holds a record of the first steps that serves rank {rank}.",
        means="It cannot be run in the sandbox now.",
        do="Nothing by hand: the ranks that live put theirs with other machines.",
    )


def _base(rank: int, places: Records, token: bytes, binding: Binding, shelf: Shelf) -> Record:
    """The record of another rank of the same kind."""
    known = places.get(Rank(rank), [])
    if any(stored.rank == rank for stored in known):
        return first_steps(Rank(rank), {Rank(rank): known}, token, binding, shelf)
    raise PeerLost(
        f"The record of rank {rank}, which another refers to, is nowhere.",
        means="The record that refers to it cannot serve alone.",
        do="Nothing by hand: the ranks that live put theirs with other machines.",
    )


def compiled_elsewhere(rank: Rank, places: Records, token: bytes) -> bytes | bytearray | None:
    """What was compiled in the first steps of this rank, or of one like it; None: nothing.

    It is code. Raises ProtocolError if it lies in a file that somebody else may have written.
    """
    for stored in places[rank]:
        for data in _kept(stored, token, compiled.blob_name(stored.rank)):
            return data
        if stored.compiled and (why := foreign_writer(Path(stored.compiled))):
            raise ProtocolError(
                f"What a checkpoint has of compiled code is not taken: {why}.",
                means="The run compiles again.",
                do="If all in that folder is yours: chown -R and chmod -R go-w.",
            )
        for read in _read(stored.compiled):
            return read
    return None


def _copies(stored: Stored, token: bytes, shelf: Shelf) -> Iterator[bytearray]:
    """What is here of it, then what the vaults have, one after the other."""
    if stored.rank in shelf:
        yield shelf[stored.rank]
    for data in _kept(stored, token, blob_name(stored.rank)):
        yield bytearray(data) if isinstance(data, bytes) else data
    yield from _read(stored.file)


def record_of(one: Foreign, token: bytes) -> bytearray | None:
    """The record of a lost rank's first steps, as it is kept for it; None if none is."""
    for stored in one.records:
        for data in _copies(stored, token, {}):
            return data
    return None


def _read(path: str) -> Iterator[bytearray]:
    """What a checkpoint has of it, if it has, and it is whole: its name is the hash of it."""
    if not path:
        return
    try:
        data = read_regular(Path(path), FIRST_STEPS_BYTES_MAX)
    except (OSError, MemoryError):
        return
    if xxhash.xxh3_128_hexdigest(data) == Path(path).name:
        yield bytearray(data)


def _kept(stored: Stored, token: bytes, name: str) -> Iterator[bytes | bytearray]:
    """A blob from each of the vaults that has it, fetched as it is asked for."""
    for address in stored.vaults:
        data = _blob(address, token, name)
        if data is not None:
            yield data


def _blob(address: str, token: bytes, name: str) -> bytes | bytearray | None:
    """None if the vault has none of that name, or is gone."""
    try:
        client = VaultClient(address, token)
    except PeerLost:
        return None
    try:
        return client.get_blob(name)
    except PeerLost:
        return None
    finally:
        client.close()


class Unlike(PeerLost):
    """Those who were said to hold the rank's state hold different ones, or another than it did.

    holders, unlike  as in `Unproven`
    """

    def __init__(self, rank: Rank, holders: dict[Rank, str], unlike: list[Rank]) -> None:
        super().__init__(
            f"The ranks that were to give the state of rank {rank} do not hold what it held.",
            means="Nobody can tell which is right, so this process does not take the rank.",
            do="Nothing by hand: the job looks for another way, and says if there is none.",
        )
        self.holders, self.unlike = holders, unlike


@dataclass
class Taken:
    """What a joiner got.

    bytes   that were sent now
    direct  of these, from device to device
    held    that it had already
    source  rank whose header it is
    given   rank to the bytes of state that it gave
    is_put  the state is in what is tracked here; False: it does not fit there yet
    graph   what the rank's script held at its last fetch, if it is to be had
    """

    bytes: int
    seconds: float
    source: Rank
    given: dict[Rank, int]
    header: dict[str, Any]
    record: RankRecord
    digest: str
    held: int = 0
    direct: int = 0
    samples: dict[int, Sample] = field(default_factory=dict)
    is_put: bool = True
    graph: Graph | None = None

    def after(self, before: "Taken") -> "Taken":
        """Of the same state, with what had come `before`: this time most of it was held."""
        return replace(
            self,
            bytes=before.bytes + self.bytes,
            seconds=before.seconds + self.seconds,
            given=dict(Counter(before.given) + Counter(self.given)),
            held=max(0, self.held - before.bytes),
            direct=before.direct + self.direct,
        )

    def certificate(self, order: Switch, rank: Rank, trace: str) -> Certificate:
        """What shows that the joiner has the state its source sent."""
        return Certificate(
            rank=rank,
            source_rank=self.source,
            step=order.committed,
            epoch=order.epoch,
            source_digest=self.header["digest"],
            joiner_digest=self.digest,
            trace=trace,
            position=_in_words(self.record),
            bytes=self.bytes,
            state_ms=self.seconds * 1000.0,
            given=self.given,
            held=self.held,
            direct=self.direct,
        )


def take(
    order: Switch,
    rank: Rank,
    tracked: Tracked,
    *,
    token: bytes,
    known: RankRecord | None,
    early: Early,
    direct: Direct,
    cancelled: threading.Event,
    say: Callable[[WorkerFact], None],
    arrived: bool,
) -> Taken:
    """Fetch record and state, the latter straight into the tensors of `tracked`.

    A leaver gives its own record; that of a lost rank is in a vault.
    known: the record, if it has been taken before
    arrived: the run stands where its rank did; if not, state that does not fit it is not put
    early: of the state, what may be here already
    direct: the way between devices, if there is one
    Whoever gives its own state proves nothing. Others have to agree, all of them, and to have held
    at the rank's last gate what it held there. Raises PeerLost, and Unlike if they do not.
    """
    sources = order.sources[rank]
    own = sources[0].rank == rank

    def tell(here: int, whole: int) -> None:
        say(Taking(rank=rank, epoch=order.epoch, bytes=here, bytes_whole=whole))

    def receive(tensors: Mapping[int, Tensor]) -> list[int]:
        if not own or not direct.leads_to(sources[0].address):
            return []
        whole = sum(tensor.nbytes for tensor in tensors.values())
        return direct.receive(str(order.epoch), tensors, cancelled, lambda here: tell(here, whole))

    coming = _Coming(tracked, early, receive, arrived=arrived)
    with ThreadPoolExecutor(2, "tm-early") as pool, torch.no_grad():
        early.hash(pool)  # While the source hashes what it has.
        kept = None if own or known else pool.submit(_record_from_vault, order, rank, token)
        report = fetch(
            [source.address for source in sources],
            token=token,
            key=str(order.epoch),
            into=coming.into,
            holds=coming.holds,
            cancelled=cancelled,
            timeout_s=FETCH_SILENCE_S,
            header_from_first=own and known is None,
            ask_all=not own,
            on_progress=tell,
        )
    ranks = {source.address: source.rank for source in sources}
    source = ranks[report.source]
    graph = None
    if known is not None:
        record = known
    elif kept is None:
        record, graph = in_header(coming.header)
    else:
        record, graph = kept.result()
    proofs = {ranks[address]: Proof.from_bytes(data) for address, data in report.proofs.items()}
    if not own:
        _check(rank, proofs, None if rank in order.diverged else record.sample)
    for text in _dropped(report, ranks):
        say(Warned(rank=rank, text=text))
    taken = coming.taken(report, ranks, record, proofs[source].samples)
    taken.graph = graph
    return taken


def _dropped(report: FetchReport, ranks: Mapping[str, Rank]) -> Iterator[str]:
    """Sources that did not serve, and why; not those that are gone, which the controller knows."""
    for dropped in report.dropped:
        if not isinstance(dropped.error, PeerLost):
            yield f"{dropped.error.happened} (rank {ranks[dropped.address]})"


def _check(rank: Rank, proofs: dict[Rank, Proof], sample: Sample | None) -> None:
    """sample: of the lost rank, at its last gate; None: it is no measure. Raises Unlike."""
    holders = {other: proof.digest for other, proof in sorted(proofs.items())}
    unlike = [
        other
        for other, proof in sorted(proofs.items())
        if sample is not None and sample.parts_from(proof.samples)
    ]
    if unlike or len(set(holders.values())) > 1:
        raise Unlike(rank, holders, unlike)


class _Coming:
    """State on its way from a source into `tracked`.

    receive  fetches tensors by number from device to device, and says which have come
    arrived  as in `take`
    fits     whether it was put, once the header is here
    """

    def __init__(
        self,
        tracked: Tracked,
        early: Early,
        receive: Callable[[Mapping[int, Tensor]], Sequence[int]],
        *,
        arrived: bool,
    ) -> None:
        self.header: dict[str, Any] = {}
        self.fits = True
        self._arrived = arrived
        self._tracked = tracked
        self._early = early
        self._receive = receive
        self._came: Sequence[int] = ()
        self._paths: list[str] = []
        self._held: list[bytes] = []

    def into(self, header: bytes) -> list[Tensor] | None:
        self.header = decode(header)
        self.fits = self._arrived or self._tracked.fits(self.header["bulk"])
        if not self.fits:
            return None
        return self._tracked.bulk_destinations(self.header["bulk"])

    def holds(self, tensors: Sequence[Tensor]) -> list[bytes]:
        self._paths = self._tracked.bulk_paths(self.header["bulk"])
        self._held = self._early.hashes(self._paths, tensors)
        missing = {n: tensor for n, tensor in enumerate(tensors) if not self._held[n]}
        self._came = self._receive(missing)
        for number, made in zip(
            self._came, hashes_of([tensors[n] for n in self._came]), strict=True
        ):
            self._held[number] = made
        return self._held

    def taken(
        self,
        report: FetchReport,
        ranks: Mapping[str, Rank],
        record: RankRecord,
        samples: dict[int, Sample],
    ) -> Taken:
        """It is here, and is put if it fits."""
        source = ranks[report.source]
        kept, came = self._kept(report)
        given = Counter({ranks[address]: count for address, count in report.given.items()})
        given += Counter({source: came})
        return Taken(
            bytes=report.bytes + came,
            direct=came,
            held=kept - came,
            seconds=report.seconds,
            source=source,
            given=dict(given),
            header=self.header,
            record=record,
            digest=self._load(report) if self.fits else "",
            samples=samples,
            is_put=self.fits,
        )

    def _kept(self, report: FetchReport) -> tuple[int, int]:
        """Bytes that did not travel over TCP, and those of them that came from the device."""
        sizes = {number: report.tensors[number].nbytes for number in report.kept}
        return sum(sizes.values()), sum(sizes.get(number, 0) for number in self._came)

    def _load(self, report: FetchReport) -> str:
        """Digest of what this process holds now."""
        with torch.no_grad():
            self._tracked.load_bulk_header(self.header["bulk"], report.tensors)
        self._early.note(self._paths)
        kept = {self._paths[number]: self._held[number] for number in report.kept}
        return self._tracked.replica_digest(kept).whole


def _record_from_vault(order: Switch, rank: Rank, token: bytes) -> tuple[RankRecord, Graph | None]:
    for address in order.records[rank]:
        try:
            client = VaultClient(address, token)
            try:
                found = client.get_record(rank, order.committed + 1)
                if found is not None:
                    record = RankRecord.from_bytes(found.data)
                    return record, graph_from(client, record, rank)
            finally:
                client.close()
        except PeerLost:
            continue
    raise PeerLost(
        f"No vault gave the record of rank {rank} for step {order.committed + 1}.",
        means="This process cannot take the rank now.",
        do="Nothing by hand: the job looks for another way, and says if there is none.",
    )


def in_header(header: Mapping[str, Any]) -> tuple[RankRecord, Graph | None]:
    """Return the record that a rank gives with its own state, and what its script held."""
    record = RankRecord.from_bytes(header["record"])
    whole = Whole.from_bytes(header["graph"]) if header.get("graph") else None
    return record, graph_of(record.graph, whole)


def graph_from(client: VaultClient, record: RankRecord, rank: Rank) -> Graph | None:
    """Return what the script held as that record was made. Raises PeerLost, ProtocolError."""
    if not record.graph.number:
        return None
    whole = client.get_blob(graph_name(rank, record.graph.number))
    return graph_of(record.graph, None if whole is None else Whole.from_bytes(whole))


def _in_words(record: RankRecord) -> str:
    """Where a rank stands in its data, for people: pass and batches of each loop."""
    loops = [(f"loop {ordinal}", at) for ordinal, at, *_ in record.positions]
    loops += [(f"beside, loop {'/'.join(map(str, path))}", at) for path, at in record.beside]
    return "; ".join(
        f"{name}: pass {at['pass']}, "
        + ("finished" if at.get("finished") else f"{at['taken']} batches taken")
        for name, at in loops
    )
