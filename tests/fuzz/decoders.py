"""Everything that reads bytes which another process or a disk has given, and real bytes for it."""

import math
import tempfile
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy
import torch
import xxhash

from trainmover.controller.events import Tick
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.packed import packed, place_of
from trainmover.protocol import keys
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import MANIFEST
from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.hello import Dialler, End, Listener, Where
from trainmover.protocol.messages import trunk
from trainmover.protocol.sealed import SealedReader, Session
from trainmover.sandbox import layout
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.moments import Moments
from trainmover.sandbox.record import Entry, Kept, Record
from trainmover.server.checkpoints.check import Manifest, read_manifest
from trainmover.state import encode, rng
from trainmover.state.snapshot import Snapshot
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import wire as transfer
from trainmover.state.vault import Vault, wire
from trainmover.state.vault.requests import Requests
from trainmover.worker.step.keeper import Moment, RankRecord, row_bytes

TOKEN, NONCE = b"t" * 16, bytes(range(16))
END = End("vault", Where("127.0.0.1", 1))


@dataclass(frozen=True)
class Decoder:
    """read    as the receiver does; returns, or raises what it may
    seeds   bytes that it reads well
    sealed  puts right again what only shows that bytes were changed, so that the rest is read too
    """

    read: Callable[[bytes], object]
    seeds: list[bytes]
    sealed: Callable[[bytes], bytes] = lambda data: data


def _vault(data: bytes) -> None:
    """Requests of one connection, framed."""
    vault = Vault(bytes_max=1000)
    requests = Requests(vault)
    for payload in FrameReader().feed(data):
        requests.answer(payload)
    vault.drop_snapshots(before=10)


def _stores(data: bytes) -> object:
    """A request, as the process where groups meet reads it."""
    request = keys.decode_request(data)
    return None if isinstance(request, keys.ToTorch) else keys.Keys().answer(request)


def _asked_of_stores() -> list[keys.Request]:
    return [
        keys.Set("3/g/card/1", b"where it listens"),
        keys.Add("3/g/seat/1", 1),
        keys.Check(["3/g/card/0", "3/g/card/1"]),
        keys.Get(["3/g/card/0", "3/g/card/1"]),
        keys.ToTorch(),
    ]


def _manifest(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "step").mkdir()
        (Path(folder) / "step" / MANIFEST).write_bytes(data)
        return read_manifest(Path(folder), "step")


