# SPDX-License-Identifier: Apache-2.0
"""Which other machines this one reaches, and which of them still answer."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainmover.ids import MachineId
from trainmover.listeners.dial import parse_address

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

REACH_S = 1.0
"""Two and a half times there and back: a tenth of a second each way is no broken link."""


async def connect(
    address: str, protocol: asyncio.Protocol, tls: "Tls | None", purpose: str
) -> asyncio.Transport:
    """Have `protocol` speak with the listener at `address`. Raises OSError."""
    host, port = parse_address(address)
    outer = protocol if tls is None else tls.towards(protocol, host, purpose)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: outer, host, port)
    return transport


async def reached(
    vaults: Mapping[MachineId, str], tls: "Tls | None" = None, *, within_s: float = REACH_S
) -> list[MachineId]:
    """Those whose vault has said its first bytes in time. Takes no longer than that."""
    names = list(vaults)
    answers = await asyncio.gather(*(_answers(vaults[name], tls, within_s) for name in names))
    return [name for name, answered in zip(names, answers, strict=True) if answered]


async def is_there(address: str, tls: "Tls | None", *, within_s: float) -> bool:
    """Whether a vault says its first bytes; False: who listens there has ended the connection.

    Raises OSError if nobody listens, or nothing comes in time.
    """
    ear = _Ear()
    try:
        async with asyncio.timeout(within_s):
            await connect(address, ear, tls, "vault")
            return await ear.heard
    finally:
        ear.close()


async def _answers(address: str, tls: "Tls | None", within_s: float) -> bool:
    try:
        return await is_there(address, tls, within_s=within_s)
    except (OSError, ValueError):
        return False


class _Ear(asyncio.Protocol):
    """heard: whether anything was said before the connection ended."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._know(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._know(False)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _know(self, said: bool) -> None:
        if not self.heard.done():
            self.heard.set_result(said)
