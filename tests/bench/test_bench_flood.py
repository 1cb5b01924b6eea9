"""The flood bench: what is claimed from which figures, and that strangers knock, greet, pass and
hold."""

import socket
import time
from contextlib import ExitStack

import pytest

from bench.flood import __main__ as flood
from bench.flood import holder, steps
from bench.flood.holder import Holder
from bench.flood.strangers import FLOODS, Stranger, greet


@pytest.fixture
def flooded() -> flood.Flooded:
    """Three rounds, in which everything holds."""
    return flood.Flooded(
        p99={"member": [3.0, 2.0, 90.0], "bystander": [2.0, 1.5, 40.0]},
        worst={"member": [70.0, 60.0, 99.0], "bystander": [20.0, 10.0, 30.0]},
        connections={"member": [1000, 900, 800], "bystander": [1000, 900, 800]},
    )


def failed(flooded: flood.Flooded) -> list[str]:
    return [claim.claim for claim in flood.judge({"knocks": flooded}) if not claim.holds]


def test_the_members_door_is_judged_by_the_bystanders(flooded: flood.Flooded) -> None:
    claims = flood.judge({"knocks": flooded})
    assert [claim.value for claim in claims] == [1.5, 69.0]
    assert failed(flooded) == []
    assert "| knocks | member | 3.00 | 99.00 | 900 |" in flood.tabulated({"knocks": flooded})


def test_slow_messages_do_not_hold(flooded: flood.Flooded) -> None:
    flooded.p99["member"] = [5.0, 4.0, 90.0]
    assert failed(flooded) == ["knocks: p99 of a message / the bystander's"]


def test_one_message_that_is_held_up_does_not_hold(flooded: flood.Flooded) -> None:
    flooded.worst["member"][1] = 2500.0
    assert failed(flooded) == ["knocks: worst message - the bystander's"]


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_reaches_the_door_and_ends(kind: str) -> None:
    native = pytest.importorskip("trainmover._native")
    endpoint, stranger = native.Endpoint(b"t" * 32, "here"), Stranger()
    try:
        stranger.begin(kind, endpoint.path if kind == "descriptors" else endpoint.address)
        while stranger.made < 3:
            time.sleep(0.01)
        assert stranger.end() >= 3
    finally:
        endpoint.close()


def test_a_flood_that_reaches_no_door_is_none() -> None:
    stranger = Stranger()
    stranger.begin("greetings", "127.0.0.1:1")
    with pytest.raises(ValueError, match="no flood"):
        stranger.end()


def test_a_strangers_greeting_is_answered_as_a_members() -> None:
    """Else it would cost the listener nothing."""
    native = pytest.importorskip("trainmover._native")
    endpoint = native.Endpoint(b"t" * 32, "here")
    try:
        with greet(endpoint.address) as link:
            assert len(link.recv(72, socket.MSG_WAITALL)) == 72
            link.setblocking(False)
            with pytest.raises(BlockingIOError):  # no refusal: it awaits the proof
                link.recv(1)
    finally:
        endpoint.close()


def test_limits_that_cannot_be_had_are_called_so() -> None:
    assert [files for files, _ in steps.limits(1 << 20)] == [256, 1024, 65536]
    assert steps.limits(20000)[-1] == (20000, "20000 (not 65536: the host's limit)")
    assert steps.limits(1024)[1:] == [(1024, "1024 (not 65536: the host's limit)")]


def test_each_stretch_is_judged_by_those_beside_it() -> None:
    """A host that is slow for a while makes both slow."""
    held = steps.Held(with_ms=[21.0, 210.0, 19.0], without_ms=[20.0, 200.0, 20.0])
    held.held, held.opened, held.core = [64, 64, 60], [1300, 1200, 1250], [0.05, 0.06, 0.04]
    found = {"1024": {"viewer": held}}
    assert [(claim.value, claim.holds) for claim in steps.judge(found)] == [(1.05, True)]
    assert "| 1024 | viewer | 21.0 | 20.0 | 64 | 1250 | 0.050 |" in steps.tabulated(found)
    held.with_ms[0] = 23.0
    assert [claim.holds for claim in steps.judge({"1024": {"viewer": held}})] == [True]
    held.with_ms[1] = 230.0
    assert [claim.holds for claim in steps.judge({"1024": {"viewer": held}})] == [False]


def test_connections_are_held_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "HELD", 3)
    one = Holder()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        one.begin("viewer", [listener.getsockname()], "the token")
        for _ in range(3):
            came = stack.enter_context(listener.accept()[0])
            assert b"Bearer the token" in came.recv(1000)
        came.close()
        stack.enter_context(listener.accept()[0])
        assert one.end() == (3, 4)
