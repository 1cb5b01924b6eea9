# SPDX-License-Identifier: Apache-2.0
"""One group, two communicators: tensors of a device go over NCCL, all others over the host's.

Both go from epoch to epoch together. A call without a tensor (a barrier) is the device's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from trainmover.comm.calls.arguments import flat
from trainmover.comm.calls.settled import Request
from trainmover.comm.communicator import Communicator, LinkStats, PromptSession, View
from trainmover.comm.nccl.communicator import NcclCommunicator
from trainmover.comm.nccl.device import Device
from trainmover.comm.nccl.session import NcclSession

_ON_HOST = frozenset({"monitored_barrier"})
"""What NCCL has not, and needs no tensor."""


class ByDeviceSession:
    """Both within one epoch; see `PromptSession`."""

    immediate = False
    prompt = True

    def __init__(self, host: PromptSession, device: NcclSession) -> None:
        self.epoch = device.epoch
        self.host = host
        self.device = device
        self._type = device.device.type
        self.direct: Mapping[str, Callable[..., Any]] = {op: self._way(op) for op in device.direct}

    def _way(self, op: str) -> Callable[..., Any]:
        over_nccl, over_host = self.device.direct[op], self.host.direct[op]
        if op in _ON_HOST:
            return over_host

        def call(*args: Any, **kwargs: Any) -> Any:
            way = over_nccl if self._on_device(args, kwargs) else over_host
            return way(*args, **kwargs)

        return call

    def _on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        first = next(flat((*args, *kwargs.values())), None)
        return first is None or first.device.type == self._type

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.start(Request(op, args, kwargs), None)

    def start(self, request: Request, told: Callable[[], None] | None) -> Any:
        nccl = request.op not in _ON_HOST and self._on_device(request.args, request.kwargs)
        return (self.device if nccl else self.host).start(request, told)

    def coalescing(self) -> Any:
        return self.device.coalescing()

    def largest(self, numbers: Sequence[int]) -> list[int]:
        return self.host.largest(numbers)

    def peers(self) -> list[int]:
        return self.host.peers()

    def translate(self, error: Exception) -> Exception:
        return self.host.translate(error)

    def attach(self, absorb: Callable[[BaseException], bool], gave_up: Callable[[], None]) -> None:
        self.host.attach(absorb, gave_up)
        self.device.attach(absorb, gave_up)

    @property
    def unfinished(self) -> bool:
        return self.host.unfinished or self.device.unfinished

    @property
    def cut(self) -> bool:
        """See `NcclSession`."""
        return self.device.cut

    def come_through(self) -> bool:
        return self.device.come_through()

    @property
    def lost(self) -> bool:
        """See `ending.Ends`."""
        return self.device.lost

    def synchronize(self) -> None:
        """See `Device`."""
        self.device.device.synchronize()

    @property
    def completed(self) -> int:
        """See `ending.Ends`."""
        return self.device.completed

    def trouble(self) -> RuntimeError | None:
        return self.device.trouble()

    def abort(self, why: str) -> None:
        self.host.abort(why)
        self.device.abort(why)

    def backend(self, device: Any) -> Any:
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        self.host.set_timeout(timeout)

    def sequence_number(self) -> int:
        return self.host.sequence_number() + self.device.sequence_number()

    def sliced(self, op: str, work: Any) -> bool:
        return True


class ByDevice:
    """See `Communicator`."""

    def __init__(self, host: Communicator, device: Device) -> None:
        self._host = host
        self._device = NcclCommunicator(device)
        self._session: ByDeviceSession | None = None

    @property
    def session(self) -> ByDeviceSession | None:
        return self._session

    def prepare(self, view: View) -> None:
        self._host.prepare(view)
        self._device.prepare(replace(view, at=f"{view.at or view.group}/nccl"))

    def switchover(self, epoch: int) -> None:
        self._host.switchover(epoch)
        self._device.switchover(epoch)
        host, device = self._host.session, self._device.session
        assert host is not None
        assert device is not None
        self._session = ByDeviceSession(cast(PromptSession, host), device)

    def discard(self, epoch: int) -> None:
        self._host.discard(epoch)
        self._device.discard(epoch)

    def abort(self, why: str) -> None:
        self._host.abort(why)
        self._device.abort(why)

    def close(self) -> None:
        self._session = None
        self._host.close()
        self._device.close()

    def stats(self) -> LinkStats:
        host, device = self._host.stats(), self._device.stats()
        return LinkStats(
            opened=host.opened + device.opened,
            kept=host.kept,
            closed=host.closed + device.closed,
            prepare_ns=host.prepare_ns + device.prepare_ns,
            switchover_ns=host.switchover_ns + device.switchover_ns,
            leaked=host.leaked + device.leaked,
        )


@contextmanager
def as_one_call(session: Any) -> Iterator[None]:
    """Messages that this thread sends and receives within it wait for each other."""
    if isinstance(session, ByDeviceSession):
        with session.coalescing():
            yield
    else:
        yield
