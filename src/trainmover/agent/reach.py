"""Which other machines this one reaches, and which of them still answer."""

import asyncio
import socket
from collections.abc import Mapping

from trainmover.ids import MachineId
from trainmover.state.dial import parse_address

REACH_S = 1.0
"""Two and a half times there and back: a tenth of a second each way is no broken link."""


async def reached(vaults: Mapping[MachineId, str]) -> list[MachineId]:
    """Those whose vault has said its first bytes in time. Takes no longer than that."""
    names = list(vaults)
    answers = await asyncio.gather(*(_answers(vaults[name]) for name in names))
    return [name for name, answered in zip(names, answers, strict=True) if answered]


async def _answers(address: str) -> bool:
    loop = asyncio.get_running_loop()
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(REACH_S):
                await loop.sock_connect(sock, (host, port))
                return bool(await loop.sock_recv(sock, 1))
        except (OSError, TimeoutError):
            return False
