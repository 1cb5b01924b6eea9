# SPDX-License-Identifier: Apache-2.0
"""From a device to the host through pinned memory: one block is used, the next is on its way.

A copy into ordinary memory holds the host, and is made by the driver in small pieces. So there are
two blocks that the device can write to itself, on a stream beside the script's. A block is copied
into again only when whoever was given it asks for the next one, and is given away only when its
copy has come.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

BLOCK_BYTES = 16 << 20
BLOCKS = 2


class Lane(Protocol):
    """A way from one device to the host."""

    def block(self, size: int) -> Tensor:
        """Bytes on the host that the device can write to."""

    def start(self, into: Tensor, given: Tensor, behind: Any) -> Any:
        """Begin a copy; the event of its end.

        behind: an event that must have come; None: all that the caller's stream was given so far
        """

    def wait(self, event: Any) -> None:
        """Until the copy has come."""


class CudaLane:
    """By a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def block(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def start(self, into: Tensor, given: Tensor, behind: Any) -> torch.cuda.Event:
        if behind is None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        else:
            self._stream.wait_event(behind)
        with torch.cuda.stream(self._stream):
            into.copy_(given, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def wait(self, event: torch.cuda.Event) -> None:
        event.synchronize()


class Staging:
    """The blocks of one lane. One copy at a time: a second one waits for the first."""

    def __init__(self, lane: Lane, block_bytes: int = BLOCK_BYTES) -> None:
        self.lane = lane
        self._bytes = block_bytes
        self._blocks: list[Tensor] = []
        self._lock = threading.Lock()

    def copy(self, flat: Tensor, place: Tensor, behind: Any = None) -> None:
        """Put the bytes of a device into bytes of the host, as many. behind: see `Lane.start`."""
        with self._lock:
            at = 0
            for block in self._through(flat, behind):
                place[at : at + len(block)].copy_(block)
                at += len(block)

    def _through(self, flat: Tensor, behind: Any) -> Iterator[Tensor]:
        """The bytes in order; each block is the caller's until he asks for the next."""
        if not self._blocks:
            self._blocks = [self.lane.block(self._bytes) for _ in range(BLOCKS)]
        parts = torch.split(flat, self._bytes) if len(flat) else ()
        under_way: list[tuple[Tensor, Any]] = []
        for number, part in enumerate(parts):
            block = self._blocks[number % BLOCKS][: len(part)]
            under_way.append((block, self.lane.start(block, part, behind)))
            if len(under_way) == BLOCKS:
                yield self._come(*under_way.pop(0))
        for block, event in under_way:
            yield self._come(block, event)

    def _come(self, block: Tensor, event: Any) -> Tensor:
        self.lane.wait(event)
        return block


@functools.cache
def _staging(device: torch.device) -> Staging:
    return Staging(CudaLane(device))


def copy_to_host(flat: Tensor, place: Tensor, behind: Any = None) -> None:
    """Put bytes into bytes of the host, wherever they lie.

    behind: one of `moments`; None: behind all that this thread has given the device
    """
    if flat.device.type == "cuda":
        _staging(flat.device).copy(flat, place, behind)
    else:
        place.copy_(flat)


def begin_copy(flat: Tensor) -> Callable[[], bytes]:
    """Of a few bytes, behind what this thread has given the device; what it gives waits for them
    alone."""
    if flat.device.type != "cuda":
        kept = flat.clone()
        return lambda: bytes(kept.numpy())
    lane = _staging(flat.device).lane
    block = lane.block(len(flat))
    event = lane.start(block, flat, None)

    def come() -> bytes:
        lane.wait(event)
        return bytes(block.numpy())

    return come


def moments(tensors: Iterable[Tensor]) -> dict[torch.device, Any]:
    """For each GPU that some lie on, an event: all that it was given so far by this thread."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    return {device: torch.cuda.current_stream(device).record_event() for device in devices}
