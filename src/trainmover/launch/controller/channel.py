# SPDX-License-Identifier: Apache-2.0
"""What a supervisor and its controller tell each other: a socketpair, one JSON object a packet.

What the supervisor says is numbered, and said again to the next controller until one has heard it:
each controller may die before it has done anything about it.
"""

import socket
from typing import Any

import msgspec

PACKET_BYTES_MAX = 64 * 1024


class ToController(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Said by the supervisor. number: of those that are numbered, from 1."""

    number: int = 0


class Begin(ToController, frozen=True):
    """The journal is there. notes: what the user should know, if it is empty.

    lost_us  when the controller before this one died, on the host's clock; 0: there was none
    killed   why it was killed; "" if it died by itself
    """

    notes: list[str]
    lost_us: int = 0
    killed: str = ""


class Ask(ToController, frozen=True):
    """Whether it is there: `Heard` says so."""


class AgentEnded(ToController, frozen=True):
    """The process of a machine's agent. said: the end of what it wrote."""

    machine: str
    code: int
    said: str


class StoreIsAt(ToController, frozen=True):
    """Where groups are to meet."""

    address: str


class StoreLost(ToController, frozen=True):
    """There is none any more. why: three lines."""

    why: str


class Signalled(ToController, frozen=True):
    """The run is to stop. times: how often that was asked for."""

    name: str
    code: int
    times: int


class ToSupervisor(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Said by the controller."""


class Ready(ToSupervisor, frozen=True):
    """Agents and requests are answered."""


class Heard(ToSupervisor, frozen=True):
    """All up to this number is taken care of; 0: what has none."""

    number: int


class Over(ToSupervisor, frozen=True):
    """The job is over, or cannot be controlled; all that is to be said was shown."""

    code: int


SAID_TO_CONTROLLER = Begin | Ask | AgentEnded | StoreIsAt | StoreLost | Signalled
SAID_TO_SUPERVISOR = Ready | Heard | Over
_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(
    SAID_TO_CONTROLLER | SAID_TO_SUPERVISOR
)


class Channel:
    """One end. Closed, it swallows what is said."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.set_inheritable(False)
        self._sock = sock

    @staticmethod
    def pair() -> tuple["Channel", socket.socket]:
        """Our end, and the one for a child."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(ours), theirs

    @classmethod
    def inherited(cls, fd: int) -> "Channel":
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: ToController | ToSupervisor) -> None:
        try:
            self._sock.send(msgspec.json.encode(message))
        except OSError:
            return  # Its end is seen elsewhere; the next one is told again.

    def first(self) -> Any:
        """One message, which has arrived; those behind it stay."""
        return _decoder.decode(self._sock.recv(PACKET_BYTES_MAX))

    def heard(self) -> list[Any]:
        """What has arrived. Raises ConnectionError when nothing more will."""
        messages: list[Any] = []
        while True:
            try:
                packet = self._sock.recv(PACKET_BYTES_MAX)
            except BlockingIOError:
                return messages
            if not packet:
                if messages:
                    return messages
                raise ConnectionResetError("the other end has ended")
            messages.append(_decoder.decode(packet))

    def close(self) -> None:
        self._sock.close()
