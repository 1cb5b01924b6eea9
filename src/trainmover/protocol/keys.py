# SPDX-License-Identifier: Apache-2.0
"""What the place where groups meet is asked: a few things of a key-value store. Pure.

Each request is answered before the next one is read. All of it goes in sealed frames, over a
connection that is proved.
"""

from typing import TypeVar

import msgspec

from trainmover.errors import ProtocolError
from trainmover.protocol.malformed import read_message

ROOMS_MAX = 64
_Answer = TypeVar("_Answer")


class Set(msgspec.Struct, tag="set", array_like=True, frozen=True):
    """Answered with None."""

    key: str
    value: bytes


class Add(msgspec.Struct, tag="add", array_like=True, frozen=True):
    """To a number, kept as text; it is 0 before. Answered with the sum."""

    key: str
    amount: int


class Check(msgspec.Struct, tag="check", array_like=True, frozen=True):
    """Answered with whether all are there."""

    keys: list[str]


class Get(msgspec.Struct, tag="get", array_like=True, frozen=True):
    """Answered with their values, None for one that is not there."""

    keys: list[str]


class ToTorch(msgspec.Struct, tag="to torch", array_like=True, frozen=True):
    """Answered with None; from then on the connection is one with torch's store, in its words."""


Request = Set | Add | Check | Get | ToTorch
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
encode = msgspec.msgpack.Encoder().encode
"""A request, or the answer to one."""


def decode_request(payload: bytes) -> Request:
    """Raises ProtocolError."""
    return read_message(_requests, payload)


def decode_answer(payload: memoryview, kind: type[_Answer]) -> _Answer:
    """Raises ProtocolError."""
    return read_message(msgspec.msgpack.Decoder(kind), payload)


class Keys:
    """What is kept, by key. A key that is added to holds a number as text, as in torch's store.

    What is before the first "/" of a key is its *room*: each epoch, and each shadow run, has its
    own. Rooms that nobody has asked about for longest are forgotten, so that it does not grow over
    a job of months: who waits in one asks again and again.
    """

    def __init__(self, rooms_max: int = ROOMS_MAX) -> None:
        self._rooms: dict[str, dict[str, bytes]] = {}
        self._rooms_max = rooms_max

    def answer(self, request: Set | Add | Check | Get) -> object:
        """Raises ProtocolError for a sum with what is no number."""
        match request:
            case Set(key, value):
                self._room(key)[key] = value
                return None
            case Add(key, amount):
                return self._add(key, amount)
            case Check(keys):
                return all(key in self._room(key) for key in keys)
            case Get(keys):
                return [self._room(key).get(key) for key in keys]

    def _room(self, key: str) -> dict[str, bytes]:
        name = key.partition("/")[0]
        room = self._rooms.pop(name, {})
        self._rooms[name] = room  # As the newest.
        if len(self._rooms) > self._rooms_max:
            del self._rooms[next(iter(self._rooms))]
        return room

    def _add(self, key: str, amount: int) -> int:
        room = self._room(key)
        try:
            total = int(room.get(key, b"0")) + amount
        except ValueError as error:
            raise ProtocolError(
                f"{key} in the key-value store is to be added to, and is no number.",
                means="That connection was closed.",
                do="This is a fault of trainmover: please report it.",
            ) from error
        room[key] = str(total).encode()
        return total
