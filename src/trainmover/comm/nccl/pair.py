# SPDX-License-Identifier: Apache-2.0
"""A communicator of two seats, over which state goes from one device to another.

A source and the one that joins make it while training goes on. It belongs to no epoch and to no
group: an incident does not end it, but whoever uses it does as soon as the other end is gone.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from trainmover.comm.nccl.device import Device
from trainmover.comm.nccl.ending import endings
from trainmover.comm.nccl.init import Init, own_card
from trainmover.comm.nccl.library import UINT8, Library, UniqueId, library
from trainmover.comm.nccl.seats import Card, check_cards
from trainmover.errors import PeerLost

BATCH_BYTES = 64 << 20
"""So much is asked for at once; each has an event, by which it is seen how far it is."""
_LOOK_AGAIN_S = 0.0002

Over = Callable[[], bool]
"""Whether nobody waits for it any more."""


class Pair:
    """One end of it; one thread at a time. See `ending.Ends`."""

    def __init__(self, given: Library, device: Device, comm: int, seat: int) -> None:
        self.comm = comm
        self.calling = threading.Lock()
        self.ended, self.freed = threading.Event(), threading.Event()
        self.lost = False
        self.completed = 0
        self._library, self._device = given, device
        self._stream = device.stream()
        self._other = 1 - seat
        self._closed = False

    def holds(self, tensor: Tensor) -> bool:
        """Tell whether a tensor can go this way: in one piece, in this device's memory."""
        return self._device.holds(tensor) and tensor.is_contiguous()

    def send(self, tensors: Sequence[Tensor], over: Over) -> Iterator[int]:
        """Yields how many bytes have gone since it did so last.

        Raises PeerLost, and then nobody reads the tensors any more.
        """
        yield from self._move(self._library.send, tensors, over)

    def receive(self, tensors: Sequence[Tensor], over: Over) -> Iterator[int]:
        """Fill them with as many bytes; yields how many have come since it did so last.

        Raises PeerLost, and then nobody writes to them any more, but they hold anything.
        """
        yield from self._move(self._library.recv, tensors, over)

    def _move(
        self, call: Callable[..., None], tensors: Sequence[Tensor], over: Over
    ) -> Iterator[int]:
        try:
            under_way = [(self._begin(call, batch), batch) for batch in _batches(tensors)]
            for event, batch in under_way:
                self._await(event, over)
                self.completed += 1
                yield sum(tensor.nbytes for tensor in batch)
        except BaseException as error:  # Also whoever receives and wants no more.
            self.close()
            if isinstance(error, RuntimeError):  # The device may be gone.
                raise _lost(str(error)) from error
            raise

    def _await(self, event: object, over: Over) -> None:
        while not self._device.has_come(event):
            if (trouble := self._library.async_error(self.comm)) is not None:
                raise _lost(str(trouble))
            if over():
                raise _lost("the other end is gone, or nobody waits for it any more")
            time.sleep(_LOOK_AGAIN_S)

    def _begin(self, call: Callable[..., None], batch: Sequence[Tensor]) -> object:
        """Begin a transfer; return the event of its end."""
        with self.calling, self._device.here():
            if self._closed:
                raise _lost("it is closed")
            self._device.follow_caller(self._stream)
            stream = self._device.handle(self._stream)
            self._library.group_start()
            try:
                for tensor in batch:
                    call(tensor.data_ptr(), tensor.nbytes, UINT8, self._other, self.comm, stream)
            finally:
                self._library.group_end()
            return self._device.mark(self._stream)

    def close(self) -> None:
        """On return nothing that was begun goes on, or it is leaked, and counted."""
        if not self._closed:
            self._closed = True
            endings.free(self._library, [self])
        self.freed.wait()


class Pairing:
    """Maker of this process's end of a pair. Raises UserError where there is no libnccl."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._library = library()

    def card(self) -> str:
        """Return what the other end must know of this one."""
        return own_card(self._library, self._device).text()

    def unique_id(self) -> str:
        """Return the identifier by which both ends find each other."""
        return self._library.unique_id().to_hex()

    def check(self, theirs: str) -> None:
        """Check that the two could connect. Raises PeerLost."""
        check_cards(
            "of a source and its joiner", [own_card(self._library, self._device), Card.read(theirs)]
        )

    def connect(self, unique_id: str, seat: int, over: Over) -> Pair:
        """Blocks until the other end has come. Raises PeerLost."""
        try:
            known = UniqueId.from_hex(unique_id)
        except ValueError as error:
            raise PeerLost(f"the id of a pair is damaged: {error}") from error
        init = Init(self._library, self._device, size=2, seat=seat, unique_id=known)
        if not init.wait(over):
            raise _lost("the other end did not come")
        if isinstance(init.error, RuntimeError):
            raise _lost(str(init.error)) from init.error
        if init.error is not None:
            raise init.error
        return Pair(self._library, self._device, init.comm, seat)


def _batches(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    for tensor in tensors:
        if tensor.nbytes:
            batch.append(tensor)
        if sum(one.nbytes for one in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _lost(why: str) -> PeerLost:
    return PeerLost(
        f"State does not go from device to device: {why}.",
        means="It goes over TCP, which takes longer.",
        do="Nothing by hand. If it happens each time, see what NCCL says with NCCL_DEBUG=WARN.",
    )