def _journal(data: bytes) -> list[object]:
    """One event, and samples of a step, each a line."""
    event, draws = [*data.decode("utf-8", "replace").split("\n"), "", ""][:2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        with Journal.create(path, m.JobSpec(run_id="r", argv=["x"])) as journal:
            journal._insert(1, "Tick", event)
            journal._db.execute("INSERT INTO samples VALUES (0, 1, ?)", (draws,))
        with Journal.open(path) as journal:
            return [*journal.entries(), *journal.used()]


def _rows(data: bytes) -> list[object]:
    """Committed steps of some ranks, as a journal keeps them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        with Journal.create(path, m.JobSpec(run_id="r", argv=["x"])) as journal:
            place = place_of(Step(1), Rank(0))
            journal._db.execute("INSERT INTO rows VALUES (?, ?)", (place, data))
        with Journal.open(path) as journal:
            return [*journal.rows(), *journal.commits(), *journal.newest_rows(2)]


def _seal_rows(data: bytes) -> bytes:
    return zlib.crc32(data[4:]).to_bytes(4, "little") + data[4:]


def _seal_record(data: bytes) -> bytes:
    return data[:8] + xxhash.xxh3_128_digest(data[24:]) + data[24:]


def _seal_tail(data: bytes) -> bytes:
    return data[:-16] + xxhash.xxh3_128_digest(data[:-16])


def _seal_manifest(data: bytes) -> bytes:
    """Of whatever stands behind `"checkpoint":`."""
    _, found, body = data.partition(b'"checkpoint":')
    if not found:
        return data
    digest = xxhash.xxh3_128_hexdigest(body[:-1])
    return b'{"xxh3":"%s","checkpoint":%s' % (digest.encode(), body)


def _facts() -> list[m.WorkerFact]:
    row = m.Row(
        step=Step(3), at_us=7, values={"loss": 0.5, "nan": float("nan")},
        samples=[m.Draw(source="a", data_pass=1, ids=[1, 2, "x"])],
    )  # fmt: skip
    return [
        m.WorkerUp(pid=1, address="127.0.0.1:1", torch="2", version="0"),
        m.Committed(rank=Rank(0), epoch=Epoch(1), rows=[row], first=True, gap_us=3),
        m.Position(rank=Rank(1), epoch=Epoch(2), committed=Step(3), gate=Step(4)),
        m.Fingerprinted(
            rank=Rank(0), epoch=Epoch(1), step=Step(3), layout="7", shared=bytes(16),
            read=8, took_us=1, paths=["a", "b"], sections=[2, 0, 0],
        ),
    ]  # fmt: skip


def _agent_facts() -> list[m.AgentFact]:
    hello: dict[str, Any] = {"version": "0", "protocol": m.PROTOCOL, "nproc": 1, "standby": False}
    return [
        m.Hello(machine=MachineId("m1"), vault="127.0.0.1:1", host="h", pid=1, **hello),
        m.Trunk(machine=MachineId("m1"), incarnation="i", address="127.0.0.1:1"),
        m.WorkerExited(local_rank=0, pid=1, code=-9),
        m.VaultHeld(epoch=Epoch(1), records={Rank(0): [Step(1), Step(2)]}),
        m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(_facts()[0]))),
        m.CommittedHere(
            told=m.columns_of(
                m.Committed(
                    rank=Rank(rank),
                    epoch=Epoch(1),
                    rows=[m.Row(step=Step(3), at_us=1, values={"loss": 0.5})],
                )
                for rank in (0, 1)
            )
        ),
        m.SaidHere(told=[m.AtBoundary(rank=Rank(0), epoch=Epoch(1), committed=Step(3))]),
    ]


def _orders() -> list[m.Order]:
    return [
        m.Welcome(spec=m.JobSpec(run_id="r", argv=["x"])),
        m.StartWorkers(epoch=Epoch(1), restarts=0),
        m.Interrupt(epoch=Epoch(3)),
        m.Shutdown(),
    ]


def _trunk_facts() -> list[trunk.TrunkFact]:
    came = trunk.Came(lane=1, machine=MachineId("m1"))
    return [came, trunk.Carried(beats=[1, 2], said=[(1, bytes(20))]), trunk.Gone(lane=1)]


def _trunk_orders() -> list[trunk.TrunkOrder]:
    carry = trunk.Carry(said=[(b"order", [(1, bytes(16)), (2, bytes(16))])])
    return [trunk.Beat(), carry, trunk.CloseLane(lane=1)]


def _state() -> object:
    return {
        "plain": [None, True, -1, 2**63, 2**200, -0.0, 1e300, "text", b"bytes", bytearray(b"x")],
        "nested": (1, (2, (3, {"a": [{}, [], ()]}))),
        "sets": [{1, 2}, frozenset("ab"), Counter("aab"), defaultdict(list, a=[1])],
        "ordered": OrderedDict([("b", 1), ((1, 2), 2)]),
        "torch": [torch.arange(6).reshape(2, 3), torch.Size([2]), torch.float16],
        "device": torch.device("cpu"),
        "numpy": [numpy.arange(3), numpy.float32(1.5), numpy.datetime64("2026-01-01")],
        "complex": 1 + 2j,
    }


def _record() -> Record:
    moments = Moments(0.5, 0.1, 0.0, 1.0)
    entries = {
        (0, 1): Entry("all_reduce f32 [4]", (Kept(torch.arange(4).view(torch.uint8), False),), 0),
        (0, 2): Entry("broadcast", (Kept(moments, True), None), -1),
    }
    binding = Binding("hash", ("--lr", "3e-4"), 2, 1, "2.13", "0.1", "3.11", "none")
    return Record(binding, 0, 3, "trace", "signature", entries, None, 100, 1000)


def _checkpoint() -> bytes:
    written = m.Written("step-000000000010/rank-00000.state", 5, "00")
    checkpoint = m.Checkpoint(
        folder="/x", run_id="r", step=Step(3), epoch=Epoch(1), argv=["x"], module=False,
        script="s", machines=1, nproc=1, torch="2", trainmover="0", python="3",
        states={Rank(0): [written]}, records={Rank(0): written}, compiled={}, recorded=[],
    )  # fmt: skip
    data = msgspec.json.encode(checkpoint)
    return msgspec.json.encode(Manifest(xxhash.xxh3_128_hexdigest(data), msgspec.Raw(data)))


def _snapshot() -> bytes:
    snapshot = Snapshot.of(0, 5, b"header", [torch.arange(7), torch.ones(2, 3)], None)
    snapshot.seal()
    return bytes(snapshot.block)


def _requests() -> list[wire.Request]:
    return [
        wire.PutRecord(0, 1, True, b"record"),
        wire.GetRecord(0, 1),
        wire.ListRecords(),
        wire.PutBlob("b", 0, 4, memoryview(b"blob")),
        wire.GetBlob("b", 0),
    ]


def _rank_record() -> bytes:
    moment = Moment(rng.capture(), {"scheduler": encode.encode({"last": 3})})
    rows = [row_bytes(m.Row(step=Step(1), at_us=2, values={"loss": 0.5}))]
    return RankRecord(Step(2), [["a", 1, 2]], moment, rows).to_bytes()


def _restored(data: bytes) -> None:
    before = rng.RngState.now()
    try:
        rng.restore(data)
    finally:
        before.restore()


def _journal_lines() -> bytes:
    event = msgspec.json.encode(Tick(at_us=1))
    return b"\n".join([event, b'[["a", 1, [[0, 4], "x", 9]]]'])


def _packed_rows() -> bytes:
    rows = [{"loss": 0.5}, {"loss": 0.1, "nan": math.nan}, {}, {"loss": 7.0}]
    return packed({at: (Epoch(1 + at // 3), 5 * at, m.plain(row)) for at, row in enumerate(rows)})


def _hear(hello: Listener | Dialler, data: bytes) -> None:
    for part in (data[:20], data[20:]):
        hello.hear(part)
        if hello.error is not None:
            raise hello.error


def _both_said() -> tuple[bytes, bytes]:
    """What a dialler and a listener say in a hello."""
    dialler, listener = Dialler(TOKEN, END, NONCE), Listener(TOKEN, END, NONCE)
    proof = listener.hear(dialler.opening)
    return dialler.opening + dialler.hear(listener.opening + proof), listener.opening + proof


def _session() -> Session:
    return Session(b"k" * 32, b"k" * 32)


def _sealed() -> bytes:
    session = _session()
    return session.seal(b"a") + session.seal(b"bc")


_structure, _ = encode.split({"w": torch.ones(3), "b": [torch.zeros(0), 1]})

DECODERS: dict[str, Decoder] = {
    "framing": Decoder(lambda data: FrameReader().feed(data), [frame(b"a") + frame(b"bc")]),
    "sealed": Decoder(lambda data: SealedReader(_session()).feed(data), [_sealed()]),
    "hello": Decoder(lambda data: _hear(Listener(TOKEN, END, NONCE), data), [_both_said()[0]]),
    "hello_back": Decoder(lambda data: _hear(Dialler(TOKEN, END, NONCE), data), [_both_said()[1]]),
    "worker_fact": Decoder(m.decode_worker_fact, [m.encode(fact) for fact in _facts()]),
    "agent_fact": Decoder(m.decode_agent_fact, [m.encode(fact) for fact in _agent_facts()]),
    "order": Decoder(m.decode_order, [m.encode(order) for order in _orders()]),
    "trunk_fact": Decoder(trunk.decode_trunk_fact, [m.encode(fact) for fact in _trunk_facts()]),
    "trunk_order": Decoder(trunk.decode_trunk_order, [m.encode(one) for one in _trunk_orders()]),
    "stores": Decoder(_stores, [keys.encode(request) for request in _asked_of_stores()]),
    "vault": Decoder(_vault, [frame(wire.encoder.encode(request)) for request in _requests()]),
    "wanted": Decoder(transfer.read_wanted, [transfer.wanted_bytes(transfer.Wanted("key", True))]),
    "opening": Decoder(
        transfer.read_opening,
        [transfer.opening_bytes(transfer.Opening(b"header", [3, 4], "alike"))],
    ),
    "state": Decoder(encode.decode, [encode.encode(_state())]),
    "structure": Decoder(encode.holes, [_structure]),
    "tracked_header": Decoder(
        lambda data: Tracked().bulk_destinations(data),
        [encode.encode({"objects": {}, "groups": {}})],
    ),
    "generators": Decoder(_restored, [rng.capture()]),
    "rank_record": Decoder(RankRecord.from_bytes, [_rank_record()]),
    "first_steps": Decoder(layout.from_bytes, [layout.to_bytes(_record())], _seal_record),
    "snapshot": Decoder(
        lambda data: Snapshot.from_block(bytearray(data)), [_snapshot()], _seal_tail
    ),
    "manifest": Decoder(_manifest, [_checkpoint()], _seal_manifest),
    "journal": Decoder(_journal, [_journal_lines()]),
    "rows": Decoder(_rows, [_packed_rows()], _seal_rows),
}
