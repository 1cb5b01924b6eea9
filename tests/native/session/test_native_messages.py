"""Messages between two seats: any tag, any source, many at once, both ways at once."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_calls import CAMPAIGN, PROPERTY, Call, any_calls, staged
from native_data import blank, buffer, code, same_bits, values
from native_messages import Message, collect_from_anyone, exchange, traffic
from native_team import Formation, Rank
from native_threads import in_threads
from native_topologies import of_size, on

many = pytest.mark.parametrize("team", of_size(2, 3, 5), indirect=True)
two = pytest.mark.parametrize("team", of_size(2), indirect=True)


@many
@given(data=st.data())
@settings(PROPERTY, max_examples=6)
def test_any_traffic_arrives_in_order(world: Formation, data: st.DataObject) -> None:
    world.all(exchange, data.draw(traffic(world.size)), data.draw(st.integers(0, 99)))


@pytest.mark.soak
@many
@given(data=st.data())
@settings(CAMPAIGN, max_examples=300)
def test_any_traffic_at_length(world: Formation, data: st.DataObject) -> None:
    world.all(exchange, data.draw(traffic(world.size, 80)), data.draw(st.integers(0, 1 << 20)))


@many
def test_large_messages_both_ways_at_once(world: Formation) -> None:
    pairs = [(a, b) for a in range(world.size) for b in range(world.size) if a != b]
    messages = [Message(a, b, 0, "f32", 2_000_000 // world.size, a * 8 + b) for a, b in pairs]
    world.all(exchange, messages, 0)


@two
def test_hundreds_of_messages_outstanding(world: Formation) -> None:
    messages = [Message(i % 2, 1 - i % 2, i % 7, "i16", 50 + i, i) for i in range(600)]
    world.all(exchange, messages, 1)


@pytest.mark.parametrize("team", of_size(3), indirect=True)
@pytest.mark.parametrize("count", [0, 10, 100_000])
def test_from_any_source(world: Formation, count: int) -> None:
    taken, *_ = world.all(collect_from_anyone, 6, count)
    assert Counter(source for source, _ in taken) == {1: 6, 2: 6}
    assert all(right for _, right in taken)


def take_late(rank: Rank, name: str, count: int) -> bool:
    """Seat 0 sends before it queues anything; seat 1 lets the message wait behind collectives."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    sent = values("f32", count, 4)
    held = buffer(sent) if seat == 0 else blank("f32", count)
    if seat == 0:
        ticket = group.send(held.pointer, count, code("f32"), 1, 3)
    for turn in range(5):
        staged(Call("all_reduce", count=5000, seed=turn), seat, size).run(group)
    if seat == 1:
        ticket = group.recv(held.pointer, count, code("f32"), 0, 3)
    assert ticket.wait(60)
    return same_bits(held.tensor, sent)


@two
@pytest.mark.parametrize("count", [1, 3_000_000])
def test_a_message_nobody_waits_for_does_not_stop_the_collectives(
    world: Formation, count: int
) -> None:
    assert world.all(take_late, count) == [True, True]


def both(rank: Rank, name: str, calls: list[Call], messages: list[Message]) -> None:
    ready = [staged(call, *rank.seats[name]) for call in calls]
    in_threads(
        [
            lambda: exchange(rank, name, messages, 7),
            lambda: [one.run(rank.groups[name]) for one in ready],  # type: ignore[list-item]
        ]
    )


@pytest.mark.parametrize("team", on("2-shm", "2-tcp", "3-pairs"), indirect=True)
@given(data=st.data())
@settings(PROPERTY, max_examples=5)
def test_messages_and_collectives_at_the_same_time(world: Formation, data: st.DataObject) -> None:
    size = world.size
    world.all(both, data.draw(any_calls(size, 5)), data.draw(traffic(size, 12)))


def hear_of_tickets(rank: Rank, name: str) -> tuple[list[int], list[int]]:
    """Ids subscribed, some before and some after the end, and the ids that were reported."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    ready = [staged(Call("all_reduce", seed=i, background=True), seat, size) for i in range(6)]
    tickets = [one.start(group) for one in ready]
    ids = [ticket.subscribe() for ticket in tickets[:3]]
    assert all(ticket.wait(60) for ticket in tickets)
    ids += [ticket.subscribe() for ticket in tickets[3:]]
    heard: list[int] = []
    while len(heard) < len(ids):
        heard += rank.endpoint.completed(60)
    assert rank.endpoint.completed(0) == []
    return sorted(ids), sorted(heard)


def wait_in_steps(rank: Rank, name: str, first: bool) -> tuple[bool, bool]:
    """Seat 0 waits in small steps for a barrier; seat 1 comes once seat 0 has given up once."""
    group = rank.groups[name]
    ticket = group.barrier(True)
    early = bool(ticket.wait(0.05)) if first else True
    if first:
        rank.shelf["gave up"] = True
    return early, bool(ticket.wait(60))


def has_given_up(rank: Rank) -> bool:
    return bool(rank.shelf.get("gave up"))


@two
def test_a_wait_ends_at_its_timeout_and_the_operation_goes_on(world: Formation) -> None:
    waiting, late = world.players
    waiting.start(wait_in_steps, "world", True)
    world.team.until(lambda: waiting.tell(has_given_up), "a wait that ends")
    late.start(wait_in_steps, "world", False)
    assert world.team.finish([waiting, late]) == [(False, True), (True, True)]


@two
def test_subscribed_tickets_are_reported_once(world: Formation) -> None:
    for ids, heard in world.all(hear_of_tickets):
        assert ids == heard
        assert len(set(ids)) == 6
