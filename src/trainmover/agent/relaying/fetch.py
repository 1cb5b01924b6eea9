# SPDX-License-Identifier: Apache-2.0
"""A relay hands a machine that the controller does not reach the way behind it."""

import asyncio
from typing import TYPE_CHECKING

from trainmover.agent.dial import dial
from trainmover.errors import PeerLost, ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol.messages import FetchBehind
from trainmover.state.vault import wire

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class Fetcher:
    """Dial vaults of machines that are to come behind this one. machine: this one."""

    def __init__(self, machine: MachineId, token: bytes, tls: "Tls | None") -> None:
        self._machine, self._token, self._tls = machine, token, tls
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, order: FetchBehind) -> None:
        """Begin. If it cannot be done, the controller waits in vain and asks again."""
        task = asyncio.get_running_loop().create_task(self._fetch(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, order: FetchBehind) -> None:
        try:
            dialled = await dial(order.vault, self._token, self._tls, purpose=wire.PURPOSE)
        except (PeerLost, ProtocolError):
            return
        request = wire.ComeBehind(self._machine, order.address, order.ticket)
        dialled.transport.write(dialled.session.seal(wire.encoder.encode(request)))
        dialled.transport.close()  # Once that is sent.

    def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
