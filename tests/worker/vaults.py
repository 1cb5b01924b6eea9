"""Real vaults for the worker tests."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from trainmover.state.vault import Vault, VaultServer, serve

TOKEN = b"t" * 16
Buddy = tuple[Vault, VaultServer]


class Buddies:
    """Vaults served on loopback, all by one event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.servers: list[VaultServer] = []
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def make(self) -> Buddy:
        vault = Vault(bytes_max=1024 * 1024)
        serving = asyncio.run_coroutine_threadsafe(serve(vault, TOKEN), self.loop)
        self.servers.append(serving.result(30))
        return vault, self.servers[-1]

    def close(self) -> None:
        for server in self.servers:
            self.loop.call_soon_threadsafe(server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture
def buddies() -> Iterator[Buddies]:
    buddies = Buddies()
    yield buddies
    buddies.close()
