# SPDX-License-Identifier: Apache-2.0
"""One connection to the controller: frames to and fro, without copies that are not needed.

What `FrameLink` hears it says to two callables, on the loop: it never awaits, so that a relayed
order leaves in the same turn of the loop in which it came.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from trainmover.agent.dial import Dialled
from trainmover.errors import ProtocolError
from trainmover.protocol.framing import FRAME_BYTES_MAX
from trainmover.protocol.sealed import SealedReader


class FrameLink(asyncio.Protocol):
    """heard(payload) for every frame; lost(reason, alien) once, "" when the peer just closed.

    alien: what the controller said was nothing that one says. bytes_max: of a payload
    """

    bytes_max = FRAME_BYTES_MAX

    def __init__(
        self,
        dialled: Dialled,
        heard: Callable[[bytes], None],
        lost: Callable[[str, bool], None],
    ) -> None:
        self._heard = heard
        self._lost = lost
        self._session = dialled.session
        self._reader = SealedReader(dialled.session, bytes_max=self.bytes_max)
        self._transport: asyncio.Transport | None = dialled.transport
        self._reason = ""
        self._alien = False

    def begin(self) -> None:
        """Go on with the connection that was dialled."""
        assert self._transport is not None
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            payloads = self._reader.feed(data)
        except ProtocolError as error:  # Changed on its way: not the controller's fault.
            self.end(error.happened)
            return
        try:
            for payload in payloads:
                self._heard(payload)
        except ProtocolError as error:
            self._reason, self._alien = error.happened, True
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self._reason or (str(exc) if exc else ""), self._alien)

    def send(self, payloads: Iterable[bytes]) -> None:
        """Seal and write; a link that is gone swallows them, `lost` has told."""
        if self._transport is not None:
            seal = partial(self._session.seal, bytes_max=self.bytes_max)
            self._transport.write(b"".join(map(seal, payloads)))

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self, why: str) -> None:
        """It carries nothing that can be believed any more."""
        self._reason = why
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self._transport is not None:
            self._transport.close()
