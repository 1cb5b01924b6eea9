"""A standby sees in the rank's records what it could not have."""

import threading
from dataclasses import replace
from typing import Any

from vaults import TOKEN, Buddies

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Stored
from trainmover.state.vault import VaultClient, graph_name
from trainmover.worker.join.lookout import Lookout
from trainmover.worker.keep.script_graph import Changed, Whole
from trainmover.worker.step.keeper import Moment, RankRecord


def record(step: int) -> RankRecord:
    return RankRecord(Step(step), [place(0, step)], Moment(b"", {}))


def place(ordinal: int, taken: int) -> list[Any]:
    return [ordinal, {"pass": 0, "taken": taken}, b"", 0]


def test_the_whole_graph_comes_along_once(buddies: Buddies) -> None:
    _, vault = buddies.make()
    client = VaultClient(vault.address, TOKEN)
    told = replace(record(4), graph=Changed(3, b"changes"))
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


def test_the_newest_records_of_any_vault_are_seen(buddies: Buddies) -> None:
    _, first = buddies.make()
    _, second = buddies.make()
    _, gone = buddies.make()
    buddies.loop.call_soon_threadsafe(gone.close)
    for server, step in ((first, 3), (first, 4), (second, 4), (second, 5)):
        client = VaultClient(server.address, TOKEN)
        client.put_record(2, step, True, record(step).to_bytes())
        client.close()
    vaults = [server.address for server in (gone, first, second)]
    changed = threading.Condition()
    lookout = Lookout(Rank(2), {Rank(2): [Stored(Rank(2), vaults)]}, TOKEN, changed)
    lookout.begin()
    with changed:
        assert changed.wait_for(lambda: lookout.has_seen, 30)
    seen = lookout.take()
    lookout.end()
    assert [one.step for one in seen] == [4, 5]
    assert lookout.take() == ()
