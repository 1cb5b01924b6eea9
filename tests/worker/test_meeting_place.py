"""The store where groups meet: torch's words, spoken with who knows the token and nobody else."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

import pytest
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

from trainmover.errors import PeerLost, ProtocolError
from trainmover.protocol.keys import Keys, Set
from trainmover.server.store_listener import StoreListener
from trainmover.worker import meeting_place
from trainmover.worker.meeting_place import MeetingPlace

TOKEN = b"t" * 32


@pytest.fixture
def hosted() -> Iterator[tuple[str, Callable[[], None]]]:
    """Where a listener stands, and what ends it."""
    listener = socket.create_server(("127.0.0.1", 0))
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def serve() -> None:
        stores = StoreListener(TOKEN, partial(asyncio.open_connection, "127.0.0.1", 9))
        task = asyncio.ensure_future(stores.serve(listener))
        began.set_result((asyncio.get_running_loop(), task))
        await asyncio.wait([task])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, task = began.result()

    def end() -> None:
        if thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
            thread.join()

    yield "{}:{}".format(*listener.getsockname()), end
    end()


@pytest.fixture
def place(hosted: tuple[str, Callable[[], None]]) -> MeetingPlace:
    return MeetingPlace(hosted[0], TOKEN)


def test_it_is_a_store_as_torch_s(place: MeetingPlace) -> None:
    for store in (place, PrefixStore("a", place)):
        store.set("text", "h\N{LATIN SMALL LETTER E WITH ACUTE}")
        store.set("bytes", b"\x00\xff")  # type: ignore[arg-type]
        assert (store.get("text").decode(), store.get("bytes")) == ("h\xe9", b"\x00\xff")
        assert store.multi_get(["text", "bytes"])[1] == b"\x00\xff"
        assert (store.add("n", 2), store.add("n", 3), store.get("n")) == (2, 5, b"5")
        assert store.check(["text", "n"])
        assert not store.check(["text", "other"])


def test_who_gets_what_is_not_there_yet_waits_for_it(
    hosted: tuple[str, Callable[[], None]], place: MeetingPlace
) -> None:
    other = MeetingPlace(hosted[0], TOKEN)
    threading.Timer(0.05, lambda: other.set("key", "late")).start()
    assert place.get("key") == b"late"
    with pytest.raises(RuntimeError, match="nobody has set"):
        place.wait(["never"], timedelta(seconds=0.05))


def test_gloo_meets_there(hosted: tuple[str, Callable[[], None]]) -> None:
    sums: dict[int, float] = {}

    def come(rank: int) -> None:
        store = MeetingPlace(hosted[0], TOKEN)
        group = ProcessGroupGloo(PrefixStore("g", store), rank, 2, timedelta(seconds=30))
        value = torch.tensor([rank + 1.0])
        group.allreduce([value]).wait()
        sums[rank] = value.item()

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {0: 3.0, 1: 3.0}


def test_a_stranger_does_not_get_in(hosted: tuple[str, Callable[[], None]]) -> None:
    with pytest.raises(ProtocolError, match="does not prove it"):
        MeetingPlace(hosted[0], b"o" * 32)
    host, _, port = hosted[0].rpartition(":")
    with pytest.raises(RuntimeError):
        TCPStore(
            host,
            int(port),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=1),
        ).set("key", "value")


def test_a_store_that_is_gone_is_an_error_of_torch_s_kind(
    hosted: tuple[str, Callable[[], None]], place: MeetingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting_place, "ANSWER_S", 0.2)
    address, end = hosted
    end()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the job's store does not answer"):
            place.check(["key"])
    with pytest.raises(PeerLost):
        MeetingPlace(address, TOKEN)


def test_rooms_that_nobody_asks_about_are_forgotten() -> None:
    keys = Keys(rooms_max=3)
    for epoch in range(5):
        keys.answer(Set("0/waits", b""))
        keys.answer(Set(f"{epoch + 1}/key", b""))
    assert list(keys._rooms) == ["4", "0", "5"]
