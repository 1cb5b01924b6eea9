"""One fetch from several sources, of which some die, lie, sleep or hold something else.

Sources that are well wait for the others on the wire (`behind`), or they might have sent all before
anything goes wrong.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor
from transfers import KEY, MIB, OPENING, TOKEN, Relay, cut, fetch_into, flip, offer

from trainmover.errors import PeerLost, StateMismatch, UserError
from trainmover.state.transfer import Offered, StateServer, fetching
from trainmover.state.transfer.fetching import Fetching, Source

Dropped = dict[str, threading.Event]
SIZE = 8 * MIB  # of floats: 32 MiB, enough for four connections


@pytest.fixture(scope="module")
def sent() -> list[Tensor]:
    return [torch.randn(SIZE - 100), torch.randn(10, 10), torch.arange(7)]


@pytest.fixture
def got(sent: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in sent]


@pytest.fixture
def servers(sent: list[Tensor]) -> Iterator[list[StateServer]]:
    """Three replicas."""
    with ExitStack() as stack:
        servers = [StateServer(TOKEN) for _ in range(3)]
        for number, server in enumerate(servers):
            stack.callback(server.close)
            offer(server, sent, b"%d" % number, "same")
        yield servers


def addresses(servers: list[StateServer]) -> list[str]:
    return [server.address for server in servers]


@pytest.fixture
def wire() -> Iterator[ExitStack]:
    """Relays that are entered here are taken away at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Dropped:
    """By address: the fetch has noticed what is wrong with it."""
    events = defaultdict[str, threading.Event](threading.Event)
    drop = Fetching._drop

    def drop_and_tell(fetch: Fetching, source: Source, *others: Any, **more: Any) -> None:
        drop(fetch, source, *others, **more)
        events[source.address].set()

    monkeypatch.setattr(Fetching, "_drop", drop_and_tell)
    return events


def behind(wire: ExitStack, server: StateServer, *events: threading.Event) -> Relay:
    """On the way to a source that is well, and gives no more than a little before these events."""
    return wire.enter_context(Relay(server.address, waits_for=events))


def assert_equal(got: list[Tensor], sent: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))


@pytest.mark.parametrize("streams", [1, 4])
def test_all_replicas_give_a_part(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    streams: int,
    wire: ExitStack,
) -> None:
    relays = [behind(wire, server) for server in servers]
    for relay in relays:
        relay.waits_for = [other.giving for other in relays]
    report = fetch_into(got, *(relay.address for relay in relays), streams=streams)
    assert_equal(got, sent)
    assert report.header == b"0"
    assert report.source == relays[0].address
    assert report.given.keys() == {relay.address for relay in relays}
    assert sum(report.given.values()) == report.bytes == sum(t.nbytes for t in sent)
    assert report.dropped == []


def test_little_is_taken_from_one(servers: list[StateServer]) -> None:
    small = [torch.randn(1000)]
    for server in servers:
        offer(server, small, alike="same")
    report = fetch_into([torch.zeros(1000)], *addresses(servers))
    assert list(report.given) == [servers[0].address]


@pytest.mark.parametrize("place", [0, OPENING + 3, 5000, 3 * MIB + 7])
@pytest.mark.parametrize("dying", [0, 1])
def test_where_one_dies_the_others_go_on(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    place: int,
    dying: int,
    wire: ExitStack,
    dropped: Dropped,
) -> None:
    relay = wire.enter_context(Relay(servers[dying].address, cut(place)))
    relays = [behind(wire, server, dropped[relay.address]) for server in servers]
    relays[dying] = relay
    report = fetch_into(got, *(its.address for its in relays))
    assert_equal(got, sent)
    assert [(d.address, type(d.error)) for d in report.dropped] == [(relay.address, PeerLost)]


def test_wrong_bytes_are_taken_from_another_and_told(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    wire: ExitStack,
    dropped: Dropped,
) -> None:
    relay = wire.enter_context(Relay(servers[1].address, flip(MIB + 500)))
    first = behind(wire, servers[0], dropped[relay.address])
    report = fetch_into(got, first.address, relay.address)
    assert_equal(got, sent)
    (liar,) = report.dropped
    assert liar.address == relay.address
    assert isinstance(liar.error, StateMismatch)


def test_where_the_last_one_lies_nothing_is_trained_on(
    servers: list[StateServer], got: list[Tensor]
) -> None:
    with (
        Relay(servers[0].address, flip(MIB + 500)) as liar,
        Relay(servers[1].address, cut(MIB)) as dying,
        pytest.raises(StateMismatch, match="changed on their way"),
    ):
        fetch_into(got, liar.address, dying.address)


