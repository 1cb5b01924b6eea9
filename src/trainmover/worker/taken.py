"""What a process takes over from others: a record of first steps, a rank's record, bulk state."""

import threading
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainmover.errors import PeerLost
from trainmover.ids import Rank
from trainmover.protocol.messages import Certificate, Switch
from trainmover.sandbox.record import Record, blob_name
from trainmover.state.encode import decode
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import FetchReport, fetch
from trainmover.state.vault import VaultClient
from trainmover.worker.keeper import RankRecord

FETCH_SILENCE_S = 30.0


def first_steps(rank: Rank, places: dict[Rank, list[str]], token: bytes) -> Record:
    """The rank's own record, or, if that died with its keepers, another rank's: a twin's.

    places: rank -> vaults that may hold its record. Raises PeerLost if none of them gives one.
    """
    twins = [rank, *(other for other in places if other != rank)]
    for twin in twins:
        for address in places.get(twin, []):
            data = _blob(address, token, blob_name(twin))
            if data is not None:
                return replace(Record.from_bytes(bytes(data)), rank=rank)
    raise PeerLost("no machine holds a record of the first steps")


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


@dataclass
class Taken:
    """What a joiner got from its source."""

    report: FetchReport
    header: dict[str, Any]
    record: RankRecord
    digest: str

    def certificate(self, order: Switch, rank: Rank, trace: str) -> Certificate:
        """What shows that the joiner has the state its source sent."""
        return Certificate(
            rank=rank,
            source_rank=order.sources[rank][0],
            step=order.committed,
            epoch=order.epoch,
            source_digest=self.header["digest"],
            joiner_digest=self.digest,
            trace=trace,
            position=_in_words(self.record.positions),
            bytes=self.report.bytes,
            state_ms=self.report.seconds * 1000.0,
        )


def take(
    order: Switch,
    rank: Rank,
    tracked: Tracked,
    *,
    token: bytes,
    known: RankRecord | None,
    cancelled: threading.Event,
) -> Taken:
    """Fetch record and state, the latter straight into the tensors of `tracked`.

    known: the record, if it has been taken before. Raises PeerLost.
    """
    source, address = order.sources[rank]
    headers: list[dict[str, Any]] = []

    def into(data: bytes) -> list[Tensor]:
        headers.append(decode(data))
        return tracked.bulk_destinations(headers[0]["bulk"])

    with torch.no_grad():
        report = fetch(
            address,
            token=token,
            key=str(order.epoch),
            into=into,
            cancelled=cancelled,
            timeout_s=FETCH_SILENCE_S,
        )
        tracked.load_bulk_header(headers[0]["bulk"], report.tensors)
    if known is not None:
        record = known
    elif source == rank:
        record = RankRecord.from_bytes(headers[0]["record"])
    else:
        record = _record_from_vault(order, rank, token)
    return Taken(report, headers[0], record, tracked.digest(tracked.bulk_names()))


def _record_from_vault(order: Switch, rank: Rank, token: bytes) -> RankRecord:
    for address in order.records[rank]:
        client = VaultClient(address, token)
        try:
            found = client.get_record(rank, order.committed + 1)
        finally:
            client.close()
        if found is not None:
            return RankRecord.from_bytes(found.data)
    raise PeerLost(f"No vault gave the record of rank {rank}.")


def _in_words(positions: list[list[Any]]) -> str:
    """Where a rank stands in its data, for people: pass and batches of each loop."""
    return "; ".join(
        f"loop {ordinal}: pass {at['pass']}, "
        + ("finished" if at.get("finished") else f"{at['taken']} batches taken")
        for ordinal, at, *_ in positions
    )
