# SPDX-License-Identifier: Apache-2.0
"""What workers and a vault say to each other. Requests are answered one by one, in order."""

import msgspec

PURPOSE = "vault"
BLOB_PART_BYTES = 4 * 1024 * 1024
"""A blob travels in parts, so that a record waits for at most one of them."""

BLOB_BYTES_MAX = 4 * 1024**3


class PutRecord(msgspec.Struct, array_like=True, tag=1):
    """epoch: in which the rank trains that puts it."""

    rank: int
    step: int
    complete: bool
    data: bytes
    epoch: int = 0


class GetRecord(msgspec.Struct, array_like=True, tag=2):
    rank: int
    step: int


class ListRecords(msgspec.Struct, array_like=True, tag=3):
    pass


class PutBlob(msgspec.Struct, array_like=True, tag=4):
    """One part; parts come in order, the blob is kept when `total` bytes are there."""

    name: str
    offset: int
    total: int
    data: memoryview  # of the frame it came in


class GetBlob(msgspec.Struct, array_like=True, tag=5):
    """Asks for the part at `offset`. From offset 0 on, a connection reads one version."""

    name: str
    offset: int


class ThrowAway(msgspec.Struct, array_like=True, tag=6):
    """Bytes that nobody wants: how long they are on their way is measured."""

    data: memoryview  # of the frame it came in


class ComeBehind(msgspec.Struct, array_like=True, tag=7):
    """Have `relay`, which listens at `address`, carry what the agent says to the controller.

    A neighbour asks for it: see `messages.GoBehind`.
    """

    relay: str
    address: str
    ticket: str


class Done(msgspec.Struct, array_like=True, tag=1):
    pass


class Refused(msgspec.Struct, array_like=True, tag=2):
    happened: str
    means: str
    do: str


class RecordFound(msgspec.Struct, array_like=True, tag=3):
    step: int
    complete: bool
    data: bytes


class RecordsHeld(msgspec.Struct, array_like=True, tag=4):
    steps: dict[int, list[int]]


class BlobPart(msgspec.Struct, array_like=True, tag=5):
    total: int
    data: memoryview  # of the frame it came in


class Nothing(msgspec.Struct, array_like=True, tag=6):
    """There is no such record or blob."""


class Outdated(msgspec.Struct, array_like=True, tag=7):
    """Members have changed since: the record was not kept."""


Request = PutRecord | GetRecord | ListRecords | PutBlob | GetBlob | ThrowAway | ComeBehind
Reply = Done | Refused | RecordFound | RecordsHeld | BlobPart | Nothing | Outdated

encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(Request)
reply_decoder = msgspec.msgpack.Decoder(Reply)
