"""Two machines of two ranks record; then each machine's ranks run again together, by themselves."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from sandbox_calls import BINDING, closed

from tests.comm.comm_ranks import Ranks, join_live
from trainmover.comm import groups
from trainmover.sandbox import layout
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.replayer import Replayer

LARGE = 3000


def neighbours(rank: int) -> list[int]:
    return [rank // 2 * 2, rank // 2 * 2 + 1]


def pair_of(rank: int) -> Any:
    pairs = [dist.new_group(neighbours(first)) for first in (0, 2)]
    return pairs[rank // 2]


@contextmanager
def in_sandbox(rank: int, ranks: Ranks, data: bytes, run: int = 7) -> Iterator[Replayer]:
    groups.place(rank, neighbours(rank))
    groups.sandbox(run + rank // 2, ranks.connect)
    groups.tap = replayer = Replayer(layout.from_bytes(data))
    groups.rendezvous_store = dist.HashStore
    dist.init_process_group("gloo", rank=rank, world_size=ranks.size)
    try:
        yield replayer
    finally:
        dist.destroy_process_group()
        groups.close()


def recorded(rank: int, ranks: Ranks, script: Any) -> tuple[Any, bytes]:
    groups.place(rank, neighbours(rank))
    join_live(rank, ranks)
    groups.tap = recorder = Recorder(rank, BINDING)
    result = script(rank)
    record = closed(recorder, "").finish()
    groups.close()
    dist.destroy_process_group()
    return result, layout.to_bytes(record)


def exchanges(rank: int) -> tuple[list[list[float]], float]:
    """What a rank gets from its machine, and something made of all ranks' numbers."""
    pair, other = pair_of(rank), neighbours(rank)[1 - rank % 2]
    total, message = torch.full((LARGE,), rank + 0.5), torch.empty(LARGE)
    dist.all_reduce(total, group=pair)
    parts = [torch.empty(LARGE) for _ in range(2)]
    dist.all_gather(parts, torch.full((LARGE,), float(rank)), group=pair)
    sending = dist.isend(torch.full((LARGE,), rank + 0.25), other, group=pair)
    dist.recv(message, other, group=pair)
    sending.wait()
    world = torch.linspace(0, rank + 1, LARGE)
    dist.all_reduce(world)
    return [each.tolist() for each in (total, *parts, message)], world.sum().item()


def again(rank: int, ranks: Ranks) -> Any:
    (own, world), data = recorded(rank, ranks, exchanges)
    with in_sandbox(rank, ranks, data) as replayer:
        own_again, world_again = exchanges(rank)
        replayer.check()
        assert replayer.under_way == 0
        trace = replayer.trace()
    kept = [e.outputs for e in layout.from_bytes(data).entries.values() if e.outputs]
    assert trace == layout.from_bytes(data).trace
    return own_again == own, world_again == world, len(kept), len(data)


def test_what_stays_inside_a_machine_is_said_again_and_not_kept(ranks: Ranks) -> None:
    for own, world, kept, size in ranks.run(again):
        assert own  # bit for bit, and large: nothing of it could be made up
        assert not world
        assert kept == 1  # the sum over the world: its moments
        assert size < 2000


def passes_on(rank: int, leave: Callable[[], None] = lambda: None) -> bool:
    """A sum, then on the first machine a message, on the second another sum. Whether the rank was
    deserted then. leave: what rank 1 does in between."""
    pair, other = pair_of(rank), neighbours(rank)[1 - rank % 2]
    dist.all_reduce(torch.ones(LARGE), group=pair)
    if rank == 0:
        dist.recv(torch.empty(LARGE), other, group=pair)
    elif rank == 1:
        leave()
        dist.send(torch.ones(LARGE), other, group=pair)
    else:
        dist.all_reduce(torch.ones(LARGE), group=pair)
    return groups.deserted


def until_one_leaves(rank: int, ranks: Ranks, leave: Callable[[], None]) -> Any:
    """Whether the rank is deserted, and later calls end although nobody answers them."""
    _, data = recorded(rank, ranks, passes_on)
    with in_sandbox(rank, ranks, data):
        deserted = passes_on(rank, leave)
        if deserted:
            dist.all_reduce(torch.ones(LARGE))
    return deserted


def gives_up() -> None:
    groups.desert("it has had enough")


def dies() -> None:
    os._exit(0)


def test_a_worker_whose_neighbour_dies_is_let_go(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), until_one_leaves, rank, ranks, dies)
    assert [ranks.result(str(rank)) for rank in (0, 2, 3)] == [True, False, False]


def test_a_worker_whose_neighbour_gives_up_is_let_go(ranks: Ranks) -> None:
    assert ranks.run(until_one_leaves, gives_up) == [True, True, False, False]


def nobody_comes(rank: int, ranks: Ranks) -> Any:
    """All others have work elsewhere before they make the group; then so has rank 0."""
    if rank > 0:
        return None
    with in_sandbox(rank, ranks, nothing_recorded()):
        threading.Timer(0.1, groups.desert, ["recalled"]).start()
        value = torch.ones(3)
        dist.all_reduce(value, group=pair_of(rank))
        return groups.deserted, value.tolist()


def nothing_recorded() -> bytes:
    record = closed(Recorder(0, BINDING), "").finish()
    return layout.to_bytes(record)


def test_waiting_for_a_neighbour_can_be_ended_by_another_thread(ranks: Ranks) -> None:
    assert ranks.run(nobody_comes)[0] == (True, [1.0, 1.0, 1.0])


def to_live(rank: int, ranks: Ranks) -> Any:
    """Own sums in the sandbox, then the job's in the same group objects."""
    _, data = recorded(rank, ranks, lambda rank: summed(rank, pair_of(rank)))
    with in_sandbox(rank, ranks, data):
        pair = pair_of(rank)
        shadow = summed(rank, pair)
        groups.tap = None
        groups.switchover(2, ranks.connect())
        return shadow, summed(rank, pair), summed(rank, None)


def summed(rank: int, group: Any) -> float:
    value = torch.full((LARGE,), rank + 1.0)
    dist.all_reduce(value, group=group)
    return value[0].item()


def test_at_the_switchover_the_groups_get_the_jobs_communicator(ranks: Ranks) -> None:
    assert ranks.run(to_live) == [(3, 3, 10)] * 2 + [(7, 7, 10)] * 2


def held() -> list[int]:
    """Threads and descriptors of this process, without garbage, as a worker is between runs."""
    gc.collect()
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def many_runs(rank: int, ranks: Ranks) -> Any:
    """What is held once all runs are over, and what the first of them held."""
    _, data = recorded(rank, ranks, exchanges)
    during = []
    for run in (10, 20, 30):
        with in_sandbox(rank, ranks, data, run):
            exchanges(rank)
            during.append(held())
    deadline = time.monotonic() + 30
    while any(map(int.__gt__, held(), during[0])) and time.monotonic() < deadline:
        time.sleep(0.05)  # gloo's groups end in the background
    return held(), during[0]


@pytest.mark.turns(8)
def test_runs_leave_nothing_behind(ranks: Ranks) -> None:
    for after, during in ranks.run(many_runs):
        assert all(map(int.__le__, after, during)), (after, during)
