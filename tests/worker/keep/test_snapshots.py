"""What a process keeps of its rank's state, and with whom; a real vault and a real state server."""

import queue
import threading
from collections.abc import Iterator

import pytest
import torch
from vaults import TOKEN, Buddies

from trainmover.errors import PeerLost, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Snapped, Source, Switch, WorkerFact
from trainmover.rank.cuts import BUSY, WANTED, Put
from trainmover.state.snapshot import Snapshot
from trainmover.state.transfer import Offered, StateServer
from trainmover.state.vault import Vault, snapshot_name
from trainmover.worker.join import going_back
from trainmover.worker.join.going_back import NoneWhole
from trainmover.worker.keep import snapshots as snapshots_module
from trainmover.worker.keep.snapshots import Snapshots

RANK, EPOCH = Rank(2), Epoch(1)


class Process:
    """A process with snapshots: what it said, and the state that it takes."""

    def __init__(self) -> None:
        self.said: queue.Queue[WorkerFact] = queue.Queue()
        self.server = StateServer(TOKEN)
        self.snapshots = Snapshots(TOKEN, self.server, self.said.put)

    def take(self, step: int, vault: str) -> Snapped:
        state = Offered(b"header", [torch.full((5,), float(step))])
        self.snapshots.take(
            RANK, Step(step), state, epoch=EPOCH, vault=vault, begun_ns=0, step_us=100
        )
        return self.fact()

    def fact(self) -> Snapped:
        fact = self.said.get(timeout=30)
        assert isinstance(fact, Snapped)
        return fact


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.snapshots.clear()
    process.server.close()


def test_one_is_wanted_every_so_many_steps(process: Process, buddies: Buddies) -> None:
    assert process.snapshots.flag(RANK, Step(50)) == 0
    process.snapshots.keep(10, now=False)
    process.take(50, buddies.make()[1].address)
    process.snapshots.completed(Step(50))
    assert process.snapshots.flag(RANK, Step(59)) == 0
    assert process.snapshots.flag(RANK, Step(60)) == WANTED


def test_who_holds_none_wants_one_now(process: Process, buddies: Buddies) -> None:
    """As a joiner does, however early in the job: until all have one more, its rank's snapshot is
    with one vault alone."""
    process.snapshots.keep(100, now=False)
    assert process.snapshots.flag(RANK, Step(7)) == WANTED
    process.take(7, buddies.make()[1].address)
    process.snapshots.changed(100)  # Members change before it is complete.
    assert process.snapshots.flag(RANK, Step(8)) == WANTED
    process.take(8, buddies.make()[1].address)
    process.snapshots.completed(Step(8))
    assert process.snapshots.flag(RANK, Step(9)) == 0


def test_one_that_is_asked_for_is_wanted_once(process: Process, buddies: Buddies) -> None:
    process.snapshots.keep(0, now=True)
    assert process.snapshots.flag(RANK, Step(3)) == WANTED
    process.take(3, buddies.make()[1].address)
    process.snapshots.completed(Step(3))
    assert process.snapshots.flag(RANK, Step(4)) == 0


def test_a_second_one_waits_until_the_first_is_complete(
    process: Process,
    buddies: Buddies,
) -> None:
    process.snapshots.keep(1, now=False)
    process.take(10, buddies.make()[1].address)
    assert process.snapshots.flag(RANK, Step(20)) == BUSY
    process.snapshots.completed(Step(10))
    assert process.snapshots.flag(RANK, Step(20)) == WANTED


