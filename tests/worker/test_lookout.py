"""A standby sees in the rank's records what it could not have."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from vaults import TOKEN, Buddies

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Stored
from trainmover.state.script.variables import Variables
from trainmover.state.vault import VaultClient
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.lookout import Foresight, Lookout
from trainmover.worker.step.keeper import Moment, RankRecord


def record(step: int, positions: list[list[Any]], variables: bytes) -> RankRecord:
    top = Moment(b"", {})
    return RankRecord(Step(step), True, Step(step), positions, top, None, variables=variables)


def place(ordinal: int, taken: int) -> list[Any]:
    return [ordinal, {"pass": 0, "taken": taken}, b"", 0]


@pytest.fixture
def variables() -> Variables:
    return Variables(lambda: [], lambda file: file == __file__)


def in_first_loop() -> tuple[Loops, Batches]:
    loops, batches = Loops(), Batches(range(5), 1)
    loops.begin(batches)
    loops.enter(batches)
    return loops, batches


def moments(variables: Variables) -> Iterator[bytes]:
    """Captures of a loop that keeps a count."""
    count, batches = 0, iter(variables.capture, None)
    while True:
        yield next(batches)
        count += 1


def test_a_record_of_the_loop_where_the_run_stands_is_compared_with_it(
    variables: Variables,
) -> None:
    loops, batches = in_first_loop()
    loop = moments(variables)
    own, later = next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences(record(3, [place(0, 3)], own)) == []
    [found] = foresight.differences(record(4, [place(0, 4)], later))
    assert (found.name, found.theirs, found.own) == ("count", "1", "0")
    assert batches is not None


def test_two_records_of_one_pass_show_what_changes(variables: Variables) -> None:
    loops, batches = in_first_loop()
    loop = moments(variables)
    own, one, other = next(loop), next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences(record(30, [place(2, 3)], one)) == []
    [found] = foresight.differences(record(31, [place(2, 4)], other))
    assert found.name == "count"
    assert foresight.differences(record(41, [place(3, 0)], one)) == []
    assert batches is not None


def test_the_newest_record_of_any_vault_is_seen(buddies: Buddies) -> None:
    _, first = buddies.make()
    _, second = buddies.make()
    _, gone = buddies.make()
    buddies.loop.call_soon_threadsafe(gone.close)
    for server, step in ((first, 4), (second, 5)):
        client = VaultClient(server.address, TOKEN)
        client.put_record(2, step, True, record(step, [place(0, step)], b"v").to_bytes())
        client.close()
    vaults = [server.address for server in (gone, first, second)]
    changed = threading.Condition()
    lookout = Lookout(Rank(2), {Rank(2): [Stored(Rank(2), vaults)]}, TOKEN, changed)
    lookout.begin()
    with changed:
        assert changed.wait_for(lambda: lookout.has_seen, 30)
    seen = lookout.take()
    lookout.end()
    assert seen is not None
    assert (seen.step, seen.variables) == (5, b"v")
    assert lookout.take() is None
