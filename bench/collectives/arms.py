# SPDX-License-Identifier: Apache-2.0
"""The libraries behind one face: `call(operation, buffers)` gives what a rank runs, and times.

Ours is called as the adapter calls it, synchronously with pointers. gloo is called through its
torch binding directly; `torch.distributed`'s own layers above it would only add to its time.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import torch
from torch.distributed import ProcessGroupGloo, Store

TOKEN = b"a bench on one machine needs no secret"
OURS_S = 60.0
F32 = 4
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@dataclass(frozen=True)
class Buffers:
    """Of one rank. `whole` and `other` have `count` elements of f32, a part `count / size`."""

    seat: int
    size: int
    whole: torch.Tensor
    other: torch.Tensor

    @property
    def part(self) -> int:
        return self.whole.numel() // self.size

    def parts(self, tensor: torch.Tensor) -> list[int]:
        """Addresses of the `size` parts of one of the two."""
        return [tensor.data_ptr() + seat * self.part * F32 for seat in range(self.size)]


def buffers(seat: int, size: int, size_bytes: int) -> Buffers:
    """Of `size_bytes` or, where that does not divide among the ranks, a little less."""
    count = max(1, size_bytes // F32 // size) * size
    return Buffers(seat, size, torch.full((count,), seat + 1.0), torch.empty(count))


class Arm(Protocol):
    def call(self, operation: str, held: Buffers) -> Callable[[], object]: ...


class NativeArm:
    """One endpoint and one group. `host` equal on all ranks: shared memory; else TCP.

    libcrypto  the library that encrypts what goes over TCP, as with --tls; "": it is plain
    """

    def __init__(
        self, seat: int, size: int, host: str, name: str = "world", libcrypto: str = ""
    ) -> None:
        from trainmover import _native  # late: the other arms need no extension

        self.endpoint = _native.Endpoint(TOKEN, host, libcrypto=libcrypto)
        self.group = self.endpoint.group(name, seat, size)
        self.f32 = _native.DTYPES["f32"]
        self.sum = _native.OPS["sum"]

    def card(self) -> bytes:
        return bytes(self.group.card())

    def join(self, cards: list[bytes]) -> None:
        self.group.prepare(1, cards, OURS_S)
        self.group.switchover(1)
        self.group.set_timeout(OURS_S)

    def call(self, operation: str, held: Buffers) -> Callable[[], object]:
        group, f32, add = self.group, self.f32, self.sum
        whole, other = held.whole.data_ptr(), held.other.data_ptr()
        count, part, each = held.whole.numel(), held.part, [held.part] * held.size
        ins, outs = held.parts(held.whole), held.parts(held.other)
        match operation:
            case "all_reduce":
                return partial(group.all_reduce, whole, count, f32, add, False)
            case "broadcast":
                return partial(group.broadcast, whole, count, f32, 0, False)
            case "all_gather":
                return partial(group.all_gather, whole, outs, part, f32, False)
            case "reduce_scatter":
                return partial(group.reduce_scatter, ins, other, part, f32, add, False)
            case "all_to_all":
                return partial(group.all_to_all, ins, each, outs, each, f32, False)
            case _:
                return _ping_pong(held.seat, self._send(whole, count), self._receive(whole, count))

    def _send(self, data: int, count: int) -> Callable[[int], object]:
        return lambda to: self.group.send(data, count, self.f32, to, 0).wait(OURS_S)

    def _receive(self, data: int, count: int) -> Callable[[int], object]:
        return lambda by: self.group.recv(data, count, self.f32, by, 0).wait(OURS_S)


class GlooArm:
    """One ProcessGroupGloo over loopback. It has no other transport than TCP."""

    def __init__(self, seat: int, size: int, store: Store, timeout_s: float = 60.0) -> None:
        self.group: Any = gloo_group(store, seat, size, timeout_s)

    def call(self, operation: str, held: Buffers) -> Callable[[], object]:
        group, whole, other = self.group, held.whole, held.other
        mine = whole[: held.part]
        match operation:
            case "all_reduce":
                tensors = [whole]
                return lambda: group.allreduce(tensors).wait()
            case "broadcast":
                return lambda: group.broadcast(whole, 0).wait()
            case "all_gather":
                return lambda: group._allgather_base(other, mine).wait()
            case "reduce_scatter":
                out = other[: held.part]
                return lambda: group._reduce_scatter_base(out, whole).wait()
            case "all_to_all":
                return lambda: group.alltoall_base(other, whole, [], []).wait()
            case _:
                return _ping_pong(
                    held.seat,
                    lambda to: group.send([whole], to, 0).wait(),
                    lambda by: group.recv([whole], by, 0).wait(),
                )


def gloo_group(store: Store, seat: int, size: int, timeout_s: float) -> Any:
    """A new group: it connects to everybody while it is made."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    return ProcessGroupGloo(store, seat, size, timedelta(seconds=timeout_s))


def _ping_pong(
    seat: int, send: Callable[[int], object], receive: Callable[[int], object]
) -> Callable[[], object]:
    """There and back between seats 0 and 1; nothing for the others."""

    def first() -> None:
        send(1)
        receive(1)

    def second() -> None:
        receive(0)
        send(0)

    return (first, second)[seat] if seat < 2 else threading.get_ident


def check(operation: str, held: Buffers) -> None:
    """Raises ValueError unless one call on `buffers` has left the right result."""
    total = held.size * (held.size + 1) / 2
    everyone = tuple(seat + 1.0 for seat in range(held.size))
    own = 1.0 if held.seat < 2 else held.seat + 1.0
    # Of each part of the result, one after the other.
    expected: dict[str, tuple[torch.Tensor, tuple[float, ...]]] = {
        "all_reduce": (held.whole, (total,) * held.size),
        "broadcast": (held.whole, (1.0,) * held.size),
        "all_gather": (held.other, everyone),
        "reduce_scatter": (held.other[: held.part], (total,)),
        "all_to_all": (held.other, everyone),
        "send_recv": (held.whole, (own,) * held.size),
    }
    result, values = expected[operation]
    for part, value in zip(result.split(held.part), values, strict=True):
        least, most = (float(bound) for bound in part.aminmax())
        if not least == most == value:
            raise ValueError(f"{operation}: {least} to {most} in the result instead of {value}")
