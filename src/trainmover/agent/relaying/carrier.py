# SPDX-License-Identifier: Apache-2.0
"""What a relay does with frames of lanes: it carries them, and does not know what they say. Pure.

What lanes say within a moment goes up as one frame: who asks (`given`) decides when, and `is_full`
says that nobody is missing. Beats of all lanes are one list of numbers.
"""

from collections.abc import Iterator

from trainmover.ids import MachineId
from trainmover.protocol.lanes import BEAT
from trainmover.protocol.messages import encode
from trainmover.protocol.messages.trunk import (
    Beat,
    Came,
    Carried,
    Carry,
    CloseLane,
    Gone,
    decode_trunk_order,
)

CARRIED_BYTES = 1024 * 1024
"""What waits goes at once if it is as much."""


class Carrier:
    """Of one trunk. lanes: that are open, by number; each has a machine at its end."""

    def __init__(self) -> None:
        self.lanes: dict[int, MachineId] = {}
        self._newest = 0
        self._asked = False  # Whether the controller has, and nobody is here to answer.
        self._came: list[Came] = []
        self._gone: list[Gone] = []
        self._beats: dict[int, None] = {}
        self._said: list[tuple[int, bytes]] = []
        self._spoke: set[int] = set()
        self._bytes = 0

    # --- up -------------------------------------------------------------------------------------

    def come(self, machine: MachineId) -> int:
        """It has proved its name here: the number of its lane."""
        self._newest += 1
        self.lanes[self._newest] = machine
        self._came.append(Came(lane=self._newest, machine=machine))
        return self._newest

    def say(self, lane: int, frame: bytes) -> None:
        """A frame has come over it."""
        self._spoke.add(lane)
        if frame == BEAT:
            self._beats[lane] = None
            return
        self._said.append((lane, frame))
        self._bytes += len(frame)

    def go(self, lane: int) -> None:
        """The machine has ended it."""
        if self.lanes.pop(lane, None) is not None:
            self._gone.append(Gone(lane=lane))
            self._spoke.discard(lane)

    @property
    def waits(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._came or self._said or self._beats or self._gone or self._asked)

    @property
    def is_full(self) -> bool:
        """Whether it need not wait for others: all have spoken, or it is much."""
        return len(self._spoke) >= len(self.lanes) or self._bytes >= CARRIED_BYTES

    def given(self) -> list[bytes]:
        """What waits, as frames of the trunk."""
        said: list[bytes] = [encode(came) for came in self._came]
        if self._said or self._beats or self._asked:
            said.append(encode(Carried(beats=list(self._beats), said=self._said)))
        said += [encode(gone) for gone in self._gone]
        self._came, self._gone, self._said, self._beats = [], [], [], {}
        self._spoke, self._bytes, self._asked = set(), 0, False
        return said

    # --- down -----------------------------------------------------------------------------------

    def hear(self, payload: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Frames to be passed on, each with its lane; None: it is to be closed behind them. Raises
        ProtocolError for what no controller says."""
        order = decode_trunk_order(payload)
        match order:
            case Beat():
                self._asked = not self.lanes
                for lane in list(self.lanes):
                    yield lane, BEAT
            case Carry(said=said):
                for one, marked in said:
                    yield from ((lane, mark + one) for lane, mark in marked if lane in self.lanes)
            case CloseLane(lane=lane) if lane in self.lanes:
                del self.lanes[lane]
                self._spoke.discard(lane)
                yield lane, None
            case _:
                pass
