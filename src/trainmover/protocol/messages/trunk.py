# SPDX-License-Identifier: Apache-2.0
"""What a relay and the controller say to each other over a trunk: the frames of lanes. Pure.

A lane has a number that the relay gives it, and never gives again over this trunk.
"""

from typing import Any

import msgspec

from trainmover.ids import MachineId
from trainmover.protocol.malformed import read_message
from trainmover.protocol.messages.root import Message


class TrunkFact(Message, frozen=True):
    """Said by a relay."""


class Came(TrunkFact, frozen=True):
    """A machine has dialled the relay, and has proved its name there."""

    lane: int
    machine: MachineId


class Carried(TrunkFact, frozen=True):
    """What came over lanes since this was last said.

    beats  lanes of which a beat has come
    said   frames, each with its lane, in the order in which they came
    """

    beats: list[int]
    said: list[tuple[int, bytes]]


class Gone(TrunkFact, frozen=True):
    """The machine at that lane has ended it."""

    lane: int


class TrunkOrder(Message, frozen=True):
    """Said to a relay."""


class Beat(TrunkOrder, frozen=True):
    """To be passed on to all lanes."""


class Carry(TrunkOrder, frozen=True):
    """To be passed on: payloads, each with the lanes that it is for and the mark for each."""

    said: list[tuple[bytes, list[tuple[int, bytes]]]]


class CloseLane(TrunkOrder, frozen=True):
    """Behind what was said before."""

    lane: int


_facts: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Came | Carried | Gone)
_orders: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Beat | Carry | CloseLane)


def decode_trunk_fact(payload: bytes) -> TrunkFact:
    """Raises ProtocolError if `payload` is none."""
    return read_message(_facts, payload)  # type: ignore[no-any-return]


def decode_trunk_order(payload: bytes) -> TrunkOrder:
    """Raises ProtocolError if `payload` is none."""
    return read_message(_orders, payload)  # type: ignore[no-any-return]