def test_the_first_of_what_is_each_rank_s_own_is_waited_for_once(
    process: Process, buddies: Buddies, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, asked = process.snapshots, list[int]()

    def given_up() -> bool:
        asked.append(len(asked))
        if len(asked) == 3:
            snapshots.completed(Step(16))
        return False

    snapshots.await_own(Step(15), given_up)
    assert asked == [], "none is each rank's own"
    snapshots.keep_own()
    process.take(16, buddies.make()[1].address)
    snapshots.await_own(Step(16), given_up)
    assert len(asked) == 3
    snapshots.await_own(Step(17), given_up)
    assert len(asked) == 3, "once"
    monkeypatch.setattr(snapshots_module, "OWN_WAIT_S", 0.01)
    snapshots.keep_own()
    snapshots.await_own(Step(18), lambda: False)
    snapshots.keep_own()
    snapshots.await_own(Step(18), lambda: True)


def test_the_vault_has_the_very_block(process: Process, buddies: Buddies) -> None:
    vault, server = buddies.make()
    fact = process.take(10, server.address)
    assert (fact.rank, fact.step, fact.refused) == (RANK, 10, "")
    kept = vault.get_blob(snapshot_name(RANK, 10))
    assert kept is not None
    snapshot = Snapshot.from_block(bytearray(kept))
    assert snapshot.tensors[0].view(torch.float32).tolist() == [10.0] * 5


def test_what_is_not_complete_when_members_change_is_dropped(
    process: Process,
    buddies: Buddies,
) -> None:
    address = buddies.make()[1].address
    process.take(10, address)
    process.snapshots.completed(Step(10))
    process.take(20, address)
    process.snapshots.changed(5)
    assert process.snapshots.of(RANK, Step(10)) is not None
    assert process.snapshots.of(RANK, Step(20)) is None


def test_a_new_buddy_gets_the_complete_one(process: Process, buddies: Buddies) -> None:
    process.take(10, buddies.make()[1].address)
    process.snapshots.completed(Step(10))
    vault, server = buddies.make()
    process.snapshots.follow(RANK, server.address, Epoch(2))
    assert process.fact().vault == server.address
    assert vault.get_blob(snapshot_name(RANK, 10)) is not None


def test_one_more_copy_goes_to_another_vault(process: Process, buddies: Buddies) -> None:
    (vault, server), (other, second) = buddies.make(), buddies.make()
    process.snapshots.follow(RANK, server.address, EPOCH, second.address)
    fact = process.take(10, server.address)
    assert (fact.vault, fact.further) == (server.address, "")
    again = process.fact()
    assert (again.vault, again.further, again.cost_us) == (
        server.address, second.address, fact.cost_us,
    )  # fmt: skip
    assert vault.get_blob(snapshot_name(RANK, 10)) == other.get_blob(snapshot_name(RANK, 10))


def test_a_vault_without_room_is_said(process: Process, buddies: Buddies) -> None:
    vault, server = buddies.make()
    vault.bytes_max = 10
    assert "cannot keep" in process.take(10, server.address).refused


def test_a_vault_forgets_older_ones() -> None:
    vault = Vault(bytes_max=1000)
    for step in (10, 20, 30):
        vault.put_blob(snapshot_name(1, step), b"x" * 100)
    vault.put_blob("record 1", b"y")
    vault.drop_snapshots(before=20)
    assert vault.bytes_held == 201
    assert vault.get_blob(snapshot_name(1, 20)) is not None


def order(step: int, *, vaults: list[str], processes: list[str]) -> Switch:
    return Switch(
        epoch=Epoch(3),
        committed=Step(step),
        sources={RANK: [Source(RANK, address) for address in processes]},
        records={RANK: vaults},
        buddies={},
        back=True,
    )


def found(switch: Switch, own: Snapshots) -> Snapshot:
    return going_back.snapshot_for(switch, RANK, own, TOKEN, threading.Event())


def test_a_damaged_copy_is_passed_over(process: Process, buddies: Buddies) -> None:
    vault, server = buddies.make()
    process.take(10, server.address)
    vault.get_blob(snapshot_name(RANK, 10))[3] ^= 1  # type: ignore[index]
    other = Process()
    switch = order(10, vaults=[server.address], processes=[process.server.address])
    try:
        assert found(switch, other.snapshots).step == 10
        with pytest.raises(PeerLost, match="damaged"):
            found(order(10, vaults=[server.address], processes=[]), other.snapshots)
    finally:
        other.server.close()


def test_an_own_copy_that_is_damaged_is_passed_over_and_mended(
    process: Process, buddies: Buddies
) -> None:
    server = buddies.make()[1]
    process.take(10, server.address)
    own = process.snapshots.of(RANK, Step(10))
    assert own is not None
    assert found(order(10, vaults=[server.address], processes=[]), process.snapshots) is own
    own.tensors[0][7] ^= 1
    with pytest.raises(NoneWhole, match="in its own memory is damaged"):
        found(order(10, vaults=[], processes=[process.server.address]), process.snapshots)
    taken = found(order(10, vaults=[server.address], processes=[]), process.snapshots)
    assert taken.tensors[0].view(torch.float32).tolist() == [10.0] * 5
    other = Process()
    try:
        again = found(order(10, vaults=[], processes=[process.server.address]), other.snapshots)
    finally:
        other.server.close()
    assert again.tensors[0].equal(taken.tensors[0])
    assert process.snapshots.of(RANK, Step(10)) is taken


def test_without_any_copy_it_says_so(process: Process, buddies: Buddies) -> None:
    switch = order(10, vaults=[buddies.make()[1].address], processes=[])
    with pytest.raises(PeerLost, match="No copy of rank 2's snapshot of step 10"):
        found(switch, process.snapshots)


def test_a_copy_that_cannot_be_fetched_is_passed_over(process: Process, buddies: Buddies) -> None:
    process.take(10, buddies.make()[1].address)
    other = Process()
    other.server.offer(snapshot_name(RANK, 10), refusing)
    switch = order(
        10, vaults=["127.0.0.1:1"], processes=[other.server.address, process.server.address]
    )
    try:
        assert found(switch, other.snapshots).step == 10
    finally:
        other.server.close()


def refusing() -> Offered:
    raise UserError("It cannot be sent.")


def test_memory_of_one_that_is_lent_is_not_used_again(process: Process, buddies: Buddies) -> None:
    address = buddies.make()[1].address
    process.take(10, address)
    with (
        process.snapshots.lent(RANK, Step(10)) as lent,
        process.snapshots.lent(RANK, Step(10)) as again,
    ):
        assert lent is not None
        assert again is lent
        process.take(20, address)
        process.snapshots.completed(Step(20))
        process.take(30, address)
        assert lent.tensors[0].view(torch.float32).tolist() == [10.0] * 5


def test_one_dropped_before_it_could_be_offered_is_not_offered(process: Process) -> None:
    kept = Snapshot.of(RANK, 10, b"", [torch.ones(1)], None)
    process.snapshots._put(Put(kept, EPOCH, "", cost_us=1, step_us=1))
    process.snapshots._put(Put(kept, EPOCH, "", cost_us=0, step_us=1))
    assert process.fact().cost_us == 0
    assert snapshot_name(RANK, 10) not in process.server._offers


def test_steps_that_are_undone_have_no_snapshot(process: Process, buddies: Buddies) -> None:
    vault, server = buddies.make()
    process.take(10, server.address)
    process.snapshots.completed(Step(10))
    process.snapshots.back_to(Step(5))
    assert process.snapshots.of(RANK, Step(10)) is None
    assert process.snapshots.flag(RANK, Step(6)) == 0
    process.take(7, server.address)
    process.snapshots.keep(1, now=False)
    assert process.snapshots.flag(RANK, Step(8)) == BUSY
    vault.drop_snapshots_after(7)
    held = [vault.get_blob(snapshot_name(RANK, step)) is not None for step in (7, 10)]
    assert held == [True, False]


def test_without_a_rank_no_memory_is_kept_for_the_next(process: Process, buddies: Buddies) -> None:
    address = buddies.make()[1].address
    for step in (10, 20):
        process.take(step, address)
    process.snapshots.spare_room()
    process.snapshots.completed(Step(20))
    held = process.snapshots.of(RANK, Step(20))
    assert held is not None
    assert process.snapshots.nbytes == held.block.nbytes


def test_a_vault_that_makes_no_sense_is_one_that_cannot_be_reached(
    process: Process, buddies: Buddies
) -> None:
    """With a wrong token it is refused; the thread lives on for the next vault."""
    process.snapshots._token = b"u" * 16
    kept = Snapshot.of(RANK, 10, b"", [torch.ones(1)], None)
    put = Put(kept, EPOCH, buddies.make()[1].address, 0, 0)
    assert process.snapshots._give_to(put) is None
