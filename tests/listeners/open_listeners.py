"""The listeners of a job, each open in this process, and how a member of the job comes in."""

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tls_files import made

from trainmover.agent.dial import dial as dial_controller
from trainmover.cli.client import Client
from trainmover.journal import Journal
from trainmover.launch.runs import Run
from trainmover.listeners.dial import dial, dial_in_tls
from trainmover.protocol.hello import STORE
from trainmover.protocol.messages import JobSpec
from trainmover.server.http.api import Api
from trainmover.server.run import Server, bind
from trainmover.server.store_listener import StoreListener
from trainmover.state.transfer import StateServer
from trainmover.state.vault import Vault, VaultClient, serve
from trainmover.tls.contexts import Tls
from trainmover.tls.files import TlsFiles

TOKEN = b"0123456789abcdef-token"
WAIT_S = 60.0


@dataclass
class Opened:
    """come_to: in at an address as a member of the job does, with TLS or without, and go; raises if
    that is not possible. files: what the listener itself has."""

    address: tuple[str, int]
    come_to: Callable[[str, TlsFiles | None], object]
    files: TlsFiles | None = None

    def come(self, files: TlsFiles | None) -> None:
        self.come_to("{}:{}".format(*self.address), files)

    def enter(self) -> None:
        self.come(self.files)

    def knock(self) -> socket.socket:
        link = socket.create_connection(self.address, WAIT_S)
        link.settimeout(WAIT_S)
        return link


Opening = AbstractAsyncContextManager[Opened]
Open = Callable[[Server, TlsFiles | None], Opening]


@asynccontextmanager
async def control(server: Server, files: TlsFiles | None) -> AsyncIterator[Opened]:
    listener = bind("127.0.0.1:0", "The controller")
    host, port = listener.getsockname()
    await server.start(listener)

    async def come(address: str, files: TlsFiles | None) -> None:
        (await dial_controller(address, TOKEN, read(files))).transport.abort()

    yield Opened((host, port), lambda *how: asyncio.run(come(*how)), files)


@asynccontextmanager
async def api(server: Server, files: TlsFiles | None) -> AsyncIterator[Opened]:
    token_file = server._journal.path.with_suffix(".token")
    token_file.write_bytes(TOKEN)
    token_file.chmod(0o600)
    listener = bind("127.0.0.1:0", "The API")
    host, port = listener.getsockname()
    api = Api(server, TOKEN, read(files))
    await api.start(listener)

    def come(address: str, files: TlsFiles | None) -> None:
        url = f"http{'s' if files else ''}://{address}"
        run = Run(
            run_id="r", api_url=url, host="", pid=0, started=0, directory="",
            token_file=str(token_file), journal="", tls=files,
        )  # fmt: skip
        Client(run).status()

    yield Opened((host, port), come, files)
    await api.close()


@asynccontextmanager
async def vault(server: Server, files: TlsFiles | None) -> AsyncIterator[Opened]:
    vault = await serve(Vault(bytes_max=1000), TOKEN, tls=read(files))
    host, _, port = vault.address.rpartition(":")

    def come(address: str, files: TlsFiles | None) -> None:
        with dialling(files):
            VaultClient(address, TOKEN).close()

    yield Opened((host, int(port)), come, files)
    vault.close()


@asynccontextmanager
async def state(server: Server, files: TlsFiles | None) -> AsyncIterator[Opened]:
    source = StateServer(TOKEN, tls=read(files))
    host, _, port = source.address.rpartition(":")

    def come(address: str, files: TlsFiles | None) -> None:
        with dialling(files):
            dial(address, token=TOKEN, purpose="state")[0].close()

    yield Opened((host, int(port)), come, files)
    source.close()


@asynccontextmanager
async def store(server: Server, files: TlsFiles | None) -> AsyncIterator[Opened]:
    """That of the stores."""
    outer, behind = bind("127.0.0.1:0", "The stores"), bind("127.0.0.1:0", "The store")
    host, port = outer.getsockname()
    stores = StoreListener(
        TOKEN, partial(asyncio.open_connection, *behind.getsockname()), read(files)
    )
    serving = asyncio.ensure_future(stores.serve(outer))

    async def come(address: str, files: TlsFiles | None) -> None:
        (await dial_controller(address, TOKEN, read(files), purpose=STORE)).transport.abort()

    yield Opened((host, port), lambda *how: asyncio.run(come(*how)), files)
    serving.cancel()
    standing = asyncio.all_tasks() - {asyncio.current_task()}  # Who has come, too.
    for task in standing:
        task.cancel()
    await asyncio.wait(standing, timeout=WAIT_S)
    behind.close()


def read(files: TlsFiles | None) -> Tls | None:
    return None if files is None else files.read()


@contextmanager
def dialling(files: TlsFiles | None) -> Iterator[None]:
    """This process, for a while, dials in TLS or without."""
    dial_in_tls(read(files))
    try:
        yield
    finally:
        dial_in_tls(None)


LISTENERS: dict[str, tuple[Open, bool]] = {
    f"{open_one.__name__}{' in TLS' * tls}": (open_one, tls)
    for open_one in (control, api, vault, state, store)
    for tls in (False, True)
}


@contextmanager
def opened(name: str, path: Path, files: TlsFiles | None = None) -> Iterator[Opened]:
    """A listener whose loop runs in a thread, as long as the context lasts.

    path: of a journal. files: others than the job's own, in TLS
    """
    opening, in_tls = LISTENERS[name]
    files = files or (made("job") if in_tls else None)
    listeners: list[Opened] = []
    there, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def keep() -> None:
        with Journal.create(path, JobSpec(run_id="r", argv=["x"])) as journal:
            server = Server(journal.spec, TOKEN, journal, tls=read(files))
            async with opening(server, files) as listener:
                listeners.append(listener)
                there.set()
                await over.wait()
            await server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(keep(),))
    thread.start()
    assert there.wait(WAIT_S)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # Both sides are threads of this process.
    try:
        yield listeners[0]
    finally:
        sys.setswitchinterval(interval_s)
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_S)
        loop.close()
