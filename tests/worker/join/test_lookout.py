"""A standby sees in the rank's records what it could not have."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from vaults import TOKEN, Buddies

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Stored
from trainmover.state.script.variables import Variables
from trainmover.state.vault import VaultClient, graph_name
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.lookout import Foresight, Lookout
from trainmover.worker.keep.script_graph import Changed, Whole
from trainmover.worker.step.keeper import Moment, RankRecord


def record(step: int, positions: list[list[Any]], variables: bytes) -> RankRecord:
    top = Moment(b"", {})
    return RankRecord(Step(step), True, Step(step), positions, top, None, variables=variables)


def place(ordinal: int, taken: int) -> list[Any]:
    return [ordinal, {"pass": 0, "taken": taken}, b"", 0]


@pytest.fixture
def variables() -> Variables:
    return Variables(lambda: [], lambda file: file == __file__)


def moments(variables: Variables) -> Iterator[bytes]:
    """Captures within a statement that has read a count by then."""
    kept, captures = 0, iter(variables.capture, None)
    while True:
        kept = kept + len(seen := next(captures))
        yield seen
        variables.fetch_is_over()


def test_only_what_lies_on_stacks_is_a_reason_to_refuse(variables: Variables) -> None:
    """And only where the run stands in the rank's loop."""
    loops, batches = Loops(), Batches(range(5), 1)
    loops.begin(batches)
    loops.enter(batches)
    loop = moments(variables)
    own, later = next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences([]) == []
    assert foresight.differences([record(3, [place(0, 3)], own)]) == []
    [found] = foresight.differences([record(4, [place(0, 4)], later)])
    assert found.name == "before the fetch: kept"
    assert foresight.differences([record(4, [place(2, 4)], later)]) == []
    assert foresight.differences([replace(record(4, [place(0, 4)], later), reserve=1)]) == []


def test_the_whole_graph_comes_along_once(buddies: Buddies) -> None:
    _, vault = buddies.make()
    client = VaultClient(vault.address, TOKEN)
    told = replace(record(4, [place(0, 4)], b"v"), graph=Changed(3, b"changes"))
    client.put_blob(graph_name(2, 3), Whole(3, b"made").to_bytes())
    client.put_record(2, 4, True, told.to_bytes())
    stored = {Rank(2): [Stored(Rank(2), [vault.address])]}
    lookout = Lookout(Rank(2), stored, TOKEN, threading.Condition())
    lookout.begin()
    [seen] = lookout.take()
    lookout.end()
    client.close()
    assert seen.graph == Changed(3, b"changes")
    assert lookout.whole == Whole(3, b"made")


def test_where_both_tell_of_one_fetch_it_looks_again_soon(buddies: Buddies) -> None:
    _, vault = buddies.make()
    client = VaultClient(vault.address, TOKEN)
    at_fetch = record(4, [place(0, 4)], b"v")
    client.put_record(2, 4, True, at_fetch.to_bytes())
    client.put_record(2, 5, False, replace(at_fetch, step=Step(5), complete=False).to_bytes())
    changed = threading.Condition()
    lookout = Lookout(Rank(2), {Rank(2): [Stored(Rank(2), [vault.address])]}, TOKEN, changed)
    threading.Timer(
        0.1, client.put_record, (2, 5, True, record(5, [place(0, 5)], b"w").to_bytes())
    ).start()
    lookout.begin()
    assert [one.variables for one in lookout.take()] == [b"v", b"w"]
    lookout.end()
    client.close()


def test_the_newest_records_of_any_vault_are_seen(buddies: Buddies) -> None:
    _, first = buddies.make()
    _, second = buddies.make()
    _, gone = buddies.make()
    buddies.loop.call_soon_threadsafe(gone.close)
    for server, step in ((first, 3), (first, 4), (second, 4), (second, 5)):
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
    assert [(one.step, one.variables) for one in seen] == [(4, b"v"), (5, b"v")]
    assert lookout.take() == ()
