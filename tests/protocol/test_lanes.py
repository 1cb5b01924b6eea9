"""What a relay cannot do with what passes through it."""

import pytest

from trainmover.errors import ProtocolError
from trainmover.protocol.lanes import LaneSession

TOKEN = b"token" * 8


def ends(
    ticket: str = "ticket", *, theirs: str = "ticket", token: bytes = TOKEN
) -> tuple[LaneSession, LaneSession]:
    return (
        LaneSession(TOKEN, ticket, controller=False),
        LaneSession(token, theirs, controller=True),
    )


def test_both_ways() -> None:
    machine, controller = ends()
    assert controller.opened(machine.seal(b"fact")) == b"fact"
    assert machine.opened(controller.mark(b"order") + b"order") == b"order"


@pytest.mark.parametrize(
    "changed",
    [
        lambda one, two: one[:-1] + b"X",
        lambda one, two: two,
        lambda one, two: b"short",
        lambda one, two: one[:16],
    ],
    ids=["changed", "left out", "short", "cut"],
)
def test_what_is_changed_or_left_out_is_found(changed) -> None:
    machine, controller = ends()
    one, two = machine.seal(b"one"), machine.seal(b"two")
    with pytest.raises(ProtocolError):
        controller.opened(changed(one, two))


def test_what_is_repeated_is_found() -> None:
    machine, controller = ends()
    one = machine.seal(b"one")
    controller.opened(one)
    with pytest.raises(ProtocolError):
        controller.opened(one)


def test_an_order_is_no_fact() -> None:
    machine, controller = ends()
    with pytest.raises(ProtocolError):
        controller.opened(controller.seal(b"one"))
    with pytest.raises(ProtocolError):
        machine.opened(machine.seal(b"one"))


@pytest.mark.parametrize("other", [{"theirs": "another"}, {"token": b"another" * 8}])
def test_who_does_not_know_token_and_ticket_makes_no_mark(other) -> None:
    forger, controller = ends(**other)
    with pytest.raises(ProtocolError):
        controller.opened(forger.seal(b"fact"))
