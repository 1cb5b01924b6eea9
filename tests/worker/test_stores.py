"""Connections to the job's store, also to one that has taken the place of another."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from host_tools import until
from torch.distributed import TCPStore

from trainmover.errors import PeerLost
from trainmover.worker import stores as room
from trainmover.worker.stores import Stores

Stock = Callable[..., Stores]


class Host:
    """A store in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "trainmover.server.store", "--parent", str(os.getpid())]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{int(self.process.stdout.readline())}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    started = [Host(), Host()]
    yield started
    for host in started:
        host.kill()
        host.process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stock]:
    """Makes stocks whose threads end with the test: later tests fork, and a thread that is in the
    middle of connecting holds locks that a forked child waits for in vain."""
    monkeypatch.setattr(room, "_CONNECT_S", 0.5)
    made: list[Stores] = []

    def make(address: str, wait_s: float = 60.0) -> Stores:
        made.append(Stores(address, wait_s=wait_s))
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
    taken: list[TCPStore] = []
    asking = threading.Thread(target=lambda: taken.append(stores.take()))  # type: ignore[arg-type]
    asking.start()
    stores.move(hosts[1].address)
    asking.join()
    assert f"127.0.0.1:{taken[0].port}" == hosts[1].address


def test_what_was_in_stock_of_the_lost_store_is_not_given_away(
    hosts: list[Host], stock: Stock
) -> None:
    stores = stock(hosts[0].address)
    until(lambda: len(stores._stock) == 3, "the stock is full")
    hosts[0].kill()
    stores.move(hosts[1].address)
    assert {f"127.0.0.1:{stores.take().port}" for _ in range(4)} == {hosts[1].address}  # type: ignore[attr-defined]


def test_a_store_that_never_comes_is_a_lost_peer(stock: Stock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(PeerLost, match="cannot be reached"):
        stock(address, wait_s=0.1).take()
