# SPDX-License-Identifier: Apache-2.0
"""The device of the stand-in: streams and events in host memory (see `comm.nccl.device`).

Its memory is the host's, so every CPU tensor lies in it, and the script's own arithmetic is done by
the host at once. So a wait that a GPU would put into the caller's stream holds the host instead.
With `FAKE_NCCL_WAIT=late` it goes into a stream of the caller's as on a GPU, and the host runs
ahead: then the script has to end its own arithmetic behind `synchronize`, as its kernels would be.
"""

import contextlib
import ctypes
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from trainmover.comm.calls.threads import waiters
from trainmover.comm.nccl.library import Library

_NOT_READY = 600
_SLICE_US = 20_000


class _Event:
    def __init__(self, dll: Any) -> None:
        self._dll = dll
        self.handle = dll.fakeEventCreate()

    def __del__(self) -> None:
        self._dll.fakeEventDestroy(self.handle)


class StandIn:
    type = "cpu"
    device = torch.device("cpu")

    def __init__(self, library: Library) -> None:
        self.name = f"stand-in {os.getpid()}"
        self.late = os.environ.get("FAKE_NCCL_WAIT") == "late"
        self.dll = dll = library.dll
        dll.fakeStreamCreate.restype = dll.fakeEventCreate.restype = ctypes.c_void_p
        pointer, number = ctypes.c_void_p, ctypes.c_long
        for name, types in {
            "fakeEventRecord": [pointer, pointer],
            "fakeEventQuery": [pointer],
            "fakeEventSynchronize": [pointer, number],
            "fakeEventDestroy": [pointer],
            "fakeStreamWaitEvent": [pointer, pointer],
            "fakeStreamQuery": [pointer],
            "fakeDeviceSynchronize": [number],
            "fakeCompute": [pointer, number],
            "fakeCopy": [pointer, pointer, ctypes.c_size_t, pointer],
            "fakeSet": [ctypes.c_char_p, number],
            "fakeGet": [ctypes.c_char_p],
        }.items():
            getattr(dll, name).argtypes = types
        dll.fakeBytes.restype = dll.fakeComms.restype = dll.fakeGet.restype = number
        self._job = ctypes.CFUNCTYPE(None)
        dll.fakeRun.argtypes = [pointer, self._job]
        self._jobs: dict[int, tuple[deque[Callable[[], None]], Any]] = {}
        self._freed: deque[tuple[_Event, Any]] = deque()
        self.caller = dll.fakeStreamCreate()

    # What the seam asks.

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cpu

    def here(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def stream(self) -> int:
        return int(self.dll.fakeStreamCreate())

    def handle(self, stream: Any) -> int:
        return int(stream)

    def follow_caller(self, stream: Any) -> None:
        event = self.mark(self.caller)
        self.dll.fakeStreamWaitEvent(stream, event.handle)

    def mark(self, stream: Any) -> _Event:
        event = _Event(self.dll)
        self._checked(self.dll.fakeEventRecord(event.handle, stream))
        return event

    def has_come(self, event: _Event) -> bool:
        return self._checked(self.dll.fakeEventQuery(event.handle))

    def hold_caller(self, event: _Event, keep: Any, over: Callable[[], bool]) -> None:
        if self.late:
            self.dll.fakeStreamWaitEvent(self.caller, event.handle)
        else:
            while not self._come_within_slice(event) and not over():
                pass
        self._free_behind(event, keep)

    def _free_behind(self, event: _Event, keep: Any) -> None:
        """The host's allocator would give freed memory to anybody at once."""
        self._freed.append((event, keep))
        while self._freed and self.has_come(self._freed[0][0]):
            self._freed.popleft()

    def behind(self, stream: Any, job: Callable[[], None]) -> None:
        """C keeps no reference: a stream's one callback lives as long as this."""
        if stream not in self._jobs:
            jobs: deque[Callable[[], None]] = deque()
            self._jobs[stream] = (jobs, self._job(lambda: jobs.popleft()()))
        jobs, call = self._jobs[stream]
        jobs.append(job)
        self.dll.fakeRun(stream, call)

    def promise(self, event: _Event, stream: Any, value: Any) -> "torch.futures.Future[Any]":
        future: torch.futures.Future[Any] = torch.futures.Future()
        if self.late:
            self.dll.fakeStreamWaitEvent(self.caller, event.handle)
            future.set_result(value)
        else:
            waiters.run(lambda: self._fulfil(future, event, value))
        return future

    def _fulfil(self, future: "torch.futures.Future[Any]", event: _Event, value: Any) -> None:
        try:
            while not self._come_within_slice(event):
                pass
        except RuntimeError as error:
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(value)

    def records(self) -> bool:
        return bool(self.dll.fakeGet(b"capturing"))

    def synchronize(self) -> None:
        while not self._checked(self.dll.fakeDeviceSynchronize(_SLICE_US)):
            pass

    # What tests and scripts ask.

    def is_empty(self, stream: int) -> bool:
        """Whether all that the stream was given is done."""
        return self._checked(self.dll.fakeStreamQuery(stream))

    def compute(self, us: int, stream: int | None = None) -> None:
        """A kernel of the script that takes so long, on the caller's stream or another one."""
        self.dll.fakeCompute(self.caller if stream is None else stream, us)

    def set(self, fault: str, value: int) -> None:
        """See faults.hpp."""
        self.dll.fakeSet(fault.encode(), value)

    @property
    def bytes_moved(self) -> int:
        return int(self.dll.fakeBytes())

    @property
    def comms(self) -> int:
        """Communicators that this process has made and not aborted."""
        return int(self.dll.fakeComms())

    def _come_within_slice(self, event: _Event) -> bool:
        return self._checked(self.dll.fakeEventSynchronize(event.handle, _SLICE_US))

    def _checked(self, code: int) -> bool:
        if code not in (0, _NOT_READY):
            raise torch.AcceleratorError(f"CUDA error: unspecified launch failure ({code})")
        return code == 0