def test_one_that_holds_something_else_is_not_used(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    wire: ExitStack,
    dropped: Dropped,
) -> None:
    offer(servers[1], [torch.ones_like(tensor) for tensor in sent], alike="other")
    odd = behind(wire, servers[1])
    last = behind(wire, servers[2], dropped[odd.address])
    first = behind(wire, servers[0], dropped[odd.address], last.giving)
    report = fetch_into(got, first.address, odd.address, last.address)
    assert_equal(got, sent)
    assert report.given.keys() == {first.address, last.address}
    (other,) = report.dropped
    assert "holds something else" in other.error.happened


def test_who_names_no_likeness_serves_alone(
    servers: list[StateServer], sent: list[Tensor], got: list[Tensor]
) -> None:
    for server in servers:
        offer(server, sent)
    assert list(fetch_into(got, *addresses(servers)).given) == [servers[0].address]


def test_a_silent_one_is_not_waited_for_once_the_others_are_done(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    wire: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "STALL_S", 0.2)
    relay = wire.enter_context(Relay(servers[1].address, silent_after=2 * MIB))
    first = behind(wire, servers[0], relay.silent)
    report = fetch_into(got, first.address, relay.address, timeout_s=600)
    assert_equal(got, sent)
    assert [dropped.address for dropped in report.dropped] == [relay.address]


def test_a_first_one_that_does_not_answer_is_not_waited_for(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.1)
    servers[0].withdraw(KEY)
    report = fetch_into(got, servers[0].address, servers[1].address, timeout_s=600)
    assert_equal(got, sent)
    assert report.header == b"1"


def test_no_other_header_will_do_if_the_first_ones_is_meant(
    servers: list[StateServer], got: list[Tensor]
) -> None:
    first, *others = addresses(servers)
    servers[0].close()
    with pytest.raises(PeerLost):
        fetch_into(got, first, *others, header_from_first=True)


def test_the_reserve_comes_in_when_one_dies(
    servers: list[StateServer],
    sent: list[Tensor],
    got: list[Tensor],
    wire: ExitStack,
    dropped: Dropped,
) -> None:
    """Four connections are worth while, so of five sources one is held back."""
    relays = [wire.enter_context(Relay(servers[0].address, cut(2 * MIB))) for _ in range(3)]
    died = [dropped[relay.address] for relay in relays]
    last = behind(wire, servers[2], *died)
    first = behind(wire, servers[1], *died, last.giving)
    report = fetch_into(got, first.address, *(relay.address for relay in relays), last.address)
    assert_equal(got, sent)
    assert len(report.dropped) == 3
    assert last.address in report.given


def test_a_source_that_cannot_is_told_if_it_was_the_only_one(
    servers: list[StateServer], got: list[Tensor]
) -> None:
    def unable() -> Offered:
        raise UserError("state holds a function", do="leave it out")

    servers[0].offer(KEY, unable)
    servers[1].close()
    with pytest.raises(UserError, match="state holds a function"):
        fetch_into(got, servers[0].address, servers[1].address)


Spoil = Callable[[bytes], list[Tensor]]


def unfit(header: bytes) -> list[Tensor]:
    raise StateMismatch("this process built something else")


def broken(header: bytes) -> list[Tensor]:
    raise ZeroDivisionError


@pytest.mark.parametrize(("into", "error"), [(unfit, StateMismatch), (broken, ZeroDivisionError)])
def test_what_the_owner_of_the_tensors_raises_ends_it(
    servers: list[StateServer], into: Spoil, error: type[Exception]
) -> None:
    with pytest.raises(error):
        fetch_into([], *addresses(servers), into=into)


def test_after_a_cancelled_fetch_nobody_writes_any_more(
    servers: list[StateServer], got: list[Tensor]
) -> None:
    cancelled = threading.Event()
    with (
        Relay(servers[0].address, silent_after=4 * MIB) as first,
        Relay(servers[1].address, silent_after=4 * MIB) as second,
    ):
        timer = threading.Timer(0.3, cancelled.set)
        timer.start()
        with pytest.raises(PeerLost, match="cancelled"):
            fetch_into(got, first.address, second.address, cancelled=cancelled)
        timer.join()
    receiving = [t for t in threading.enumerate() if t.name == "tm-fetch" and t.is_alive()]
    assert receiving == []


def test_no_thread_is_left(servers: list[StateServer], got: list[Tensor]) -> None:
    fetch_into(got, *addresses(servers), streams=2)
    left = [thread for thread in threading.enumerate() if thread.name == "tm-fetch"]
    for thread in left:
        thread.join(30)
    assert not any(thread.is_alive() for thread in left)
