# SPDX-License-Identifier: Apache-2.0
"""A place to listen to the calls of the script's groups, or to answer them instead of the peers."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass
class Call:
    """One call on one group.

    group    torch's name of the group, for people: a rank's own, where groups of a mesh are meant
    number   how many groups of the script this process had come to take part in before this one;
             size and seat are its size and this process's place in it
    seq      counts the calls of this group from 0, while a tap is installed
    op       name of the ProcessGroup method
    meta     (shapes, dtypes, root or peer or None, name of the reduce operation or None);
             shapes and dtypes of the inputs first, then of the outputs; root and peer are seats
    outputs  the caller's own tensors; whoever serves the call fills them in place
    inside   whether all ranks of the group are on this machine: then the call needs no other
    source   seat that a message came from; set by whoever serves a `recv_anysource`
    handle   of the running call, once it is started
    error    what the script was given instead of outputs; None: the call has them
    """

    group: str
    seq: int
    op: str
    meta: tuple[Any, ...]
    inputs: list[Tensor]
    outputs: list[Tensor]
    number: int = 0
    size: int = 1
    seat: int = 0
    inside: bool = False
    source: int = 0
    handle: Any = None
    error: Exception | None = None

    @property
    def key(self) -> Hashable:
        """Equal on record and replay, or something is wrong; the same on ranks of one role."""
        return (self.number, self.size, self.seq, self.op, self.meta[0], self.meta[1])

    def __str__(self) -> str:
        shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in self.meta[0])
        return f"{self.op} number {self.seq} of group {self.group} ({shapes or 'no tensors'})"


class Tap(Protocol):
    """Installed as `groups.tap`. Both methods may be called from any thread."""

    def serve(self, call: Call) -> bool:
        """True: `call.outputs` are filled and the call must not run."""

    def done(self, call: Call) -> None:
        """The call ran for real and `call.outputs` are final; its waiter is released afterwards.

        Or it was refused, and `call.error` is what the script sees next.
        """
