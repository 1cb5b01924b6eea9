"""The doors of a job, each open in this process, and how a member of the job comes in."""

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmover.agent.link import dial as dial_controller
from trainmover.cli.client import Client
from trainmover.journal import Journal
from trainmover.launch.runs import Run
from trainmover.protocol.messages import JobSpec
from trainmover.server.api import Api
from trainmover.server.run import Server, bind
from trainmover.state.dial import dial
from trainmover.state.transfer import StateServer
from trainmover.state.vault import Vault, VaultClient, serve

TOKEN = b"0123456789abcdef-token"
WAIT_S = 60.0


@dataclass
class Door:
    """enter: come in as a member of the job does, and go; raises if that is not possible."""

    address: tuple[str, int]
    enter: Callable[[], object]

    def knock(self) -> socket.socket:
        link = socket.create_connection(self.address, WAIT_S)
        link.settimeout(WAIT_S)
        return link


Opening = AbstractAsyncContextManager[Door]


@asynccontextmanager
async def control(server: Server) -> AsyncIterator[Door]:
    listener = bind("127.0.0.1:0", "The controller")
    host, port = listener.getsockname()
    await server.start(listener)
    yield Door((host, port), lambda: asyncio.run(dial_controller(f"{host}:{port}", TOKEN)).close())


@asynccontextmanager
async def api(server: Server) -> AsyncIterator[Door]:
    token_file = server._journal.path.with_suffix(".token")
    token_file.write_bytes(TOKEN)
    token_file.chmod(0o600)
    listener = bind("127.0.0.1:0", "The API")
    host, port = listener.getsockname()
    api = Api(server, TOKEN)
    await api.start(listener)
    run = Run(
        run_id="r", api_url=f"http://{host}:{port}", host="", pid=0, started=0, directory="",
        token_file=str(token_file), journal="",
    )  # fmt: skip
    yield Door((host, port), lambda: Client(run).status())
    await api.close()


@asynccontextmanager
async def vault(server: Server) -> AsyncIterator[Door]:
    vault = await serve(Vault(bytes_max=1000), TOKEN)
    host, _, port = vault.address.rpartition(":")
    yield Door((host, int(port)), lambda: VaultClient(vault.address, TOKEN).close())
    vault.close()


@asynccontextmanager
async def state(server: Server) -> AsyncIterator[Door]:
    source = StateServer(TOKEN)
    host, _, port = source.address.rpartition(":")
    enter = lambda: dial(source.address, token=TOKEN, purpose="state").close()  # noqa: E731
    yield Door((host, int(port)), enter)
    source.close()


DOORS: list[Callable[[Server], Opening]] = [control, api, vault, state]


@contextmanager
def opened(opening: Callable[[Server], Opening], path: Path) -> Iterator[Door]:
    """A door whose loop runs in a thread, as long as the context lasts. path: of a journal."""
    doors: list[Door] = []
    there, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def keep() -> None:
        with Journal.create(path, JobSpec(run_id="r", argv=["x"])) as journal:
            server = Server(journal.spec, TOKEN, journal)
            async with opening(server) as door:
                doors.append(door)
                there.set()
                await over.wait()
            await server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(keep(),))
    thread.start()
    assert there.wait(WAIT_S)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # Both sides are threads of this process.
    try:
        yield doors[0]
    finally:
        sys.setswitchinterval(interval_s)
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_S)
        loop.close()
