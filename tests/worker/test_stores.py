"""Connections to the job's stores, also to those that have taken the place of others."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from host_tools import until
from torch.distributed import Store

from trainmover.errors import PeerLost
from trainmover.worker import stores as room
from trainmover.worker.meeting_place import MeetingPlace
from trainmover.worker.stores import Stores

Stock = Callable[..., Stores]
TOKEN = b"t" * 32


def place(address: str) -> MeetingPlace:
    return MeetingPlace(address, TOKEN)


def address_of(store: Store) -> str:
    assert isinstance(store, MeetingPlace)
    return store.address


class Host:
    """A store in a process of its own."""

    def __init__(self, token_file: Path) -> None:
        command = [sys.executable, "-m", "trainmover.server.store", "--parent", str(os.getpid())]
        command += ["--listen", "127.0.0.1", "--token-file", str(token_file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{int(self.process.stdout.readline())}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN.decode())
    token_file.chmod(0o600)
    started = [Host(token_file), Host(token_file)]
    yield started
    for host in started:
        host.kill()
        host.process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stock]:
    """Makes stocks whose threads end with the test: later tests fork, and a thread that is in the
    middle of connecting holds locks that a forked child waits for in vain."""
    monkeypatch.setattr(room, "_TRY_AGAIN_S", 0.1)
    made: list[Stores] = []

    def make(address: str, wait_s: float = 60.0) -> Stores:
        made.append(Stores(address, place, wait_s=wait_s))
        return made[-1]

    yield make
    for stores in made:
        with stores._changed:
            stores._address = ""
            stores._changed.notify_all()
    for thread in threading.enumerate():
        if thread.name == "tm-stores":
            thread.join()


def test_every_connection_is_another_and_reaches_the_same(hosts: list[Host], stock: Stock) -> None:
    stores = stock(hosts[0].address)
    one, other = stores.take(), stores.take()
    one.set("key", "value")
    assert one is not other
    assert other.get("key") == b"value"


def test_who_asks_while_the_store_is_away_gets_the_next_one(
    hosts: list[Host], stock: Stock
) -> None:
    stores = stock(hosts[0].address)
    stores.take()
    hosts[0].kill()
    taken: list[Store] = []
    asking = threading.Thread(target=lambda: taken.append(stores.take()))
    asking.start()
    stores.move(hosts[1].address)
    asking.join()
    assert address_of(taken[0]) == hosts[1].address


def test_what_was_in_stock_of_the_lost_store_is_not_given_away(
    hosts: list[Host], stock: Stock
) -> None:
    stores = stock(hosts[0].address)
    until(lambda: len(stores._stock) == 3, "the stock is full")
    hosts[0].kill()
    stores.move(hosts[1].address)
    assert {address_of(stores.take()) for _ in range(4)} == {hosts[1].address}


def test_a_store_that_never_comes_is_a_lost_peer(stock: Stock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(PeerLost, match="cannot be reached"):
        stock(address, wait_s=0.1).take()
