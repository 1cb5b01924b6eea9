"""Which other machines this one reaches, and which of them still answer."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainmover.agent.dial import connect
from trainmover.ids import MachineId

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

REACH_S = 1.0
"""Two and a half times there and back: a tenth of a second each way is no broken link."""


async def reached(vaults: Mapping[MachineId, str], tls: "Tls | None" = None) -> list[MachineId]:
    """Those whose vault has said its first bytes in time. Takes no longer than that."""
    names = list(vaults)
    answers = await asyncio.gather(*(_answers(vaults[name], tls) for name in names))
    return [name for name, answered in zip(names, answers, strict=True) if answered]


async def _answers(address: str, tls: "Tls | None") -> bool:
    ear = _Ear()
    try:
        async with asyncio.timeout(REACH_S):
            await connect(address, ear, tls, "vault")
            return await ear.heard
    except (OSError, TimeoutError):
        return False
    finally:
        ear.close()


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
