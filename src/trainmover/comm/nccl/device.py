# SPDX-License-Identifier: Apache-2.0
"""Devices, as the communicator needs them: streams, events, and who waits for whom.

A thin seam. Behind it is CUDA (`CudaDevice`), or what lies beside the library that
`TRAINMOVER_NCCL` names, if that is a stand-in with streams of its own.

    caller  the stream on which the script's own kernels go at the moment
    stream  one of ours, on which a group's calls go, one behind the other
    event   a mark in a stream; it has come when all before it is done
"""

import contextlib
import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from trainmover.comm.nccl.library import library
from trainmover.errors import UserError

_LOOK_AGAIN_S = 0.0001


class Device(Protocol):
    """One device of this process. Its methods may be called from any thread.

    name   what it is called, and where it is: no two seats of a group have the same
    type   torch's name for its kind
    device where its tensors lie: not always the current device of a thread
    """

    name: str
    type: str
    device: torch.device

    def holds(self, tensor: Tensor) -> bool:
        """Tell whether the tensor lies in its memory."""

    def here(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context within which this thread asks the driver about this device."""

    def stream(self) -> Any:
        """Return a new stream of ours."""

    def handle(self, stream: Any) -> int:
        """Return the stream as libnccl takes it."""

    def follow_caller(self, stream: Any) -> None:
        """What `stream` is given from now on comes behind what the caller was given so far."""

    def mark(self, stream: Any) -> Any:
        """Return an event behind all that the stream was given so far."""

    def has_come(self, event: Any) -> bool:
        """Raises RuntimeError if the device is lost."""

    def hold_caller(self, event: Any, keep: Any, over: Callable[[], bool]) -> None:
        """What the caller is given from now on comes behind the event.

        keep  memory in use until then, which the device keeps from others as long
        over  whether to give up
        """

    def behind(self, stream: Any, job: Callable[[], None]) -> None:
        """Have tensor operations done on the stream, behind what it was given so far."""

    def promise(self, event: Any, stream: Any, value: Any) -> "torch.futures.Future[Any]":
        """Return a future of `value`; whoever waits for it, in C++ too, comes behind the event."""

    def records(self) -> bool:
        """Tell whether the caller's kernels are being captured for a graph, and not run."""

    def synchronize(self) -> None:
        """Block until all that this process has given the device is done, on every stream. Raises
        as `has_come`."""


class CudaDevice:
    """A GPU, by torch's streams and events."""

    type = "cuda"

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        self.name = f"GPU {torch.cuda.get_device_properties(index).uuid}"

    def holds(self, tensor: Tensor) -> bool:
        return tensor.device == self.device

    def here(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.device(self.device)

    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def handle(self, stream: Any) -> int:
        return int(stream.cuda_stream)

    def follow_caller(self, stream: Any) -> None:
        stream.wait_stream(torch.cuda.current_stream(self.device))

    def mark(self, stream: Any) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def has_come(self, event: Any) -> bool:
        return bool(event.query())

    def hold_caller(self, event: Any, keep: Any, over: Callable[[], bool]) -> None:
        """torch's allocator gives freed memory again in the order of the stream it was made on."""
        torch.cuda.current_stream(self.device).wait_event(event)

    def behind(self, stream: Any, job: Callable[[], None]) -> None:
        with torch.cuda.stream(stream):
            job()

    def promise(self, event: Any, stream: Any, value: Any) -> "torch.futures.Future[Any]":
        """Fulfilled at once: it notes where the stream is now, and waiters come behind that. One
        without devices would hold nobody, and would not say so."""
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[self.device])
        with torch.cuda.stream(stream):
            stream.wait_event(event)
            future.set_result(value)
        return future

    def records(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)


def own_device(asked: torch.device | None, local_rank: int) -> Device:
    """Return the device that a group of this process talks from.

    asked       what the script has given; None: the one it has set, or the one of its local rank
    """
    stand_in = _stand_in()
    if stand_in is not None:
        return stand_in
    if not torch.cuda.is_available():
        raise UserError(
            "This group is to talk over nccl, and torch sees no GPU in this process.",
            means="NCCL carries tensors of GPUs only.",
            do="Look at CUDA_VISIBLE_DEVICES and at the driver, or run with --gpu-comm staged.",
        )
    if asked is not None and asked.index is not None:
        return CudaDevice(asked.index)
    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    return CudaDevice(current or local_rank % count)


@functools.cache
def _stand_in() -> Device | None:
    """Return the device of a library that brings one of its own."""
    given = library()
    if not hasattr(given.dll, "fakeStreamCreate"):
        return None
    path = Path(given.path).with_name("stand_in.py")
    spec = importlib.util.spec_from_file_location("trainmover_stand_in", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.StandIn(given)  # type: ignore[no-any-return]


def await_events(device: Device, events: Sequence[Any], patience_s: float) -> bool:
    """Wait until all have come; False if some have not by then. Raises as `has_come` does."""
    deadline = time.monotonic() + patience_s
    for event in events:
        while not device.has_come(event):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN_S)
    return True
