"""Members change, groups stay, sums are right."""

import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live

from trainmover.comm import Drained, GlooCommunicator, View, groups
from trainmover.comm.native.communicator import NativeCommunicator
from trainmover.errors import PeerLost, UserError


def world_sum(rank: int) -> float:
    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    return float(tensor[0])


def lose_and_go_on(rank: int, ranks: Ranks) -> Any:
    store = join_live(rank, ranks)
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    while not groups.draining:
        world_sum(rank)
    stats = groups.switchover(2, store)
    return sums_after(rank, halves[rank // 2]), stats.opened, stats.kept, stats.closed


def sums_after(rank: int, half: Any) -> tuple[float, float]:
    part = torch.tensor([float(rank + 1)])
    dist.all_reduce(part, group=half)
    return world_sum(rank), float(part)


def take_seat(rank: int, ranks: Ranks) -> Any:
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    stats = groups.switchover(2, store)
    return sums_after(rank, halves[rank // 2]), stats.opened, stats.kept, stats.closed


LINKS = {  # Opened, kept and closed by ranks 0, 1, 2 and the joiner; in the world and in a half.
    "gloo": [[4, 0, 4], [4, 0, 4], [4, 0, 4], [4, 0, 0]],
    "native": [[1, 3, 1], [1, 3, 1], [1, 3, 1], [3, 1, 0]],  # One link serves all groups.
}


def test_a_new_process_takes_the_seat_of_a_killed_one(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), lose_and_go_on, rank, ranks)
    ranks.start("joiner", take_seat, 3, ranks)
    answers = [ranks.result(name) for name in ("0", "1", "2", "joiner")]
    assert [sums for sums, *_ in answers] == [(10, 3), (10, 3), (10, 7), (10, 7)]
    assert [links for _, *links in answers] == LINKS[ranks.comm]


def keep_training(rank: int, ranks: Ranks) -> Any:
    """Prepare in the background; all ranks change at the step when the last one is ready."""
    store = join_live(rank, ranks)
    gate = groups.private("gate", rank, ranks.size)
    if rank != 3:
        groups.prepare(2, store)
        groups.prepare(2, store)
    steps, ready = 0, torch.zeros(1)
    while ready.item() < ranks.size:
        assert world_sum(rank) == 10
        steps += 1
        done = rank == 3 or groups.prepared(2).done()
        ready = torch.tensor([float(done)])
        gate.all_reduce(ready)
        if steps == 5:
            store.set("trained", "1")
    if rank == 3:
        store.set("paused", "1")
        return steps
    store.wait(["paused"])  # Nobody switches before the leaver stands at the boundary too.
    stats = groups.switchover(2, store)
    again = torch.ones(1)
    gate.all_reduce(again)
    return steps, stats.prepared, world_sum(rank), again.item()


def join_prepared(rank: int, ranks: Ranks) -> Any:
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    gate = groups.private("gate", rank, ranks.size)
    store.wait(["trained"])
    groups.prepare(2, store)
    groups.switchover(2, store)
    again = torch.ones(1)
    gate.all_reduce(again)
    return world_sum(rank), again.item()


def test_training_goes_on_while_the_next_epoch_is_prepared(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), keep_training, rank, ranks)
    ranks.start("joiner", join_prepared, 3, ranks)
    steps = ranks.result("3")
    assert steps >= 5
    assert [ranks.result(str(rank)) for rank in range(3)] == [(steps, 2, 10, 4)] * 3
    assert ranks.result("joiner") == (10, 4)


def give_up_on_joiner(rank: int, ranks: Ranks) -> Any:
    store = join_live(rank, ranks)
    groups.prepare(2, store)
    waiting = groups.prepared(2)
    assert not waiting.wait(0.2)
    groups.discard(2)
    assert waiting.done()
    assert isinstance(waiting.error, Drained)
    total = world_sum(rank)
    groups.prepare(3, store)
    groups.switchover(3, store)
    return total, world_sum(rank)


@pytest.mark.parametrize("ranks", [3], indirect=True)
def test_a_joiner_that_never_comes_leaves_no_trace(ranks: Ranks) -> None:
    assert ranks.run(give_up_on_joiner_unless_last) == [(6, 6)] * 3


def give_up_on_joiner_unless_last(rank: int, ranks: Ranks) -> Any:
    """Rank 2 plays the part of the joiner that is missing in epoch 2."""
    if rank < 2:
        return give_up_on_joiner(rank, ranks)
    store = join_live(rank, ranks)
    total = world_sum(rank)
    groups.switchover(3, store)
    return total, world_sum(rank)


def overtaken(rank: int, ranks: Ranks) -> Any:
    """The orders of epoch 3 arrive while rank 0 is on its way into epoch 2, alone."""
    store = join_live(rank, ranks)
    groups.drain("epoch 2 ordered", epoch=2)
    if rank == 0:
        threading.Timer(0.2, groups.drain, ["epoch 3 ordered"], {"epoch": 3}).start()
        with pytest.raises(Drained):
            groups.switchover(2, store)
        with pytest.raises(Drained):
            groups.switchover(2, store)
        assert groups.draining
    groups.switchover(3, store)
    groups.drain("epoch 3 ordered, said again", epoch=3)
    assert not groups.draining
    return world_sum(rank)


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_newer_order_ends_the_wait_for_an_older_epoch(ranks: Ranks) -> None:
    assert ranks.run(overtaken) == [3, 3]


def run_twice(rank: int, ranks: Ranks) -> Any:
    sums = []
    for epoch in (1, 2):
        join_live(rank, ranks, epoch)
        dist.new_group([0, 1])
        sums.append(world_sum(rank))
        groups.close()
        dist.destroy_process_group()
    return sums


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_the_script_runs_again_in_the_same_process(ranks: Ranks) -> None:
    assert ranks.run(run_twice) == [[3, 3], [3, 3]]


def sit_twice(rank: int, ranks: Ranks) -> str:
    make = {"gloo": GlooCommunicator, "native": NativeCommunicator}[ranks.comm]
    store = dist.HashStore()
    view = View(1, "g", store, seat=0, size=2, timeout=timedelta(milliseconds=100))
    with pytest.raises(PeerLost, match=r"seats \[1\] of group g"):
        make().prepare(view)
    with pytest.raises(UserError, match="taken before"):
        make().prepare(view)
    return "refused"


@pytest.mark.parametrize("ranks", [1], indirect=True)
def test_a_seat_is_taken_once_per_epoch(ranks: Ranks) -> None:
    assert ranks.run(sit_twice) == ["refused"]
